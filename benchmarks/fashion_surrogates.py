"""FedLAP and FedDM against FedAvg, FedProx and SCAFFOLD on FashionMNIST, at equal rounds and at equal bytes.

Five clients with two classes each, a ConvNet of width 32, 10 images for each class, 8 batches a point, 5 rounds,
three seeds. Only where ../shared/data is.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from measuring import SHARED_DATA, Row, Setting, seconds

from stages.recipes.recipe import change, load_recipe
from stages.recipes.runner import run

ABOUT = "FedLAP, FedDM and averaging on FashionMNIST, at equal rounds and bytes (only where ../shared/data is)"
_ROUNDS = 5
_SEEDS = (0, 1, 2)
_DATA = (
    "partition.source=fashion-mnist", f"partition.root={SHARED_DATA}", "partition.clients=5",
    "partition.scheme=classes", "partition.classes_per_client=2", "partition.alpha=null", "init-model.arch=convnet",
    "init-model.width=32", "init-model.depth=3",
)  # fmt: skip
# The paper's accesses: 5 points of 8 batches of 256; averaging makes as many gradient steps.
_FEDLAP = (
    "encode.batch_size=256", "encode.batches=8", "encode.image_rate=10", "encode.learning_rate=0.02",
    "encode.radius_examples=128",
)  # fmt: skip
# 200 looks at 64 images of each class.
_FEDDM = ("encode.rho=5.0", "encode.batch_size=64")
_LOCAL = (
    "train-client.local_epochs=null", "train-client.local_steps=40", "train-client.batch_size=256",
    "train-client.learning_rate=0.02",
)  # fmt: skip
_METHODS = {
    "FedLAP": ("fedlap", _FEDLAP),
    "FedDM": ("feddm", _FEDDM),
    "FedAvg": ("fedavg", _LOCAL),
    "FedProx": ("fedprox", _LOCAL),
    "SCAFFOLD": ("scaffold", _LOCAL),
}


def measure(setting: Setting) -> Iterator[Row]:
    if setting.quick or not SHARED_DATA.is_dir():
        return
    found: dict[str, list[_Run]] = {name: [] for name in _METHODS}
    for seed, (name, (recipe, settings)) in itertools.product(_SEEDS, _METHODS.items()):
        start = time.perf_counter()
        folder = setting.folder / f"{name}-{seed}"
        summary = run(
            change(load_recipe(recipe), (*_DATA, *settings), _ROUNDS), folder, seed=seed, workers=os.cpu_count() or 1
        )
        one = _Run([point["accuracy"] for point in summary["curve"]], _bytes_by_round(folder))
        found[name].append(one)
        yield Row(
            what=f"{name}, {_ROUNDS} rounds, seed {seed}",
            against="(no peer)",
            ours=f"{one.curve[-1]:.1%} in {seconds(time.perf_counter() - start)}",
            theirs=f"{sum(one.sent) / 1e6:.2f} MB up",
            raw=dataclasses.asdict(one),
        )
    most = max(sum(one.sent) for one in found["FedLAP"])  # what equal bytes are counted by
    for name, runs in found.items():
        yield Row(
            what=f"{name}, {_ROUNDS} rounds, all seeds", against="(no peer)",
            ours=_spread([one.curve[-1] for one in runs]), theirs=f"{sum(runs[0].sent) / 1e6:.2f} MB up",
        )  # fmt: skip
        rounds = sum(1 for number in range(1, _ROUNDS + 1) if sum(runs[0].sent[:number]) <= most)
        yield Row(
            what=f"{name}, within {most / 1e6:.2f} MB, all seeds", against="(no peer)",
            ours=_spread([one.curve[rounds] for one in runs]), theirs=f"{rounds} rounds",
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Run:
    curve: list[float]
    sent: list[int]


def _spread(accuracies: list[float]) -> str:
    return f"{statistics.mean(accuracies):.1%} ± {statistics.stdev(accuracies) * 100:.1f}"


def _bytes_by_round(folder: Path) -> list[int]:
    """What all clients sent in each round, from their ledgers."""
    sent = [0] * _ROUNDS
    for ledger in folder.glob("clients/*/egress.jsonl"):
        for line in ledger.read_text().splitlines():
            entry = json.loads(line)
            sent[entry["round"] - 1] += entry["bytes"]
    return sent
