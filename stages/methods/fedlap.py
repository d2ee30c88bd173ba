"""FedLAP and FedLAP-DP: sharing loss approximations. Algorithms 1 and 2, Eq. 8 to 12 and 16 to 19.

The client's side: `approximate`; how far the set is good is in `fedlap_radius`, the server's side in `fedlap_server`.
Under DP the real gradient is a `NoisyGradient` instead of a `BatchGradient`; nothing else differs (Eq. 12), and
whatever follows from noised gradients costs nothing more (Theorem 3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stages.methods.augmentation import Transformation, drawn_transformation, unchanged
from stages.methods.params.fedlap import FedLapEncoding
from stages.methods.private_gradients import SecretStreams
from stages.methods.private_local_training import example_loss
from stages.methods.row_cosines import RowCosines, flat, shaped
from stages.methods.surrogate_nets import (
    Examples,
    ImageDescent,
    LabelledSet,
    Matched,
    Weights,
    distance,
    gradient,
    last_layers,
    start_weights,
    stepped,
)
from stages.privacy.clipping import noisy_gradient
from stages.privacy.mechanism import GaussianMechanism

_LEAST = 1e-6  # as in the public code of dataset condensation: a row with hardly any gradient has no say


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
    beginning: Callable[[], Weights] | None = None,
) -> Matched:
    """Algorithm 1, ClientExecute without its last line: the images, moved until their gradients are the data's.

    A trajectory that leaves the radius ends early. The accesses that it would have made are not made up for: their
    numbers stay unused. `beginning` gives the weights at which each walk begins; without it they are the module's.
    """
    descent = ImageDescent(
        start.images, rate=params.image_rate, momentum=params.image_momentum, descent=params.image_descent
    )
    groups: list[int | None] = list(start.classes()) if params.match == "class" else [None]
    own, names = start_weights(module), last_layers(module, params.last_layers)
    looks = Looks(real_gradient, own, groups)
    for walk in range(params.trajectories):
        origin = weights = own if beginning is None else beginning()
        for point in range(params.points):
            if params.model_steps and distance(weights, origin) >= params.radius:
                break
            first = (walk * params.points + point) * params.batches + 1
            accesses = range(first, first + params.batches)
            # Gradients can be averaged where the images were transformed alike: one transformation for all of them.
            together = [accesses] if params.targets == "mean" else [range(a, a + 1) for a in accesses]
            for some in together:
                transformation = drawn_transformation(params.augmentations, generator)
                found = looks.mean(weights, some, transformation, keep=params.targets == "mean")
                targets = {group: GradientTarget(real, params) for group, real in found.items()}
                for access in some:
                    for _ in range(params.image_steps):
                        _step(
                            module, descent, start.labels, weights, transformation, targets, names, params.micro_batch
                        )
                    report(access, params.accesses)
            for _ in range(params.model_steps if point + 1 < params.points else 0):
                seen = drawn_transformation(params.augmentations, generator)(descent.images.detach())
                batch = LabelledSet(seen, start.labels)
                downhill = gradient(module, weights, batch, micro_batch=params.micro_batch)
                weights = stepped(weights, downhill, rate)
    return descent.result(start.labels)


def _step(
    module: nn.Module,
    descent: ImageDescent,
    labels: Tensor,
    weights: Weights,
    transformation: Transformation,
    targets: Mapping[int | None, GradientTarget],
    names: Sequence[str],
    micro_batch: int | None,
) -> None:
    """One of the R_b steps of the images towards one real gradient (Eq. 9), or one of each class."""
    if micro_batch is not None and len(labels) > micro_batch:
        images = descent.images.detach()
        descent.step(*_slope_in_pieces(module, images, labels, weights, transformation, targets, names, micro_batch))
        return
    seen = LabelledSet(transformation(descent.images), labels)
    loss = torch.zeros((), device=labels.device)
    found: list[Tensor] = []
    slopes: list[Tensor] = []
    for group, target in targets.items():
        batch = seen if group is None else seen.of_class(group)
        mine = gradient(module, weights, batch, graph=True, names=names)
        away, slope = target.distance(mine)
        loss = loss + away
        found += mine.values()
        slopes += slope
    descent.step(loss, torch.autograd.grad(found, [descent.images], slopes)[0])


def _slope_in_pieces(
    module: nn.Module,
    images: Tensor,
    labels: Tensor,
    weights: Weights,
    transformation: Transformation,
    targets: Mapping[int | None, GradientTarget],
    names: Sequence[str],
    micro_batch: int,
) -> tuple[Tensor, Tensor]:
    """The distance and its slope, with the graph of `micro_batch` images in memory at a time.

    How the distance changes with the set's gradient is known once that is summed; after that the share of each piece
    in it is differentiated alone. So each image is seen twice.
    """
    loss, slope = torch.zeros((), device=labels.device), torch.zeros_like(images)
    for group, target in targets.items():
        mine = (torch.ones_like(labels) if group is None else labels == group).nonzero().flatten()
        whole = LabelledSet(transformation(images[mine]), labels[mine])
        away, slopes = target.distance(gradient(module, weights, whole, micro_batch=micro_batch, names=names))
        loss = loss + away
        for rows in mine.split(micro_batch):
            some = images[rows].requires_grad_()
            part = gradient(module, weights, LabelledSet(transformation(some), labels[rows]), graph=True, names=names)
            share = len(rows) / len(mine)
            slope[rows] += torch.autograd.grad(list(part.values()), [some], [share * one for one in slopes])[0]
    return loss, slope


class Looks:
    """The mean of real gradients that were taken at the same weights and of images transformed alike, by class.

    Each look is made once, and under DP each is one release, whatever is made of it afterwards. Every walk begins at
    the model's weights: with `keep` the looks of earlier walks there count, too.
    """

    def __init__(self, real: RealGradient, origin: Weights, groups: Sequence[int | None]) -> None:
        self._real, self._origin, self._groups = real, origin, groups
        self._sums: dict[int | None, Weights] = {}
        self._count = 0

    def mean(
        self, weights: Weights, accesses: Sequence[int], transformation: Transformation, *, keep: bool
    ) -> dict[int | None, Weights]:
        kept = keep and weights is self._origin and transformation is unchanged
        sums = self._sums if kept else {}
        for access in accesses:
            here = Point(weights, access, transformation)
            for group in self._groups:
                found, before = self._real(here, group), sums.get(group)
                sums[group] = found if before is None else {n: part + before[n] for n, part in found.items()}
        count = len(accesses)
        if kept:
            count = self._count = self._count + count
        if count == 1:
            return dict(sums)
        return {group: {name: part / count for name, part in total.items()} for group, total in sums.items()}


class GradientTarget:
    """L_dis to one real gradient, Eq. 16 to 19: Σ over layers and rows of 1 − cos, and λ times the squared difference.

    A row is what leads to one output of a layer; a bias, or a norm's scale, is one row.
    """

    def __init__(self, real: Mapping[str, Tensor], params: FedLapEncoding) -> None:
        self._real = flat(list(real.values()))
        # λ of Eq. 16; Eq. 19 is the squared difference alone.
        self._weight = 1.0 if params.distance == "mse" else (params.mse_weight or 0.0)
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

    Where a batch is all there is and nothing transforms it, the gradient of a point is computed once; that of the
    first point, where all walks begin, once for all of them.
    """

    def __init__(
        self,
        module: nn.Module,
        data: Examples,
        batch_size: int,
        generator: torch.Generator,
        *,
        names: Sequence[str] | None = None,
        micro_batch: int | None = None,
    ) -> None:
        self._module, self._data, self._size, self._generator = module, data, batch_size, generator
        self._names, self._micro_batch = names, micro_batch
        self._groups: dict[int | None, Tensor] = {None: torch.arange(len(data), device=data.labels.device)}
        self._known: dict[int | None, list[tuple[Weights, Weights]]] = {}

    def __call__(self, point: Point, group: int | None) -> Weights:
        if group is not None and group not in self._groups:
            self._groups[group] = self._data.rows_of(group)
        rows = self._groups[group]
        if len(rows) > self._size:
            drawn = torch.randperm(len(rows), generator=self._generator)[: self._size].to(rows.device)
            return self._gradient(point, rows[drawn])
        if point.transformation is not unchanged:
            return self._gradient(point, rows)
        known = self._known.setdefault(group, [])
        for weights, found in known:
            if weights is point.weights:
                return found
        found = self._gradient(point, rows)
        known[1:] = [(point.weights, found)]  # beside the first
        return found

    def _gradient(self, point: Point, rows: Tensor) -> Weights:
        batch = self._data.take(rows)
        seen = LabelledSet(point.transformation(batch.images), batch.labels)
        return gradient(self._module, point.weights, seen, micro_batch=self._micro_batch, names=self._names)


