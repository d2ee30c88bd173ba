"""FedDM: federated learning by iterative distribution matching. Algorithm 1, Eq. 9 and 10.

The client's side, `match`; the server's is in `feddm_server`. Under DP the paper's Algorithm 2 clips the mean of a
batch, which protects nobody. The loss sees the data only through sums of [h(x); z(x)] by class, so here that vector is
clipped record by record, the sums of all classes are noised as one vector, and the rest is post-processing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stages.methods.params.feddm import FedDmEncoding
from stages.methods.private_gradients import SecretStreams
from stages.methods.surrogate_nets import (
    Examples,
    ImageDescent,
    LabelledSet,
    Matched,
    Weights,
    length,
    start_weights,
)
from stages.nets.called import called
from stages.nets.net import Net
from stages.privacy.mechanism import GaussianMechanism, clipped_length, noisy_mean

_LEAST_COUNT = 1.0  # a class that seems to have less than one record in a sample does not stand out
PLACES = 64  # of a batch under DP: more leave more places empty, fewer take more calls of the network

# The means of [h; z] of each class at these weights, by class; one that has none is absent. The number is the look's.
RealMeans = Callable[[Weights, int], dict[int, Tensor]]


def match(
    module: Net,
    start: LabelledSet,
    real_means: RealMeans,
    *,
    params: FedDmEncoding,
    generator: torch.Generator,
    report: Callable[[int, int], None],
    longest: float | None = None,
) -> Matched:
    """ClientUpdate: at weights drawn around the model's, move the images' mean features to the data's, by class.

    Where the data's [h; z] were clipped to the length `longest` the images' are, too: Eq. 9 compares like with like.
    """
    origin = start_weights(module)
    descent = ImageDescent(
        start.images, rate=params.image_rate, momentum=params.image_momentum, descent=params.image_descent
    )
    rows = {label: _rows_of(label, start.labels) for label in start.classes()}
    for look in range(1, params.iterations + 1):
        weights = drawn_weights(origin, params.rho, generator)
        wanted = {label: mean for label, mean in real_means(weights, look).items() if label in rows}
        if wanted:
            for _ in range(params.steps_per_look):
                descent.step(*_slope(module, weights, descent.images, wanted, rows, longest, params.micro_batch))
        report(look, params.iterations)
    return descent.result(start.labels)


def _slope(
    module: Net,
    weights: Weights,
    images: Tensor,
    wanted: Mapping[int, Tensor],
    rows: Mapping[int, slice | Tensor],
    longest: float | None,
    micro_batch: int | None,
) -> tuple[Tensor, Tensor]:
    """Eq. 9, and how it changes with the images.

    In pieces the features of all images come first, without a graph, and each piece is seen again with its own.
    """
    if micro_batch is None or len(images) <= micro_batch:
        found = shortened(embedded(module, weights, images), longest)
        loss, slope = _distance(found.detach(), wanted, rows)
        return loss, torch.autograd.grad(found, [images], slope)[0]
    parts = images.detach().split(micro_batch)
    with torch.no_grad():
        found = torch.cat([shortened(embedded(module, weights, part), longest) for part in parts])
    loss, slope = _distance(found, wanted, rows)
    slopes: list[Tensor] = []
    for part, away in zip(parts, slope.split(micro_batch), strict=True):
        leaf = part.clone().requires_grad_()
        slopes += torch.autograd.grad(shortened(embedded(module, weights, leaf), longest), [leaf], away)
    return loss, torch.cat(slopes)


def _rows_of(label: int, labels: Tensor) -> slice | Tensor:
    """Where the images of a class are: side by side, as `encode` puts them, they are seen without a copy."""
    rows = (labels == label).nonzero().flatten()
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows


def _distance(found: Tensor, wanted: Mapping[int, Tensor], rows: Mapping[int, slice | Tensor]) -> tuple[Tensor, Tensor]:
    """Eq. 9 over all classes, and how it changes with `found`. ‖Δh‖² + ‖Δz‖² is the squared length of both in one.

    The derivative is written out: on small images autograd over these few numbers took a twentieth of a step.
    """
    slope = torch.zeros_like(found)
    differences = []
    for label, mean in wanted.items():
        mine = found[rows[label]]
        differences.append(mine.mean(dim=0) - mean)
        slope[rows[label]] = 2 * differences[-1] / len(mine)
    return torch.stack(differences).square().sum(), slope


def drawn_weights(origin: Weights, rho: float, generator: torch.Generator) -> Weights:
    """P_w: w + g·min(1, ρ/‖g‖), g standard normal. ‖g‖ is about √d: a real network lands on the sphere."""
    away = {name: torch.randn(weight.shape, generator=generator).to(weight.device) for name, weight in origin.items()}
    scale = min(1.0, rho / length(away.values()))
    return {name: weight + scale * away[name] for name, weight in origin.items()}


def embedded(module: Net, weights: Weights, images: Tensor) -> Tensor:
    """[h_w(x); z_w(x)] of each image, side by side: the embedding and the logits, [n, d + classes]."""
    joined: Tensor = called(_Embedding(module), {f"net.{n}": w for n, w in weights.items()}, images)
    return joined


def shortened(found: Tensor, longest: float | None) -> Tensor:
    """Each row clipped to this length; its slope knows of it."""
    if longest is None:
        return found
    norms: Tensor = torch.linalg.vector_norm(found, dim=1, keepdim=True)
    return found * longest / norms.clamp(min=longest)


def embedded_size(module: Net) -> int:
    """The d + classes of `embedded`."""
    last: Any = module.classifier[-1]
    return int(last.in_features) + int(last.out_features)


class _Embedding(nn.Module):
    """A network that gives both of its last two layers."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        h = self.net.features(images)
        return torch.cat([h, self.net.head(h)], dim=1)


