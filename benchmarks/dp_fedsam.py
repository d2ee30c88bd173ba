"""DP-FedSAM against DP-FedAvg in a setting where noise costs accuracy; [dp-fedsam](dp-fedsam.md) has the figures.

FashionMNIST, 500 clients of 120 images, Dirichlet 0.6, a hundredth of them a round, σ = 0.95. Clip, rate and radius
of each method are chosen by the same number of trials on a seed that is not reported. Reported seeds are paired: within
a seed all methods have the same data, first weights, participants, batches and noise. To pair the noise it is drawn
from the seed, which no run of `fedsynth` does, so the rounds are computed in memory, by the functions of the commands.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from measuring import ROOT, SHARED_DATA, Row, Setting
from torch import Tensor

from stages.data.device_images import DeviceImages
from stages.data.images import LabelledImages
from stages.data.params import PartitionParams
from stages.data.schemes import divide
from stages.data.sources import load
from stages.methods.local_training import batches
from stages.methods.params.fedavg import FedAvgTraining
from stages.methods.stacked_training import ClientTask, filled_size, train_stacked
from stages.nets.build import build, initialise
from stages.nets.params import InputShape
from stages.nets.state import trained
from stages.privacy.mechanism import clipped
from stages.registry import NETWORKS

TITLE = "DP-FedSAM where noise matters"
_SHARE, _SIGMA, _BATCH, _TOGETHER, _WIDTH = 0.01, 0.95, 32, 10, 16
_TUNED_ON = 100


@dataclasses.dataclass(frozen=True)
class _Method:
    """A way of local training, and its trials: clip, rate, radius."""

    name: str
    trials: tuple[tuple[float, float, float | None], ...]
    adaptive: bool = False


def _trials(*radii: float | None) -> tuple[tuple[float, float, float | None], ...]:
    """Six points that have every clip with both rates, and both radii with each of them."""
    low, high = radii[0], radii[-1]
    return (
        (0.0312, 0.03, low), (0.0312, 0.1, high), (0.0625, 0.03, high), (0.0625, 0.1, low), (0.125, 0.03, low),
        (0.125, 0.1, high),
    )  # fmt: skip


_METHODS = (
    _Method("DP-FedAvg", _trials(None)),
    _Method("DP-FedSAM, plain", _trials(0.05, 0.1)),
    _Method("DP-FedSAM, adaptive", _trials(0.2, 0.5), adaptive=True),
)


@dataclasses.dataclass(frozen=True)
class _Size:
    clients: int
    rounds: int
    epochs: int
    seeds: tuple[int, ...]
    source: str = "fashion-mnist"


_SIZES = {
    "smoke": _Size(20, 1, 1, (0, 1), "digits"),
    "usual": _Size(500, 5, 1, (0, 1)),
    "full": _Size(500, 60, 1, (0, 1, 2, 3, 4)),
}


def measure(setting: Setting) -> Iterator[Row]:
    size = _SIZES[setting.size]
    if size.source != "digits" and not SHARED_DATA.is_dir():
        return
    runs = _Runs(setting, size)
    chosen: dict[str, tuple[float, float, float | None]] = {}
    for method in _METHODS:
        tried = {trial: runs.accuracy(method, trial, _TUNED_ON, _SIGMA) for trial in method.trials}
        chosen[method.name] = max(tried, key=lambda trial: tried[trial])
        clip, rate, radius = chosen[method.name]
        yield Row(
            what=f"{method.name}: the best of {len(tried)} trials, seed {_TUNED_ON}",
            ours=f"{max(tried.values()):.1%} with C = {clip:g}, rate {rate:g}"
            + (f", ρ = {radius:g}" if radius else ""),
            raw={"trials": [[*trial, accuracy] for trial, accuracy in tried.items()]},
        )
    found = {
        (method.name, sigma): [runs.accuracy(method, chosen[method.name], seed, sigma) for seed in size.seeds]
        for sigma in (_SIGMA, 0.0)
        for method in _METHODS
    }
    for (name, sigma), accuracies in found.items():
        yield Row(
            what=f"{name}, σ = {sigma:g}, seeds {size.seeds[0]} to {size.seeds[-1]}", ours=_mean(accuracies),
            raw={"accuracies": accuracies},
        )  # fmt: skip
    plain = found[_METHODS[0].name, _SIGMA]
    yield Row(what="control: DP-FedAvg without noise − with it", ours=_paired(found[_METHODS[0].name, 0.0], plain))
    for method in _METHODS[1:]:
        yield Row(what=f"{method.name} − DP-FedAvg, paired", ours=_paired(found[method.name, _SIGMA], plain))
        without = found[method.name, 0.0], found[_METHODS[0].name, 0.0]
        yield Row(what=f"{method.name} − DP-FedAvg, both without noise, paired", ours=_paired(*without))


def _mean(accuracies: list[float]) -> str:
    return f"{statistics.mean(accuracies):.1%} ± {statistics.stdev(accuracies) * 100:.1f}"


def _paired(ones: list[float], others: list[float]) -> str:
    """The mean difference in points with its standard error."""
    points = [100 * (one - other) for one, other in zip(ones, others, strict=True)]
    return f"{statistics.mean(points):+.2f} ± {statistics.stdev(points) / math.sqrt(len(points)):.2f} points"


class _Runs:
    """Runs that are written down one by one: interrupted, the benchmark goes on with the next."""

    def __init__(self, setting: Setting, size: _Size) -> None:
        folder = setting.folder if setting.smoke else ROOT / "runs/bench"
        folder.mkdir(parents=True, exist_ok=True)
        self._size, self._kept = size, folder / f"dp-fedsam-{setting.size}-{_SHARE:g}.jsonl"
        lines = self._kept.read_text().splitlines() if self._kept.exists() else []
        self._done = {json.dumps(line["run"]): line["accuracy"] for line in map(json.loads, lines)}

    def accuracy(self, method: _Method, trial: tuple[float, float, float | None], seed: int, sigma: float) -> float:
        label = {"method": method.name, "trial": list(trial), "seed": seed, "sigma": sigma}
        if (key := json.dumps(label)) not in self._done:
            began = time.process_time()
            self._done[key] = _run(self._size, method, trial, seed, sigma)
            line = {"run": label, "accuracy": self._done[key], "seconds": round(time.process_time() - began, 1)}
            with self._kept.open("a") as kept:
                kept.write(json.dumps(line) + "\n")
        return self._done[key]


@cache
def _data(source: str) -> tuple[LabelledImages, LabelledImages]:
    found = load(source, root=SHARED_DATA if source != "digits" else None)
    return found.train, found.train if found.test is None else found.test


@cache
def _clients(source: str, clients: int, seed: int) -> list[Any]:
    params = PartitionParams(clients=clients, scheme="dirichlet", alpha=0.6, sizes="equal")
    return divide(_data(source)[0], params, np.random.default_rng(seed))


def _run(size: _Size, method: _Method, trial: tuple[float, float, float | None], seed: int, sigma: float) -> float:
    """The accuracy after the last round. Draws of a seed do not depend on the method."""
    torch.set_num_threads(1)
    clip, rate, radius = trial
    train, test = _data(size.source)
    images, labels = DeviceImages(train.images, torch.device("cpu")), torch.from_numpy(train.labels)
    shape = InputShape(
        channels=train.images.shape[1], height=train.images.shape[2], width=train.images.shape[3],
        num_classes=len(train.class_names),
    )  # fmt: skip
    arch = {"arch": "strided", "width": _WIDTH} if size.source != "digits" else {"arch": "softmax"}
    net = build(NETWORKS.from_mapping(arch), shape)
    initialise(net, torch.Generator().manual_seed(seed))
    sam = {} if radius is None else {"sam_rho": radius, "adaptive_sam": method.adaptive}
    params = FedAvgTraining(
        local_epochs=size.epochs, batch_size=_BATCH, learning_rate=rate, lr_schedule="exponential", lr_decay=0.995,
        momentum=0.5, together=_TOGETHER, **sam,
    )  # fmt: skip
    members = _clients(size.source, size.clients, seed)
    chance, noise = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    for round in range(1, size.rounds + 1):
        drawn = np.flatnonzero(chance.random(size.clients) < _SHARE)
        tasks: dict[int, list[ClientTask]] = {}
        for client in drawn:
            rows = torch.from_numpy(members[client])
            total = params.num_steps([len(rows)])
            order = torch.Generator().manual_seed(int(chance.integers(2**62)))
            task = ClientTask(_Some(images, rows), labels[rows], batches(_BATCH, len(rows), total, order), total)
            tasks.setdefault(filled_size(len(rows), _BATCH), []).append(task)
        total_update = {name: np.zeros(weight.shape) for name, weight in trained(net).items()}
        for filled, alike in tasks.items():
            for first in range(0, len(alike), _TOGETHER):
                for result in train_stacked(
                    net, alike[first : first + _TOGETHER], places=_TOGETHER, rows=filled, params=params, round=round,
                    report=lambda *_: None,
                ):  # fmt: skip
                    one = clipped({name: tensor.numpy() for name, tensor in result.update.items()}, clip)
                    total_update = {name: tensor + one[name] for name, tensor in total_update.items()}
        with torch.no_grad():
            for name, weight in trained(net).items():
                noised = total_update[name] + sigma * clip * noise.standard_normal(weight.shape)
                weight -= torch.from_numpy(noised / (_SHARE * size.clients)).float()
    with torch.no_grad():
        pixels, answers = DeviceImages(test.images, torch.device("cpu")), torch.from_numpy(test.labels)
        right = sum(
            int((net(pixels[rows]).argmax(1) == answers[rows]).sum()) for rows in torch.arange(len(answers)).split(500)
        )
    return right / len(answers)


@dataclasses.dataclass(frozen=True)
class _Some:
    """A client's rows of all images."""

    images: DeviceImages
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        return self.images[self.rows[rows]]
