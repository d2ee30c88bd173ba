"""FedLAP and FedDM against FedAvg, FedProx and SCAFFOLD on FashionMNIST, at equal rounds and at equal bytes.

Five clients with two classes each, a ConvNet of width 32, 10 images for each class, 8 batches a point, 5 rounds, one
seed. Only where ../shared/data is.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import SHARED_DATA, Row, Setting, seconds

from stages.recipes.recipe import change, load_recipe
from stages.recipes.runner import run

ABOUT = "FedLAP, FedDM and averaging on FashionMNIST, at equal rounds and bytes (only where ../shared/data is)"
_ROUNDS = 5
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
    found: dict[str, dict[str, Any]] = {}
    for name, (recipe, settings) in _METHODS.items():
        start = time.perf_counter()
        folder = setting.folder / name
        summary = run(
            change(load_recipe(recipe), (*_DATA, *settings), _ROUNDS), folder, seed=0, workers=os.cpu_count() or 1
        )
        sent = _bytes_by_round(folder)
        found[name] = {"curve": [point["accuracy"] for point in summary["curve"]], "sent": sent}
        yield Row(
            what=f"{name}, {_ROUNDS} rounds",
            against="(no peer)",
            ours=f"{summary['accuracy']:.1%} in {seconds(time.perf_counter() - start)}",
            theirs=f"{sum(sent) / 1e6:.2f} MB up",
            raw=found[name],
        )
    least = min(sum(one["sent"]) for one in found.values())
    for name, one in found.items():
        rounds = sum(1 for number in range(1, _ROUNDS + 1) if sum(one["sent"][:number]) <= least)
        yield Row(
            what=f"{name}, within {least / 1e6:.2f} MB", against="(no peer)",
            ours=f"{one['curve'][rounds]:.1%}", theirs=f"{rounds} rounds",
        )  # fmt: skip


def _bytes_by_round(folder: Path) -> list[int]:
    """What all clients sent in each round, from their ledgers."""
    sent = [0] * _ROUNDS
    for ledger in folder.glob("clients/*/egress.jsonl"):
        for line in ledger.read_text().splitlines():
            entry = json.loads(line)
            sent[entry["round"] - 1] += entry["bytes"]
    return sent
