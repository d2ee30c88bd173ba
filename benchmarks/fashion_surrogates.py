"""FedLAP and FedDM against FedAvg, FedProx and SCAFFOLD, at equal rounds and at equal bytes.

FashionMNIST, five clients with two classes each, a ConvNet of width 32, 10 images for each class. Batches at each
point, looks, local steps, rounds and seeds are few by default; at full size they are those of
[surrogates](surrogates.md), where the figures are.
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

from measuring import SHARED_DATA, TINY_NET, Row, Setting, seconds

from stages.recipes.recipe import change, load_recipe
from stages.recipes.runner import run

TITLE = "FedLAP and FedDM on FashionMNIST"
_FASHION = (
    "partition.source=fashion-mnist", f"partition.root={SHARED_DATA}", "partition.clients=5",
    "partition.scheme=classes", "partition.classes_per_client=2", "partition.alpha=null", "init-model.arch=convnet",
    "init-model.width=32", "init-model.depth=3",
)  # fmt: skip
_DIGITS = ("partition.clients=2", *TINY_NET[:3])


@dataclasses.dataclass(frozen=True)
class _Size:
    """The paper's accesses are 5 points of 8 batches of 256; averaging makes as many gradient steps."""

    rounds: int
    seeds: tuple[int, ...]
    batches: int
    looks: int
    data: tuple[str, ...] = _FASHION

    def methods(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        fedlap = (
            "encode.batch_size=256", f"encode.batches={self.batches}", "encode.image_rate=10",
            "encode.learning_rate=0.02", "encode.radius_examples=128",
        )  # fmt: skip
        feddm = ("encode.rho=5.0", "encode.batch_size=64", f"encode.iterations={self.looks}")
        local = (
            "train-client.local_epochs=null", f"train-client.local_steps={5 * self.batches}",
            "train-client.batch_size=256", "train-client.learning_rate=0.02",
        )  # fmt: skip
        averaging = {"FedAvg": ("fedavg", local), "FedProx": ("fedprox", local), "SCAFFOLD": ("scaffold", local)}
        return {"FedLAP": ("fedlap", fedlap), "FedDM": ("feddm", feddm), **averaging}


_SIZES = {
    "smoke": _Size(1, (0,), 1, 1, _DIGITS),
    "usual": _Size(2, (0,), 2, 50),
    "full": _Size(5, (0, 1, 2), 8, 200),
}


def measure(setting: Setting) -> Iterator[Row]:
    if not setting.smoke and not SHARED_DATA.is_dir():
        return
    size = _SIZES[setting.size]
    methods = size.methods()
    if setting.smoke:
        methods = {name: methods[name] for name in ("FedLAP", "FedAvg")}
    found: dict[str, list[_Run]] = {name: [] for name in methods}
    for seed, (name, (recipe, settings)) in itertools.product(size.seeds, methods.items()):
        start = time.perf_counter()
        folder = setting.folder / f"{name}-{seed}"
        summary = run(
            change(load_recipe(recipe), (*size.data, *settings), size.rounds), folder, seed=seed,
            workers=1 if setting.smoke else os.cpu_count() or 1,
        )  # fmt: skip
        one = _Run([point["accuracy"] for point in summary["curve"]], _bytes_by_round(folder, size.rounds))
        found[name].append(one)
        yield Row(
            what=f"{name}, {size.rounds} rounds, seed {seed}",
            ours=f"{one.curve[-1]:.1%} in {seconds(time.perf_counter() - start)}",
            theirs=f"{sum(one.sent) / 1e6:.2f} MB up",
            raw=dataclasses.asdict(one),
        )
    most = max(sum(one.sent) for one in found["FedLAP"])  # what equal bytes are counted by
    for name, runs in found.items() if len(size.seeds) > 1 else ():
        yield Row(
            what=f"{name}, {size.rounds} rounds, all seeds", ours=_spread([one.curve[-1] for one in runs]),
            theirs=f"{sum(runs[0].sent) / 1e6:.2f} MB up",
        )  # fmt: skip
        rounds = sum(1 for number in range(1, size.rounds + 1) if sum(runs[0].sent[:number]) <= most)
        yield Row(
            what=f"{name}, within {most / 1e6:.2f} MB, all seeds",
            ours=_spread([one.curve[rounds] for one in runs]), theirs=f"{rounds} rounds",
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Run:
    curve: list[float]
    sent: list[int]


def _spread(accuracies: list[float]) -> str:
    spread = f" ± {statistics.stdev(accuracies) * 100:.1f}" if len(accuracies) > 1 else ""
    return f"{statistics.mean(accuracies):.1%}{spread}"


def _bytes_by_round(folder: Path, rounds: int) -> list[int]:
    """What all clients sent in each round, from their ledgers."""
    sent = [0] * rounds
    for ledger in folder.glob("clients/*/egress.jsonl"):
        for line in ledger.read_text().splitlines():
            entry = json.loads(line)
            sent[entry["round"] - 1] += entry["bytes"]
    return sent