class BatchMeans:
    """Means over a random batch of each class (line 13)."""

    def __init__(
        self,
        module: Net,
        data: Examples,
        batch_size: int,
        generator: torch.Generator,
        *,
        micro_batch: int | None = None,
    ) -> None:
        self._module, self._data, self._size, self._generator = module, data, batch_size, generator
        self._micro_batch = micro_batch
        self._classes = {label: data.rows_of(label) for label in data.classes()}

    def __call__(self, weights: Weights, look: int) -> dict[int, Tensor]:  # noqa: ARG002  (as `RealMeans` has it)
        batches = {label: self._batch(rows) for label, rows in self._classes.items()}
        rows = torch.cat(list(batches.values()))
        with torch.no_grad():
            some = rows.split(self._micro_batch or len(rows))
            found = torch.cat([embedded(self._module, weights, self._data.images[part]) for part in some])
        parts = torch.split(found, [len(batch) for batch in batches.values()])
        return {label: part.mean(dim=0) for label, part in zip(batches, parts, strict=True)}

    def _batch(self, rows: Tensor) -> Tensor:
        if len(rows) <= self._size:
            return rows
        return rows[torch.randperm(len(rows), generator=self._generator)[: self._size].to(rows.device)]


class NoisyMeans:
    """Means from one noised release a look, over all classes at once (privacy contract, rule 13).

    A record of class c adds [h; z], clipped to C·√(1 − f²), and a count of C·f, both in block c of a vector that has a
    block for every class of the model: its length is at most C, whatever the record. All blocks get noise, also of
    classes that nobody has. Counts do not depend on the weights, so they are averaged over the looks so far. With
    `units`, which says whose each row is, people are drawn, and the sum of a person's vectors is clipped to C.
    """

    def __init__(
        self,
        module: Net,
        data: Examples,
        *,
        num_classes: int,
        sampling_rate: float,
        count_share: float,
        mechanism: GaussianMechanism,
        streams: SecretStreams,
        units: Tensor | None = None,
        size: int = PLACES,
    ) -> None:
        self._size = size
        self._module, self._data, self._num_classes, self._units = module, data, num_classes, units
        self._rate, self._share, self._mechanism, self._streams = sampling_rate, count_share, mechanism, streams
        self._places = np.full(len(data), -1, np.int64)  # of the records that were drawn so far
        self._counts = torch.zeros(num_classes, dtype=torch.float64)
        self._looks = 0

    def __call__(self, weights: Weights, look: int) -> dict[int, Tensor]:
        """Each look has its own coins and its own noise: to ask again for one would be another release."""
        data, clip = self._data, self._mechanism.clip_norm
        drawn_rows, people = self._streams.sample(look, self._rate, len(data), self._units)
        batch = data.take(drawn_rows.to(data.labels.device))
        total = clipped_class_sums(
            self._module, weights, batch, num_classes=self._num_classes, clip_norm=clip, count_share=self._share,
            places=self._places_of(drawn_rows, batch.images), people=people, size=self._size,
        )  # fmt: skip
        released = noisy_mean({"sums": total.numpy()}, self._mechanism, self._streams.noise.at(look))["sums"]
        sums = torch.from_numpy(released).double() * self._mechanism.expected_size
        self._looks += 1
        self._counts += sums[:, -1] / (clip * self._share)
        counts = self._counts / self._looks
        home = data.labels.device
        return {label: (sums[label, :-1] / counts[label]).float().to(home) for label in self.present()}

    def _places_of(self, rows: Tensor, images: Tensor) -> NDArray[np.int64]:
        numbers = rows.numpy()
        new = self._places[numbers] < 0
        self._places[numbers[new]] = places_of(images[torch.from_numpy(new).to(images.device)], self._size)
        found: NDArray[np.int64] = self._places[numbers]
        return found

    def present(self) -> list[int]:
        """The classes that stand out of the noise of the counts so far: a guess that the releases cover, and no more.

        The others are not matched: the mean of a class that nobody has would be noise by noise.
        """
        noise = self._mechanism.noise_multiplier / (self._share * max(1, self._looks) ** 0.5)
        counts = self._counts / max(1, self._looks)
        return [label for label in range(self._num_classes) if counts[label] >= max(_LEAST_COUNT, 3 * noise)]

    @property
    def longest(self) -> float:
        """To which a record's [h; z] is clipped."""
        return features_length(self._mechanism.clip_norm, self._share)


