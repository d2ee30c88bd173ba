"""TOFU's encoder: the paper's 1,000 steps of Adam against ours, one and the same update, cosine against seconds.

The goal is a quarter of the paper's time, at the paper's cosine or a higher one. Seconds are those of the processor, on
one thread, one turn. At full size VGG-13 on CIFAR-10 besides. The picture goes to runs/tofu-encoding.png; more of it in
[tofu](tofu.md).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from measuring import ROOT, SHARED_DATA, Row, Setting, seconds

from artifacts.formats import tensors_file
from fedsynth_cli.app import run as command
from stages.execution.torch_setup import set_up
from stages.methods import tofu
from stages.methods.params.tofu import TofuEncoding
from stages.models.file import network_of, read_model, to_module
from stages.pictures.render import plain_style, png_bytes

TITLE = "TOFU's encoder against the paper's"
_PAPER = {"solver": "paper", "objective": "whole"}


@dataclass(frozen=True)
class _Encoding:
    """One encoding: the cosine that the decoder gets, and the search's cosines with their times."""

    cosine: float
    taken: float
    curve: list[tuple[float, float]]

    def __str__(self) -> str:
        return f"{self.cosine:.3f} in {seconds(self.taken)}"


class _Update:
    """A client's update and the model that it is for: untrained, or after some epochs on another client's data."""

    def __init__(
        self, run: Path, source: list[str], arch: list[str], training: list[str], after: Sequence[str] = ()
    ) -> None:
        model, update = run / "public/model-0000.safetensors", run / "clients/00/private/update-0001.safetensors"
        data, other = (run / f"clients/{client}/private/data.parquet" for client in ("00", "01"))
        _do(["partition", *source, "--scheme", "iid", "-o", run])
        _do(["init-model", "--arch", *arch, "--like", run / "public/test.parquet", "-o", model])
        if after:
            before, message = run / "clients/01/private/u.safetensors", run / "clients/01/outbox/m.safetensors"
            later = run / "server/private/model-0001.safetensors"
            _do(["train-client", model, other, *after, "-o", before])
            _do(["encode", model, before, "-o", message])
            _do(["decode", model, message, "--apply", "-o", later])
            model = later
        _do(["train-client", model, data, *training, "-o", update])
        start = read_model(model)
        _, self._shape = network_of(start.metadata, model)
        self._module = to_module(start, set_up("cpu"))
        change = tensors_file.read(update).tensors
        self._wanted = {n: torch.from_numpy(change[n].copy()) for n, _ in self._module.named_parameters()}

    def encoded(self, **params: object) -> _Encoding:
        chosen = TofuEncoding.from_mapping(params)
        random, shape = torch.Generator().manual_seed(0), self._shape
        sizes = ((shape.channels, shape.height, shape.width), (shape.num_classes,), ())
        images, labels, free = (torch.randn((chosen.images, *size), generator=random) for size in sizes)
        begun = images if chosen.solver == "paper" else images / 2
        curve: list[tuple[float, float]] = []
        start = time.process_time()
        found = tofu.encode(
            self._module, self._wanted, (begun, labels, free), params=chosen, sent=lambda seen: seen,
            report=lambda _done, _of, cosine: curve.append((time.process_time() - start, cosine)),
        )  # fmt: skip
        return _Encoding(found.cosine, time.process_time() - start, curve)


def _do(words: Sequence[str | Path]) -> None:
    if command([*map(str, words), "--quiet"]):
        raise RuntimeError(f"{words[0]} failed")


