"""What each stage of Fedssyn takes with a small U-Net, and what synthetic data gain in a few rounds.

FashionMNIST at 28×28, four clients, Dirichlet 0.05, a ConvNet of width 32, 30 local steps a round. One seed and one
process, so that the stages' times add up. Steps of the generators, synthetic images and rounds as the rows say; at full
size there are more of them, and the accuracies mean more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from measuring import SHARED_DATA, TINY_NET, Row, Setting, seconds

from stages.evaluate.runs import evaluate_runs
from stages.recipes.perform import perform
from stages.recipes.plan import partition_step, plan, planned_clients
from stages.recipes.recipe import Recipe, change, load_recipe

TITLE = "Fedssyn on FashionMNIST"
_FASHION = (
    "partition.source=fashion-mnist", f"partition.root={SHARED_DATA}", "partition.clients=4", "partition.alpha=0.05",
    "train-generator.multipliers='1,2,2'", "init-model.width=32", "init-model.depth=3",
    "train-client.local_epochs=null", "train-client.local_steps=30", "train-client.batch_size=32",
)  # fmt: skip
_DIGITS = ("partition.clients=2", *TINY_NET, "synthesize.sampling_steps=2")
# Steps of a generator, images from each client, rounds.
_SIZES = {"smoke": (2, 4, 1), "usual": (100, 100, 4), "full": (400, 500, 8)}


def measure(setting: Setting) -> Iterator[Row]:
    if not setting.smoke and not SHARED_DATA.is_dir():
        return
    steps, images, rounds = _SIZES[setting.size]
    sizes = (f"train-generator.steps={steps}", f"synthesize.count={images}")
    base = change(load_recipe("fedssyn"), [*(_DIGITS if setting.smoke else _FASHION), *sizes], rounds)
    runs = {kind: setting.folder / kind for kind in ("none", "shuffled")}
    taken: dict[str, float] = {}
    for kind, folder in runs.items():
        taken = _run(change(base, [f"synthetic={kind}"], None), folder)
    numbers = {"train-generator": f", {steps} steps", "synthesize": f", {images} images"}
    for command, spent in taken.items():
        what = f"with synthetic data: {command}{numbers.get(command, '')}"
        yield Row(what=what, ours=seconds(spent), raw={"seconds": spent})
    compared = evaluate_runs(list(runs.values()), setting.folder / "comparison.json")
    for run in compared["runs"]:
        what = f"accuracy after {rounds} rounds, synthetic: {run['label']}"
        yield Row(what=what, ours=f"{run['accuracy']:.1%}", raw=run)


def _run(recipe: Recipe, folder: Path) -> dict[str, float]:
    """All steps one after the other; the seconds of each command."""
    taken: dict[str, float] = {}
    clients = planned_clients(recipe)
    for step in [partition_step(recipe, 0), *plan(recipe, clients, 0)]:
        start = time.perf_counter()
        perform(step, folder)
        taken[step.command] = taken.get(step.command, 0.0) + time.perf_counter() - start
    return taken
