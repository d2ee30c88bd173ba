"""Networks as functions of their weights, for the methods that send synthetic sets (FedLAP, FedDM).

The network is in evaluation mode throughout: dropout is off, and batch norm uses the averages in the model
file, so that a set means the same to its client and to the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stages.methods.image_rows import ImageRows, pieces
from stages.methods.params.surrogates import LARGEST_PIXEL
from stages.nets.attention import plain_attention
from stages.nets.called import called
from stages.nets.state import trained

Weights = dict[str, Tensor]
_BETAS = (0.9, 0.99)  # of Adam: what stays of the mean slope and of its square from one step to the next
_TINY = 1e-12  # slopes of networks without normalisation are this small, too


@dataclass(frozen=True, eq=False)
class Examples:
    """A client's data: images that need not be in memory, and their labels, [n]."""

    images: ImageRows
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Tensor | slice) -> LabelledSet:
        return LabelledSet(self.images[rows], self.labels[rows])

    def rows_of(self, label: int) -> Tensor:
        return (self.labels == label).nonzero().flatten()

    def classes(self) -> list[int]:
        return [int(label) for label in torch.unique(self.labels)]


@dataclass(frozen=True, eq=False)
class LabelledSet(Examples):
    """Images as a network takes them, [n, c, h, w], and their labels."""

    images: Tensor

    def of_class(self, label: int) -> LabelledSet:
        return self.take(self.rows_of(label))


def start_weights(module: nn.Module) -> Weights:
    """The parameters that a set is matched at, apart from the module; it is put into evaluation mode."""
    module.eval()
    return {name: weight.detach().clone() for name, weight in trained(module).items()}


def last_layers(module: nn.Module, number: int | None) -> list[str]:
    """The trained parameters of the last so many layers that have any, by name; of all of them where it is None.

    Which layer is the last is a matter of the order in which the network names them: a classifier's comes last.
    """
    names = list(trained(module))
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
    kept = set(layers if number is None else layers[-number:])
    return [name for name in names if name.rpartition(".")[0] in kept]


def applied(module: nn.Module, weights: Mapping[str, Tensor], images: Tensor) -> Any:
    with plain_attention():
        return called(module, weights, images)


def mean_loss(
    module: nn.Module, weights: Mapping[str, Tensor], batch: LabelledSet, *, micro_batch: int | None = None
) -> Tensor:
    if micro_batch is not None and len(batch) > micro_batch:
        parts = [batch.take(rows) for rows in pieces(len(batch), micro_batch)]
        return torch.stack([mean_loss(module, weights, part) * (len(part) / len(batch)) for part in parts]).sum()
    return nn.functional.cross_entropy(applied(module, weights, batch.images), batch.labels)


def gradient(
    module: nn.Module,
    weights: Mapping[str, Tensor],
    batch: LabelledSet,
    *,
    graph: bool = False,
    micro_batch: int | None = None,
    names: Sequence[str] | None = None,
) -> Weights:
    """∇_w of the mean loss of the batch, of all weights or of those `names`.

    With `graph` it can itself be differentiated, with respect to the images.
    """
    return loss_and_gradient(module, weights, batch, graph=graph, micro_batch=micro_batch, names=names)[1]


def loss_and_gradient(
    module: nn.Module,
    weights: Mapping[str, Tensor],
    batch: LabelledSet,
    *,
    graph: bool = False,
    micro_batch: int | None = None,
    names: Sequence[str] | None = None,
) -> tuple[Tensor, Weights]:
    """With `micro_batch` the sum over pieces of the batch, which has no graph: it would hold all of them."""
    if micro_batch is not None and len(batch) > micro_batch:
        total = torch.zeros((), device=batch.labels.device)
        sums = {name: torch.zeros_like(weights[name]) for name in (weights if names is None else names)}
        for rows in pieces(len(batch), micro_batch):
            part = batch.take(rows)
            share = len(part) / len(batch)
            value, found = loss_and_gradient(module, weights, part, names=names)
            total = total + share * value
            sums = {name: sums[name].add_(found[name], alpha=share) for name in sums}
        return total, sums
    leaves = {name: weights[name].detach().requires_grad_() for name in (weights if names is None else names)}
    loss = mean_loss(module, {**weights, **leaves}, batch)
    found = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()), create_graph=graph), strict=True))
    return loss.detach(), found


def stepped(weights: Mapping[str, Tensor], direction: Mapping[str, Tensor], rate: float) -> Weights:
    return {name: weight - rate * direction[name] for name, weight in weights.items()}


def distance(weights: Mapping[str, Tensor], start: Mapping[str, Tensor]) -> float:
    """Euclidean, over all weights as one vector; in float64, so that a bound means what it says."""
    return length(weight.double() - start[name].double() for name, weight in weights.items())


def length(parts: Iterable[Tensor]) -> float:
    return float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(part.double()) for part in parts])))


class ImageDescent:
    """SGD with momentum on the images, or Adam. Pixels are never clamped: they are numbers that carry a gradient.

    How large the slope at a pixel is depends on the network: without normalisation, as in LeNet-5, it is hundreds of
    times smaller than in a ConvNet. Adam's steps do not (Kingma and Ba 2015, β = 0.9, 0.99).

    Written out: on small images torch's own optimiser took a twentieth of a step.
    """

    def __init__(self, images: Tensor, *, rate: float, momentum: float = 0.0, descent: str = "sgd") -> None:
        self.images = images.detach().clone().requires_grad_()
        self._rate, self._momentum, self._is_adam = rate, momentum, descent == "adam"
        self._speed, self._squares = torch.zeros_like(images), torch.zeros_like(images)
        self._losses: list[Tensor] = []

    def step(self, loss: Tensor, slope: Tensor) -> None:
        """`slope` is the loss's gradient with respect to the images."""
        self._losses.append(loss.detach())
        with torch.no_grad():
            if self._is_adam:
                mean, square, count = *_BETAS, len(self._losses)
                self._speed.lerp_(slope, 1 - mean)
                self._squares.lerp_(slope.square(), 1 - square)
                length = (self._squares / (1 - square**count)).sqrt_().add_(_TINY)
                self.images.addcdiv_(self._speed, length, value=-self._rate / (1 - mean**count))
            else:
                self._speed.mul_(self._momentum).add_(slope)
                self.images.add_(self._speed, alpha=-self._rate)

    def result(self, labels: Tensor) -> Matched:
        """Raises `ValueError` where the images are no images any more."""
        images = self.images.detach()
        largest = float(images.abs().max()) if images.numel() else 0.0
        if not largest <= LARGEST_PIXEL:
            raise ValueError(f"pixels grew to {largest:g}, beyond {LARGEST_PIXEL:g}")
        return Matched(LabelledSet(images, labels), [float(loss) for loss in self._losses])


@dataclass(frozen=True, eq=False)
class Matched:
    """A synthetic set, and how far it was from the data before each of its steps."""

    surrogate: LabelledSet
    losses: list[float]

    def keeping(self, labels: Sequence[int]) -> Matched:
        """With the images of these classes alone; all of them, if that leaves none."""
        rows = torch.isin(self.surrogate.labels, torch.tensor(list(labels), device=self.surrogate.labels.device))
        if not bool(rows.any()):
            return self
        return Matched(LabelledSet(self.surrogate.images[rows], self.surrogate.labels[rows]), self.losses)
