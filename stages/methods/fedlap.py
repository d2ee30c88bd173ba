"""FedLAP and FedLAP-DP: sharing loss approximations. Algorithms 1 and 2, Eq. 8 to 12 and 16 to 19.

The client's side is `approximate`, with `calibrated_radius` after it; the server's is `optimise`. Under DP the real
gradient is a `NoisyGradient` instead of a `BatchGradient`; nothing else differs (Eq. 12), and whatever follows from
noised gradients costs nothing more (Theorem 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stages.methods.augmentation import Transformation, drawn_transformation
from stages.methods.params.fedlap import FedLapEncoding
from stages.methods.private_gradients import SecretStreams
from stages.methods.private_local_training import example_loss
from stages.methods.row_cosines import RowCosines, flat, shaped
from stages.methods.surrogate_nets import (
    ImageDescent,
    LabelledSet,
    Matched,
    Weights,
    distance,
    gradient,
    loss_and_gradient,
    mean_loss,
    start_weights,
    stepped,
)
from stages.privacy.clipping import noisy_gradient
from stages.privacy.mechanism import GaussianMechanism

_TINY = 1e-12  # the norm of a gradient of zero
_LEAST = 1e-6  # as in the public code of dataset condensation: a row with hardly any gradient has no say
_STRIDE = 5  # steps from one look at the real loss to the next
_CHUNK = 512  # images whose gradient is taken at a time where all are meant


@dataclass(frozen=True)
class Point:
    """Where a real gradient is wanted: `access` counts them, from 1, by its place and not by how many went before."""

    weights: Weights
    access: int
    transformation: Transformation


# The gradient of the client's data at a point: of all classes (None), or of one.
RealGradient = Callable[[Point, int | None], Weights]


def approximate(
    module: nn.Module,
    start: LabelledSet,
    real_gradient: RealGradient,
    *,
    params: FedLapEncoding,
    rate: float,
    generator: torch.Generator,
    report: Callable[[int, int], None],
) -> Matched:
    """Algorithm 1, ClientExecute without its last line: the images, moved until their gradients are the data's.

    A trajectory that leaves the radius ends early. The accesses that it would have made are not made up for: their
    numbers stay unused.
    """
    origin = start_weights(module)
    descent = ImageDescent(start.images, rate=params.image_rate, momentum=params.image_momentum)
    groups: list[int | None] = list(start.classes()) if params.match == "class" else [None]
    for walk in range(params.trajectories):
        weights = origin
        for point in range(params.points):
            if params.model_steps and distance(weights, origin) >= params.radius:
                break
            for batch in range(params.batches):
                access = (walk * params.points + point) * params.batches + batch + 1
                here = Point(weights, access, drawn_transformation(params.augmentations, generator))
                _match(module, descent, start.labels, here, real_gradient, groups, params)
                report(access, params.accesses)
            for _ in range(params.model_steps):
                surrogate = LabelledSet(descent.images.detach(), start.labels)
                weights = stepped(weights, gradient(module, weights, surrogate), rate)
    return descent.result(start.labels)


def _match(
    module: nn.Module,
    descent: ImageDescent,
    labels: Tensor,
    point: Point,
    real_gradient: RealGradient,
    groups: Sequence[int | None],
    params: FedLapEncoding,
) -> None:
    """R_b steps of the images towards one real gradient (Eq. 9), or one of each class."""
    targets = [(group, GradientTarget(real_gradient(point, group), params)) for group in groups]
    for _ in range(params.image_steps):
        seen = LabelledSet(point.transformation(descent.images), labels)
        loss = torch.zeros((), device=labels.device)
        found: list[Tensor] = []
        slopes: list[Tensor] = []
        for group, target in targets:
            batch = seen if group is None else seen.of_class(group)
            mine = gradient(module, point.weights, batch, graph=True)
            away, slope = target.distance(mine)
            loss = loss + away
            found += mine.values()
            slopes += slope
        descent.step(loss, torch.autograd.grad(found, [descent.images], slopes)[0])


class GradientTarget:
    """L_dis to one real gradient, Eq. 16 to 19: Σ over layers and rows of 1 − cos, and λ times the squared difference.

    A row is what leads to one output of a layer; a bias, or a norm's scale, is one row.
    """

    def __init__(self, real: Mapping[str, Tensor], params: FedLapEncoding) -> None:
        self._real, self._weight = flat(list(real.values())), params.squared_weight
        self._angles: RowCosines | None = None
        if params.distance != "mse":
            heights = [len(part) if part.dim() > 1 else 1 for part in real.values()]
            lengths = [part.numel() // high for part, high in zip(real.values(), heights, strict=True)]
            rows = [(length, high) for length, high in zip(lengths, heights, strict=True) for _ in range(high)]
            shares = [1 / high if params.rows == "mean" else 1.0 for _, high in rows]
            self._angles = RowCosines(self._real, [length for length, _ in rows], shares, least=_LEAST)

    def distance(self, synthetic: Mapping[str, Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The distance, and how it changes with each number of the synthetic gradient, layer by layer."""
        parts = list(synthetic.values())
        found = flat(parts)
        if self._angles is None:
            total, slope = found.new_zeros(()), torch.zeros_like(found)
        else:
            total, slope = self._angles.distance(found)
        if self._weight:
            difference = found - self._real
            total = total + self._weight * difference.square().sum()
            slope = slope + 2 * self._weight * difference
        return total, shaped(slope, parts)


