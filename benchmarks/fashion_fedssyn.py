"""Fedssyn on FashionMNIST at 28×28 with a small U-Net: what each stage takes, and what it gains in a few rounds.

One seed and one process, so that the stages' times add up. Only where ../shared/data is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from measuring import SHARED_DATA, Row, Setting, seconds

from stages.evaluate_runs import evaluate_runs
from stages.recipes.perform import perform
from stages.recipes.plan import partition_step, plan, planned_clients
from stages.recipes.recipe import Recipe, change, load_recipe

ABOUT = (
    "Fedssyn on FashionMNIST, 28×28: seconds of each stage, accuracy with and without (only where ../shared/data is)"
)
_SETTINGS = (
    "partition.source=fashion-mnist", f"partition.root={SHARED_DATA}", "partition.clients=4", "partition.alpha=0.05",
    "train-generator.multipliers='1,2,2'", "train-generator.steps=400", "synthesize.count=500",
    "init-model.width=32", "init-model.depth=3", "train-client.local_epochs=null", "train-client.local_steps=30",
    "train-client.batch_size=32",
)  # fmt: skip
_ROUNDS = 8


def measure(setting: Setting) -> Iterator[Row]:
    if setting.quick or not SHARED_DATA.is_dir():
        return
    base = change(load_recipe("fedssyn"), _SETTINGS, _ROUNDS)
    runs = {kind: setting.folder / kind for kind in ("none", "shuffled")}
    taken: dict[str, float] = {}
    for kind, folder in runs.items():
        taken = _run(change(base, [f"synthetic={kind}"], None), folder)
    for command, spent in taken.items():
        yield Row(what=f"with synthetic data: {command}", against="(no peer)", ours=seconds(spent), theirs="",
                  raw={"seconds": spent})  # fmt: skip
    compared = evaluate_runs(list(runs.values()), setting.folder / "comparison.json")
    for run in compared["runs"]:
        yield Row(what=f"accuracy after {_ROUNDS} rounds, synthetic: {run['label']}", against="(no peer)",
                  ours=f"{run['accuracy']:.1%}", theirs="", raw=run)  # fmt: skip


def _run(recipe: Recipe, folder: Path) -> dict[str, float]:
    """All steps one after the other; the seconds of each command."""
    taken: dict[str, float] = {}
    clients = planned_clients(recipe)
    for step in [partition_step(recipe, 0), *plan(recipe, clients, 0)]:
        start = time.perf_counter()
        perform(step, folder)
        taken[step.command] = taken.get(step.command, 0.0) + time.perf_counter() - start
    return taken