class NoisyGradient:
    """Algorithm 2: ∇L̃(w, D), a Poisson sample's clipped gradients, summed, noised once, divided by the expected size.

    The algorithm prints the noise inside the sum over the batch, √B times too much; one draw is meant. With `units`,
    which says whose each row is, people are drawn, and the sum of a person's gradients is clipped. With `names` the
    gradient of these weights is all that is looked at, clipped and noised: fewer coordinates, so less noise in all.
    """

    def __init__(
        self,
        module: nn.Module,
        data: Examples,
        *,
        sampling_rate: float,
        mechanism: GaussianMechanism,
        streams: SecretStreams,
        units: Tensor | None = None,
        names: Sequence[str] | None = None,
        micro_batch: int | None = None,
    ) -> None:
        self._names = names
        self._loss, self._data, self._rate, self._units = example_loss(module), data, sampling_rate, units
        self._mechanism, self._streams, self._micro_batch = mechanism, streams, micro_batch

    def __call__(self, point: Point, group: int | None) -> Weights:
        """Each access has its own coins and its own noise; asked for again it is another release, so never ask."""
        if group is not None:
            raise ValueError("one release covers all classes")
        data = self._data
        drawn_rows, people = self._streams.sample(point.access, self._rate, len(data), self._units)
        rows = drawn_rows.to(data.labels.device)
        names = point.weights if self._names is None else self._names
        still = {name: weight for name, weight in point.weights.items() if name not in names}

        def loss(own: Weights, image: Tensor, label: Tensor) -> Tensor:
            return self._loss({**still, **own}, image, label)

        return noisy_gradient(
            loss,
            {name: point.weights[name] for name in names},
            (point.transformation(data.images[rows]), data.labels[rows]),
            mechanism=self._mechanism,
            noise=self._streams.noise.at(point.access),
            chunk_size=self._micro_batch,
            people=people,
        )