class BatchGradient:
    """∇L(w, B) of a random batch of the client's data: line «sample real data batches» of Algorithm 1.

    Where a batch is all there is and nothing transforms it, the gradient of a point is computed once.
    """

    def __init__(self, module: nn.Module, data: LabelledSet, batch_size: int, generator: torch.Generator) -> None:
        self._module, self._size, self._generator = module, batch_size, generator
        self._groups: dict[int | None, LabelledSet] = {None: data}
        self._known: dict[int | None, tuple[Weights, Weights]] = {}

    def __call__(self, point: Point, group: int | None) -> Weights:
        data = self._groups.get(group)
        if data is None and group is not None:
            data = self._groups.setdefault(group, self._groups[None].of_class(group))
        assert data is not None  # group None is always there
        if len(data) > self._size:
            rows = torch.randperm(len(data), generator=self._generator)[: self._size].to(data.labels.device)
            batch = LabelledSet(point.transformation(data.images[rows]), data.labels[rows])
            return gradient(self._module, point.weights, batch)
        known = self._known.get(group)
        seen = point.transformation(data.images)
        if known is not None and known[0] is point.weights and seen is data.images:
            return known[1]
        found = gradient(self._module, point.weights, LabelledSet(seen, data.labels))
        if seen is data.images:
            self._known[group] = (point.weights, found)
        return found


class NoisyGradient:
    """Algorithm 2: ∇L̃(w, D), a Poisson sample's clipped gradients, summed, noised once, divided by the expected size.

    The algorithm prints the noise inside the sum over the batch, √B times too much; one draw is meant.
    """

    def __init__(
        self,
        module: nn.Module,
        data: LabelledSet,
        *,
        sampling_rate: float,
        mechanism: GaussianMechanism,
        streams: SecretStreams,
    ) -> None:
        self._loss, self._data, self._rate = example_loss(module), data, sampling_rate
        self._mechanism, self._streams = mechanism, streams

    def __call__(self, point: Point, group: int | None) -> Weights:
        """Each access has its own coins and its own noise; asked for again it is another release, so never ask."""
        if group is not None:
            raise ValueError("one release covers all classes")
        data = self._data
        chosen = torch.from_numpy(self._streams.sampling.at(point.access).bernoulli(self._rate, len(data)))
        rows = chosen.nonzero().flatten().to(data.labels.device)
        return noisy_gradient(
            self._loss,
            point.weights,
            (point.transformation(data.images[rows]), data.labels[rows]),
            mechanism=self._mechanism,
            noise=self._streams.noise.at(point.access),
        )