def measure(setting: Setting) -> Iterator[Row]:
    if setting.smoke:
        source = ["digits", "--clients", "5"]
        small = _Update(setting.folder / "digits", source, ["mlp"], ["--local-steps", "5"])
        yield _row("mlp on digits, 4 images, 20 steps", small.encoded(images=4, iterations=80, **_PAPER),
                   small.encoded(images=4, iterations=20), goal=None)  # fmt: skip
        return
    if not SHARED_DATA.is_dir():
        return
    curves: dict[str, list[tuple[str, _Encoding]]] = {}
    source = ["fashion-mnist", "--root", str(SHARED_DATA), "--clients", "10"]
    training = ["--local-epochs", "1", "--batch-size", "64", "--learning-rate", "0.1"]
    lenet = _Update(setting.folder / "fashion", source, ["lenet5"], training)
    paper = lenet.encoded(images=64, **_PAPER)
    ours = {steps: lenet.encoded(images=64, iterations=steps) for steps in (60, 125, 250)}
    curves["LeNet-5, FashionMNIST, 64 images"] = [
        ("the paper's 1,000 steps", paper),
        *((f"{n} steps, ours", one) for n, one in ours.items()),
    ]
    for steps, one in ours.items():
        yield _row(f"LeNet-5, 64 images, {steps} steps", paper, one, goal=0.25)
    for images in (16, 32, 128):
        for steps in (60, 125):
            yield _alone(f"LeNet-5, {images} images, {steps} steps", lenet.encoded(images=images, iterations=steps))
    if setting.full:
        yield from _trained(setting, source, training)
        yield from _vgg(setting, curves)
    _draw(curves)


def _trained(setting: Setting, source: list[str], training: list[str]) -> Iterator[Row]:
    """LeNet-5 after epochs on the data of another client, where its softmax is saturated."""
    for epochs in (1, 5, 20):
        after = ["--local-epochs", str(epochs), *training[2:]]
        lenet = _Update(setting.folder / f"after-{epochs}", source, ["lenet5"], training, after)
        paper, ours = lenet.encoded(images=64, **_PAPER), lenet.encoded(images=64)
        yield _row(f"LeNet-5 after {epochs} epochs, 64 images, 125 steps", paper, ours, goal=0.25)


def _vgg(setting: Setting, curves: dict[str, list[tuple[str, _Encoding]]]) -> Iterator[Row]:
    source = [str(SHARED_DATA / "cifar10"), "--clients", "5"]
    training = ["--local-steps", "10", "--batch-size", "64", "--learning-rate", "0.05"]
    vgg = _Update(setting.folder / "cifar", source, ["vgg13"], training)
    paper, one = vgg.encoded(images=32, iterations=100, **_PAPER), vgg.encoded(images=32, iterations=20)
    curves["VGG-13, CIFAR-10, 32 images"] = [("the paper's, cut to 100 steps", paper), ("20 steps, ours", one)]
    yield _row("VGG-13, 32 images, 20 steps by the paper's 100", paper, one, goal=0.25)


def _row(what: str, paper: _Encoding, ours: _Encoding, *, goal: float | None) -> Row:
    return Row(
        what=what,
        against="the paper's Adam",
        ours=str(ours),
        theirs=str(paper),
        ratio=ours.taken / paper.taken,
        goal=goal,
        counts=ours.cosine >= paper.cosine,
        raw={"cosines": [ours.cosine, paper.cosine], "curves": [ours.curve, paper.curve]},
    )


def _alone(what: str, ours: _Encoding) -> Row:
    raw = {"cosine": ours.cosine, "seconds": ours.taken}
    return Row(what=what, ours=str(ours), raw=raw)


def _draw(curves: dict[str, list[tuple[str, _Encoding]]]) -> None:
    from matplotlib.figure import Figure

    with plain_style():
        figure = Figure(figsize=(9.6, 3.8), layout="constrained")
        for axes, (title, lines) in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves.items(), strict=True):
            for (label, one), colour in zip(lines, ("#555555", "#1f5fa8", "#b5652b", "#3a7d44"), strict=False):
                axes.plot(*zip(*one.curve, strict=True), color=colour, label=label, linewidth=1.3)
                axes.plot(one.taken, one.cosine, "o", color=colour, markersize=5)
            axes.set(xlabel="processor seconds", ylabel="cosine to the update", xscale="log", title=title)
            axes.grid(alpha=0.3)
            axes.legend(loc="lower right", frameon=False)
        picture = png_bytes(figure)
    path = ROOT / "runs" / "tofu-encoding.png"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(picture)