def features_length(clip_norm: float, count_share: float) -> float:
    """What is left of a record's length for its [h; z], beside its count."""
    return clipped_length(clip_norm) * float((1 - count_share**2) ** 0.5)


def clipped_class_sums(
    module: Net,
    weights: Weights,
    batch: LabelledSet,
    *,
    num_classes: int,
    clip_norm: float,
    count_share: float,
    places: NDArray[np.int64] | None = None,
    people: Tensor | None = None,
    size: int = PLACES,
) -> Tensor:
    """Σ over records of a vector of length ≤ C in the block of its class, [classes, d + classes + 1], in float64.

    Features that are not finite count as none, without a word (rule 11); the record's count stays. `places` are those
    of the images, where they are known. `people` says whose each record is, those of a person side by side: then it is
    the sum of all that one person adds, over all blocks, that is clipped to C, and its counts with it.
    """
    limit, features = clipped_length(clip_norm), features_length(clip_norm, count_share)
    if places is None:
        places = places_of(batch.images, size)
    found = embedded_alone(module, weights, batch.images, places, size)
    found = torch.where(found.isfinite().all(dim=1, keepdim=True), found, 0.0)
    norms = torch.linalg.vector_norm(found, dim=1, keepdim=True)
    counts = torch.full((len(batch), 1), limit * count_share, dtype=torch.float64)
    clipped = torch.cat([found * (features / norms.clamp(min=features)), counts], dim=1)
    total = torch.zeros(num_classes, embedded_size(module) + 1, dtype=torch.float64)
    if people is None:
        return total.index_add_(0, batch.labels.cpu(), clipped)
    labels = batch.labels.cpu()
    _, counts_of = people.unique_consecutive(return_counts=True)
    for rows in torch.arange(len(people)).split(counts_of.tolist()):
        own = torch.zeros_like(total).index_add_(0, labels[rows], clipped[rows])
        total += own * (limit / own.norm().clamp(min=limit))
    return total


def places_of(images: Tensor, size: int = PLACES) -> NDArray[np.int64]:
    """For each image its place in a batch of `size`, by a digest of its pixels: no other image has a say in it."""
    pixels = images.cpu().contiguous().numpy()
    digests = [hashlib.blake2b(image.tobytes(), digest_size=8).digest() for image in pixels]
    return np.array([int.from_bytes(digest, "little") % size for digest in digests], np.int64)


def embedded_alone(
    module: Net, weights: Weights, images: Tensor, places: NDArray[np.int64], size: int = PLACES
) -> Tensor:
    """[h; z] of each image, in float64, with bits that depend on the image and the weights alone.

    In a batch the last bits of a row depend on its place and on the size of the batch, and crafted weights make
    anything of last bits. If a record's place followed from how many come before it, one that leaves would move the
    features of all that come after. So all batches have one `size`, with zeros where nobody is, and a record is always
    in the place that its own pixels say; those with the same place go into different batches.
    """
    found = torch.zeros(len(images), embedded_size(module), dtype=torch.float64)
    order = np.argsort(places, kind="stable")
    firsts = np.searchsorted(places[order], np.arange(size))
    turns = np.empty(len(places), np.int64)
    turns[order] = np.arange(len(places)) - firsts[places[order]]
    for turn in range(int(turns.max(initial=-1)) + 1):
        rows = torch.from_numpy(np.flatnonzero(turns == turn))
        there = torch.from_numpy(places[turns == turn])
        batch = images.new_zeros(size, *images.shape[1:])
        batch[there.to(images.device)] = images[rows.to(images.device)]
        with torch.no_grad():
            found[rows] = embedded(module, weights, batch).cpu().double()[there]
    return found