@dataclass(frozen=True)
class RadiusPoint:
    """One point of Fig. 2, after `steps` steps on the synthetic set alone."""

    steps: int
    distance: float
    synthetic_loss: float
    real_loss: float


def calibrated_radius(
    module: nn.Module, surrogate: LabelledSet, real: LabelledSet, *, params: FedLapEncoding, rate: float
) -> tuple[float, list[RadiusPoint]]:
    """r_k of Fig. 2, and the curve: how far descent on the set goes until the loss on real data turns, at most r.

    The real loss is taken after every fifth step, then after each step around the least of these: it falls, turns once
    and rises, and costs far more than the steps on the set. The first step beyond r is looked at, too: a set that is
    good until there is good for all of r.
    """
    origin = start_weights(module)

    def walk(weights: Weights, steps: range, every: int) -> Iterator[tuple[RadiusPoint, Weights]]:
        for number in steps:
            away = distance(weights, origin)
            loss, direction = loss_and_gradient(module, weights, surrogate)
            if number % every == 0 or away > params.radius:
                with torch.no_grad():
                    real_loss = float(mean_loss(module, weights, real))
                if not math.isfinite(away + real_loss):  # the descent diverged
                    return
                yield RadiusPoint(number, away, float(loss), real_loss), weights
            if not away <= params.radius:
                return
            weights = stepped(weights, direction, rate)

    curve: dict[int, RadiusPoint] = {}
    least, corner, last = math.inf, (0, origin), (0, origin)
    for point, weights in walk(origin, range(params.radius_steps + 1), _STRIDE):
        curve[point.steps] = point
        if point.real_loss < least:
            least, corner = point.real_loss, last
        last = (point.steps, weights)
    first, weights = corner
    for point, _ in walk(weights, range(first, min(first + 2 * _STRIDE, params.radius_steps) + 1), 1):
        curve[point.steps] = point
    points = [curve[steps] for steps in sorted(curve)]
    return min(params.radius, min(points, key=lambda point: point.real_loss).distance), points


def layer_norms(module: nn.Module, real: LabelledSet) -> Tensor:
    """‖∇L(w, D)‖ of each parameter tensor at the model's weights, for Eq. 18."""
    weights = start_weights(module)
    total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for first in range(0, len(real), _CHUNK):
        batch = LabelledSet(real.images[first : first + _CHUNK], real.labels[first : first + _CHUNK])
        for name, part in gradient(module, weights, batch).items():
            total[name] += part * (len(batch) / len(real))
    return torch.stack([torch.linalg.vector_norm(part) for part in total.values()])


@dataclass(frozen=True, eq=False)
class Contribution:
    """A client's set as the server uses it; `norms` are its layer norms where gradients are calibrated (Eq. 18)."""

    surrogate: LabelledSet
    weight: float
    norms: Tensor | None = None


@dataclass(frozen=True)
class ServerStep:
    distance: float
    loss: float


def optimise(
    module: nn.Module, contributions: Sequence[Contribution], *, radius: float | None, steps: int, rate: float
) -> tuple[Weights, list[ServerStep]]:
    """Eq. 11: w ← w − η Σ (N_k/N) ∇L(w, S_k), until the next step would leave the radius; None: `steps` steps.

    The step that would leave is not taken, so the result is inside.
    """
    origin = weights = start_weights(module)
    trace: list[ServerStep] = []
    for _ in range(steps):
        direction = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        loss = 0.0
        for client in contributions:
            value, found = loss_and_gradient(module, weights, client.surrogate)
            loss += client.weight * float(value)
            for number, (name, part) in enumerate(found.items()):
                if client.norms is not None:
                    part = part * (client.norms[number] / (torch.linalg.vector_norm(part) + _TINY))
                direction[name] += client.weight * part
        further = stepped(weights, direction, rate)
        away = distance(further, origin)
        if radius is not None and not away <= radius:
            break
        weights = further
        trace.append(ServerStep(away, loss))
    return weights, trace
