"""What a client's round of FedLAP and of FedDM is made of, and its steps against the bare passes that they need.

ConvNets of width 32. The bare matching step of FedLAP is a forward pass, a backward pass that keeps its graph, and a
backward pass through both to the images, by autograd, with the simplest function of the gradients in between. FedDM's
is one pass each way. Ours is the method itself, with one real gradient (or one look) given: targets, distance,
momentum and all; the goal is 1.3 times the bare passes. A look of FedDM-DP sends records through the network in
batches of one size in which each has a place of its own, so that no record's last bits depend on the others; the goal
is three times one plain pass. Whole rounds are compared to plain loops: a stand-in of ours for the public code of
FedLAP, whose radius search evaluates all data after each of a hundred steps (goal: a tenth of its time), and FedDM's
Algorithm 1 as it is printed, class by class (goal: half). Seconds are the processor's, on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import torch
from measuring import Row, Setting, compared, cpu_seconds, seconds, take_turns
from torch import Tensor

from stages.execution.torch_setup import set_up
from stages.methods import feddm, fedlap, fedlap_radius
from stages.methods.augmentation import drawn_transformation
from stages.methods.params.feddm import FedDmEncoding
from stages.methods.params.fedlap import FedLapEncoding
from stages.methods.private_gradients import SecretStreams
from stages.methods.surrogate_nets import (
    LabelledSet,
    Matched,
    distance,
    gradient,
    mean_loss,
    start_weights,
    stepped,
)
from stages.nets.build import build, initialise
from stages.nets.net import Net
from stages.nets.params import InputShape
from stages.privacy.mechanism import GaussianMechanism
from stages.privacy.streams import CONTEXT, SecretStream
from stages.registry import NETWORKS

TITLE = "Steps of synthetic sets"
_GOAL, _LOOK_GOAL, _FEDLAP_GOAL, _FEDDM_GOAL = 1.3, 3.0, 0.1, 0.5
# The side of the images, the records of a client, the network; real batches at each point, FedDM's looks.
_CASES: dict[str, tuple[int, int, dict[str, Any], int, int]] = {
    "8×8": (8, 300, {"arch": "convnet", "width": 32, "depth": 2}, 40, 1000),
    "28×28": (28, 1000, {"arch": "convnet", "width": 32, "depth": 3}, 8, 100),
}
_CLASSES, _PER_CLASS = 2, 10

_P = ParamSpec("_P")
_T = TypeVar("_T")


def measure(setting: Setting) -> Iterator[Row]:
    set_up("cpu")
    turns = 1 if setting.smoke else 9
    for name, (size, records, net, batches, looks) in list(_CASES.items())[: 1 if setting.smoke else None]:
        problem = _Problem(size, records, net)
        yield from problem.fedlap_steps(name, turns)
        yield from problem.feddm_steps(name, turns)
        yield from problem.fedlap_round(name, 1 if setting.smoke else batches)
        yield from problem.feddm_round(name, 10 if setting.smoke else looks)
        yield from problem.fedlap_against_a_plain_loop(name, 1 if setting.smoke else batches, 1 if setting.smoke else 3)
        yield from problem.feddm_against_a_plain_loop(name, 1 if setting.smoke else 10, 1 if setting.smoke else 5)
        yield from problem.private_looks(name, max(1, turns // 3))


class _Problem:
    """One client's data, the images to begin with, and a network."""

    def __init__(self, size: int, records: int, net: dict[str, Any]) -> None:
        self._module: Net = build(
            NETWORKS.from_mapping(net), InputShape(channels=1, height=size, width=size, num_classes=10)
        )
        generator = torch.Generator().manual_seed(0)
        initialise(self._module, generator)
        images = torch.randn((records, 1, size, size), generator=generator)
        self._data = LabelledSet(images, torch.arange(records) % _CLASSES)
        first = torch.randn((_CLASSES * _PER_CLASS, 1, size, size), generator=generator)
        self._first = LabelledSet(first, torch.arange(_CLASSES).repeat_interleave(_PER_CLASS))
        self._weights = start_weights(self._module)

    def fedlap_steps(self, name: str, turns: int) -> Iterator[Row]:
        params = FedLapEncoding(trajectories=1, points=1, batches=1, image_rate=1e-3)
        batch = LabelledSet(self._data.images[:256], self._data.labels[:256])
        real = gradient(self._module, self._weights, batch)

        def bare() -> None:
            for _ in range(params.image_steps):
                images = self._first.images.clone().requires_grad_()
                leaves = {key: weight.detach().requires_grad_() for key, weight in self._weights.items()}
                loss = mean_loss(self._module, leaves, LabelledSet(images, self._first.labels))
                found = torch.autograd.grad(loss, list(leaves.values()), create_graph=True)
                torch.autograd.grad(found, [images], list(real.values()))

        sides = {"ours": lambda: self._approximate(params, lambda *_: real), "bare": bare}
        taken = take_turns(sides, turns, clock=cpu_seconds)
        what = f"{name}: FedLAP, {params.image_steps} matching steps"
        yield compared(what, "bare passes", taken["ours"], taken["bare"], goal=_GOAL)

    def feddm_steps(self, name: str, turns: int) -> Iterator[Row]:
        params = FedDmEncoding(iterations=1, steps_per_look=10, image_rate=1e-3)
        wanted = self._means(params)(self._weights, 1)

        def bare() -> None:
            for _ in range(params.steps_per_look):
                images = self._first.images.clone().requires_grad_()
                torch.autograd.grad(feddm.embedded(self._module, self._weights, images).sum(), [images])

        sides = {"ours": lambda: self._matched(params, lambda *_: wanted), "bare": bare}
        taken = take_turns(sides, turns, clock=cpu_seconds)
        what = f"{name}: FedDM, {params.steps_per_look} steps"
        yield compared(what, "bare passes", taken["ours"], taken["bare"], goal=_GOAL)

    def fedlap_round(self, name: str, batches: int) -> Iterator[Row]:
        """As `encode` does it: the walk, then the radius."""
        params = FedLapEncoding(batches=batches)
        real = _Timed(fedlap.BatchGradient(self._module, self._data, params.batch_size, torch.Generator()))
        walk, radius = _Timed(self._approximate), _Timed(fedlap_radius.calibrated_radius)
        matched = walk(params, real)
        sample = LabelledSet(self._data.images[: params.radius_examples], self._data.labels[: params.radius_examples])
        _, curve = radius(self._module, matched.surrogate, sample, params=params, rate=0.01)
        steps = params.accesses * params.image_steps
        spent = {
            f"{params.accesses} real gradients": real.seconds,
            f"{steps} matching steps": walk.seconds - real.seconds,
            f"radius, {len(curve)} points": radius.seconds,
        }
        yield from _shares(f"{name}: FedLAP round", spent)

    def feddm_round(self, name: str, looks: int) -> Iterator[Row]:
        params = FedDmEncoding(iterations=looks)
        real, whole = _Timed(self._means(params)), _Timed(self._matched)
        whole(params, real)
        draw = _Timed(feddm.drawn_weights)
        for _ in range(looks):
            draw(self._weights, params.rho, torch.Generator())
        spent = {
            f"{looks} draws of weights": draw.seconds,
            f"{looks} real means": real.seconds,
            f"{looks} matching steps": whole.seconds - real.seconds - draw.seconds,
        }
        yield from _shares(f"{name}: FedDM round", spent)

    def private_looks(self, name: str, turns: int) -> Iterator[Row]:
        """One noised release over an expected batch of 256 against the same batch without clipping or noise."""
        rate = min(1.0, 256 / len(self._data))
        streams = SecretStreams(
            **{of: SecretStream(bytes(32), dict.fromkeys(CONTEXT, "bench"), of) for of in ("sampling", "noise")},
            examples=SecretStream(bytes(32), dict.fromkeys(CONTEXT, "bench"), "examples"),
        )
        private: dict[str, Any] = {"sampling_rate": rate, "streams": streams}
        noised = GaussianMechanism(clip_norm=1.0, noise_multiplier=1.0, expected_size=256)
        gradients = fedlap.NoisyGradient(self._module, self._data, mechanism=noised, **private)
        sums = GaussianMechanism(clip_norm=5.0, noise_multiplier=1.0, expected_size=1)
        means = feddm.NoisyMeans(self._module, self._data, num_classes=10, count_share=0.25, mechanism=sums, **private)
        point = fedlap.Point(self._weights, 1, drawn_transformation((), torch.Generator()))
        rows = torch.from_numpy(streams.sampling.at(1).bernoulli(rate, len(self._data))).nonzero().flatten()
        batch = LabelledSet(self._data.images[rows], self._data.labels[rows])

        def features() -> Tensor:
            with torch.no_grad():
                return feddm.embedded(self._module, self._weights, batch.images)

        taken = take_turns(
            {
                "gradient": lambda: gradients(point, None),
                "plain gradient": lambda: gradient(self._module, self._weights, batch),
                "means": lambda: means(self._weights, 1),
                "plain means": features,
            },
            turns,
            clock=cpu_seconds,
        )
        what = f"{name}: a look of FedLAP-DP, {len(batch)} records"
        yield compared(what, "its plain gradient", taken["gradient"], taken["plain gradient"])
        what = f"{name}: a look of FedDM-DP, {len(batch)} records"
        yield compared(what, "one plain forward pass", taken["means"], taken["plain means"], goal=_LOOK_GOAL)

    def fedlap_against_a_plain_loop(self, name: str, batches: int, turns: int) -> Iterator[Row]:
        params = FedLapEncoding(batches=batches, image_rate=1e-3, batch_size=128)
        sample = LabelledSet(self._data.images[: params.radius_examples], self._data.labels[: params.radius_examples])

        def ours() -> None:
            real = fedlap.BatchGradient(self._module, self._data, params.batch_size, torch.Generator())
            matched = self._approximate(params, real)
            fedlap_radius.calibrated_radius(self._module, matched.surrogate, sample, params=params, rate=0.01)

        taken = take_turns({"ours": ours, "plain": lambda: self._plain_fedlap(params)}, turns, clock=cpu_seconds)
        what = f"{name}: a FedLAP round, {params.accesses} batches and the radius"
        yield compared(what, "a plain loop", taken["ours"], taken["plain"], goal=_FEDLAP_GOAL)

    def _plain_fedlap(self, params: FedLapEncoding) -> float:
        images, labels = self._first.images.clone().requires_grad_(), self._first.labels
        optimiser = torch.optim.SGD([images], lr=params.image_rate, momentum=params.image_momentum)
        for _ in range(params.accesses):
            rows = torch.randperm(len(self._data))[: params.batch_size]
            real = gradient(self._module, self._weights, LabelledSet(self._data.images[rows], self._data.labels[rows]))
            for _ in range(params.image_steps):
                mine = gradient(self._module, self._weights, LabelledSet(images, labels), graph=True)
                loss = torch.zeros(())
                for key, part in mine.items():
                    a, b = (g.reshape(len(g), -1) if g.dim() > 1 else g[None] for g in (real[key], part))
                    loss = loss + (1 - torch.cosine_similarity(a, b, dim=1, eps=1e-6)).mean()
                    loss = loss + 0.1 * (a - b).square().sum()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        weights, best, radius = self._weights, float("inf"), 0.0
        for _ in range(params.radius_steps):
            weights = stepped(weights, gradient(self._module, weights, LabelledSet(images.detach(), labels)), 0.01)
            with torch.no_grad():
                found = float(mean_loss(self._module, weights, self._data))
            if found < best:
                best, radius = found, distance(weights, self._weights)
        return radius

    def feddm_against_a_plain_loop(self, name: str, looks: int, turns: int) -> Iterator[Row]:
        params = FedDmEncoding(iterations=looks, image_rate=1e-3)

        def plain() -> None:
            images = self._first.images.clone().requires_grad_()
            optimiser = torch.optim.SGD([images], lr=params.image_rate, momentum=params.image_momentum)
            for _ in range(looks):
                weights = feddm.drawn_weights(self._weights, params.rho, torch.Generator())
                loss = torch.zeros(())
                for label in range(_CLASSES):
                    mine = self._data.of_class(label).images
                    real = mine[torch.randperm(len(mine))[: params.batch_size]]
                    a = feddm.embedded(self._module, weights, real).mean(dim=0).detach()
                    b = feddm.embedded(self._module, weights, images[self._first.labels == label]).mean(dim=0)
                    loss = loss + (a - b).square().sum()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()

        taken = take_turns(
            {"ours": lambda: self._matched(params, self._means(params)), "plain": plain}, turns, clock=cpu_seconds
        )
        what = f"{name}: FedDM, {looks} looks"
        yield compared(what, "Algorithm 1 as printed", taken["ours"], taken["plain"], goal=_FEDDM_GOAL)

    def _approximate(self, params: FedLapEncoding, real: fedlap.RealGradient) -> Matched:
        return fedlap.approximate(
            self._module, self._first, real, params=params, rate=0.01, generator=torch.Generator(), report=_silent
        )

    def _matched(self, params: FedDmEncoding, real: feddm.RealMeans) -> Matched:
        return feddm.match(self._module, self._first, real, params=params, generator=torch.Generator(), report=_silent)

    def _means(self, params: FedDmEncoding) -> feddm.BatchMeans:
        return feddm.BatchMeans(self._module, self._data, params.batch_size, torch.Generator())


class _Timed:
    """A function that counts the processor's seconds that it takes."""

    def __init__(self, act: Callable[_P, _T]) -> None:
        self._act, self.seconds = act, 0.0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        start = cpu_seconds()
        found = self._act(*arguments, **named)
        self.seconds += cpu_seconds() - start
        return found


def _silent(done: int, total: int) -> None:
    pass


def _shares(name: str, spent: dict[str, float]) -> Iterator[Row]:
    whole = sum(spent.values())
    for part, value in {"all": whole, **spent}.items():
        yield Row(
            what=f"{name}, {part}", against="(its share)", ours=seconds(value), theirs=f"{value / whole:.0%}",
            raw={"seconds": value},
        )  # fmt: skip
