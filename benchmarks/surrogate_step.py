"""What a client's round of FedLAP and of FedDM is made of, and its steps against the bare passes that they need.

The bare matching step of FedLAP is a forward pass, a backward pass that keeps its graph, and a backward pass through
both to the images, by autograd, with the simplest function of the gradients in between. FedDM's is one pass each way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from measuring import Row, Setting, compared, seconds, take_turns
from torch import Tensor

from stages.methods import feddm, fedlap
from stages.methods.params.feddm import FedDmEncoding
from stages.methods.params.fedlap import FedLapEncoding
from stages.methods.surrogate_nets import ImageDescent, LabelledSet, gradient, mean_loss, start_weights
from stages.nets.build import build, initialise
from stages.nets.net import Net
from stages.nets.params import InputShape, NetParams
from stages.torch_setup import set_up

ABOUT = "a client's round of FedLAP and of FedDM, part by part, and its steps against bare passes"
_GOAL = 1.3
_CASES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "ConvNet 32×2, 8×8": (8, 300, {"arch": "convnet", "width": 32, "depth": 2}),
    "ConvNet 32×3, 28×28": (28, 1000, {"arch": "convnet", "width": 32, "depth": 3}),
}
_CLASSES, _PER_CLASS = 2, 10


def measure(setting: Setting) -> Iterator[Row]:
    set_up("cpu")
    for name, (size, records, net) in list(_CASES.items())[: 1 if setting.quick else None]:
        module, data, first = _problem(size, records, net)
        turns = 2 if setting.quick else 9
        yield from _fedlap(name, module, data, first, turns)
        yield from _feddm(name, module, data, first, turns)


def _fedlap(name: str, module: Net, data: LabelledSet, first: LabelledSet, turns: int) -> Iterator[Row]:
    params = FedLapEncoding(image_rate=1.0)
    weights = start_weights(module)
    batch = LabelledSet(data.images[:256], data.labels[:256])
    real = gradient(module, weights, batch)
    target = fedlap.GradientTarget(real, params)
    descent = ImageDescent(first.images, rate=1e-3, momentum=0.5)

    def step() -> None:
        mine = gradient(module, weights, LabelledSet(descent.images, first.labels), graph=True)
        loss, slope = target.distance(mine)
        descent.step(loss, torch.autograd.grad(list(mine.values()), [descent.images], slope)[0])

    def bare() -> Tensor:
        images = first.images.clone().requires_grad_()
        leaves = {key: weight.detach().requires_grad_() for key, weight in weights.items()}
        loss = mean_loss(module, leaves, LabelledSet(images, first.labels))
        found = torch.autograd.grad(loss, list(leaves.values()), create_graph=True)
        return torch.autograd.grad(found, [images], list(real.values()))[0]

    times = 5
    taken = take_turns({"ours": _times(step, times), "bare": _times(bare, times)}, turns)
    yield compared(f"{name}: {times} matching steps", "bare passes", taken["ours"], taken["bare"], goal=_GOAL)
    sample = LabelledSet(data.images[: params.radius_examples], data.labels[: params.radius_examples])
    parts = take_turns(
        {
            "real gradient": lambda: gradient(module, weights, batch),
            "matching step": step,
            "radius": lambda: fedlap.calibrated_radius(module, first, sample, params=params, rate=0.01),
        },
        max(1, turns // 3),
    )
    counts = {"real gradient": params.accesses, "matching step": params.accesses * params.image_steps, "radius": 1}
    yield from _shares(f"{name}: FedLAP client-round", parts, counts)


def _feddm(name: str, module: Net, data: LabelledSet, first: LabelledSet, turns: int) -> Iterator[Row]:
    params = FedDmEncoding()
    origin = start_weights(module)
    generator = torch.Generator().manual_seed(0)
    means = feddm.BatchMeans(module, data, params.batch_size, generator)
    weights = feddm.drawn_weights(origin, params.rho, generator)
    wanted = means(weights, 1)
    descent = ImageDescent(first.images, rate=1e-3, momentum=0.5)
    rows = {label: first.labels == label for label in first.classes()}

    def step() -> None:
        found = feddm.embedded(module, weights, descent.images)
        differences = [mean - found[rows[label]].mean(dim=0) for label, mean in wanted.items()]
        loss = torch.stack(differences).square().sum()
        descent.step(loss, torch.autograd.grad(loss, [descent.images])[0])

    def bare() -> Tensor:
        images = first.images.clone().requires_grad_()
        return torch.autograd.grad(feddm.embedded(module, weights, images).sum(), [images])[0]

    times = 10
    taken = take_turns({"ours": _times(step, times), "bare": _times(bare, times)}, turns)
    yield compared(f"{name}: FedDM, {times} steps", "bare passes", taken["ours"], taken["bare"], goal=_GOAL)
    parts = take_turns(
        {
            "weights drawn": lambda: feddm.drawn_weights(origin, params.rho, generator),
            "real features": lambda: means(weights, 1),
            "matching step": step,
        },
        max(1, turns // 3),
    )
    yield from _shares(f"{name}: FedDM client-round", parts, dict.fromkeys(parts, params.iterations))


def _shares(name: str, parts: dict[str, list[float]], counts: dict[str, int]) -> Iterator[Row]:
    """The seconds of a round with the paper's numbers, from the time of one of each."""
    spent = {part: min(taken) * counts[part] for part, taken in parts.items()}
    whole = sum(spent.values())
    for part, value in spent.items():
        yield Row(
            what=f"{name}, {part} × {counts[part]}", against="(its share)", ours=seconds(value),
            theirs=f"{value / whole:.0%}", raw={"seconds": value},
        )  # fmt: skip


def _times(act: Callable[[], object], times: int) -> Callable[[], None]:
    def acts() -> None:
        for _ in range(times):
            act()

    return acts


def _problem(size: int, records: int, net: dict[str, Any]) -> tuple[Net, LabelledSet, LabelledSet]:
    module = build(NetParams(**net), InputShape(channels=1, height=size, width=size, num_classes=10))
    generator = torch.Generator().manual_seed(0)
    initialise(module, generator)
    images = torch.randn((records, 1, size, size), generator=generator)
    labels = torch.arange(records) % _CLASSES
    first = torch.randn((_CLASSES * _PER_CLASS, 1, size, size), generator=generator)
    return (
        module,
        LabelledSet(images, labels),
        LabelledSet(first, torch.arange(_CLASSES).repeat_interleave(_PER_CLASS)),
    )
