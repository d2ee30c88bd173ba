"""Methods that protect each record, at one ε: what is noised decides. [surrogates](surrogates.md) has the figures.

Digits, five clients with two classes each, five rounds of 20 looks at a quarter of the records, ε = 8 (PLD, δ = 1e-5).
FedLAP-DP noises the gradient of all weights or of the last layer, FedDM-DP ten means of features, the averaging methods
the gradients of local steps. Each method has the same number of trials, on a seed that is not reported. A run that is
there already is not made again.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
from collections.abc import Iterator

from measuring import ROOT, Row, Setting, seconds

from stages.recipes.recipe import change, load_recipe
from stages.recipes.runner import run

TITLE = "Private sets and private averages at one ε"
_TUNED_ON = 100
_CLIENTS = (
    "partition.scheme=classes", "partition.classes_per_client=2", "partition.alpha=null", "init-model.width=32",
    "train-client.privacy_rounds=5", "train-client.local_steps=20",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Method:
    recipe: str
    trials: tuple[tuple[str, ...], ...]
    always: tuple[str, ...] = ()


def _averaging(recipe: str) -> _Method:
    """Step sizes and clips; the recipe has 0.5 and 1."""
    pairs = ((0.2, 1.0), (0.2, 0.5), (0.5, 0.5), (0.1, 1.0))
    trials = tuple((f"train-client.learning_rate={rate}", f"train-client.clip_norm={clip}") for rate, clip in pairs)
    return _Method(recipe, trials, _CLIENTS)


def _matched(recipe: str) -> _Method:
    """Targets and distances of FedLAP-DP; the recipe has the first."""
    both = ("encode.distance=cosine+mse", "encode.image_rate=10")
    return _Method(recipe, ((), ("encode.targets=mean",), both, (*both, "encode.targets=mean")))


_METHODS = {
    "DP-FedAvg": _averaging("dp-sgd"),
    "DP-FedProx": _averaging("dp-sgd-fedprox"),
    "FedLAP-DP": _matched("fedlap-dp"),
    "FedLAP-DP, last layer": _matched("fedlap-dp-last"),
    "FedDM-DP": _Method(
        "feddm-dp", ((), ("encode.clip_norm=2.5",), ("encode.rho=3.0",), ("encode.rho=3.0", "encode.clip_norm=2.5"))
    ),
}


def measure(setting: Setting) -> Iterator[Row]:
    seeds = {"smoke": (0,), "usual": (0,), "full": (0, 1, 2)}[setting.size]
    rounds = 1 if setting.smoke else 5
    methods = {name: _METHODS[name] for name in ("FedLAP-DP, last layer",)} if setting.smoke else _METHODS
    for name, method in methods.items():
        trials = method.trials[: 1 if setting.smoke else 4 if setting.full else 2]
        tried = {trial: _run(setting, method, trial, _TUNED_ON, rounds)[-1] for trial in trials}
        best = max(tried, key=lambda trial: tried[trial])
        yield Row(
            what=f"{name}: the best of {len(trials)} trials, seed {_TUNED_ON}",
            ours=f"{tried[best]:.1%} with {', '.join(best) or 'the recipe as it is'}",
            raw={"trials": [[*trial, accuracy] for trial, accuracy in tried.items()]},
        )
        start = time.process_time()
        curves = [_run(setting, method, best, seed, rounds) for seed in seeds]
        means = ", ".join(f"{statistics.mean(point):.1%}" for point in zip(*curves, strict=True))
        last = sorted(curve[-1] for curve in curves)
        yield Row(
            what=f"{name}: rounds 1 to {rounds}, seeds {seeds[0]} to {seeds[-1]}",
            ours=f"{means} ({last[0]:.1%} … {last[-1]:.1%})", raw={"curves": curves},
            theirs=seconds(time.process_time() - start),
        )  # fmt: skip


def _run(setting: Setting, method: _Method, trial: tuple[str, ...], seed: int, rounds: int) -> list[float]:
    """The accuracy after each round."""
    folder = setting.folder if setting.smoke else ROOT / "runs/bench"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "private-sets.jsonl"
    label = {"recipe": method.recipe, "trial": list(trial), "seed": seed, "rounds": rounds}
    for line in map(json.loads, kept.read_text().splitlines() if kept.exists() else []):
        if line["run"] == label:
            return list(line["accuracies"])
    recipe = change(load_recipe(method.recipe), (*method.always, *trial), rounds)
    name = f"{method.recipe}-{'-'.join(trial).replace('=', '-')}-{seed}"
    summary = run(recipe, setting.folder / name, seed=seed, workers=1)
    found = [point["accuracy"] for point in summary["curve"]][1:]
    with kept.open("a") as lines:
        lines.write(json.dumps({"run": label, "accuracies": found}) + "\n")
    return found
