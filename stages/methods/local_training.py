"""Local SGD: what a client does with the model in one round, and where federated algorithms hook in.

An algorithm is a class with `correct`, which changes the gradients between the backward pass and the optimiser's
step, and `finish`, which says what the client keeps for its next round. In these two points FedAvg, FedProx, SCAFFOLD
and their kin differ on the client, and in nothing else. Any of them may take its gradients by SAM, before `correct`,
and bound its update by BLUR's penalty, after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from stages.methods.image_rows import ImageRows
from stages.methods.params.local_training import LocalTraining
from stages.methods.precision import passes_in
from stages.methods.sam import sam_gradient
from stages.nets.dropout import Dropout, set_dropout_generator
from stages.nets.state import exchanged, trained


class LocalAlgorithm(Protocol):
    """The client's side of a federated algorithm, for one round."""

    def correct(self, named: Mapping[str, nn.Parameter]) -> None:
        """Change the gradients of the parameters, in place, before the step is taken."""

    def finish(self, named: Mapping[str, nn.Parameter], num_steps: int, rate: float) -> dict[str, Tensor]:
        """The client's state for its next round, after `num_steps` steps of size `rate`; empty if it keeps none."""


@dataclass(frozen=True)
class LocalResult:
    """`update` is start minus end, for every parameter and every floating-point buffer; `state` what is kept."""

    update: dict[str, Tensor]
    state: dict[str, Tensor]
    num_steps: int


# The gradient of one step's batch: called, it sets those of the parameters at their present values and gives the loss,
# if it tells one. It may be called again, at other values, for the same batch and dropout (never under DP: that would
# be another release).
StepGradient = Callable[[], Tensor | None]


def train_locally(
    module: nn.Module,
    steps: Iterable[StepGradient],
    *,
    total: int,
    params: LocalTraining,
    algorithm: LocalAlgorithm,
    round: int,
    report: Callable[[int, int, Tensor | None], None],
) -> LocalResult:
    """Train `module`, which holds the weights of the round's start, in place: `total` steps, one for each gradient."""
    start = {name: tensor.detach().clone() for name, tensor in exchanged(module).items()}
    named = trained(module)
    rate = params.rate(round)
    optimiser = torch.optim.SGD(named.values(), lr=rate, **params.optimiser())  # type: ignore[arg-type]
    penalty = params.penalty(named)
    module.train()
    for step, gradient in enumerate(steps, start=1):
        if params.sam_rho is None:
            loss = gradient()
        else:
            loss = sam_gradient(module, gradient, rho=params.sam_rho, adaptive=params.adaptive_sam)
        algorithm.correct(named)
        if penalty is not None:
            penalty.correct(named)
        optimiser.step()
        report(step, total, loss)
    end = exchanged(module)
    update = {name: before - end[name].detach() for name, before in start.items()}
    return LocalResult(update, algorithm.finish(named, total, rate), total)


def batch_gradients(
    module: nn.Module,
    images: ImageRows,
    labels: Tensor,
    rows_of_steps: Iterable[Tensor],
    dropout_generator: torch.Generator,
    *,
    micro_batch: int | None = None,
    precision: str | None = None,
) -> Iterator[StepGradient]:
    """Plain gradients of the mean loss of each batch, of `micro_batch` of its examples at a time.

    Dropout draws on the module's device, a mask for each piece.
    """
    set_dropout_generator(module, dropout_generator)
    weights = tuple(trained(module).values())
    masks = dropout_generator if any(isinstance(layer, Dropout) for layer in module.modules()) else None
    for rows in rows_of_steps:
        yield _BatchGradient(module, weights, images, labels, rows, masks, micro_batch, precision)


@dataclass
class _BatchGradient:
    """Of the mean loss of `rows`. Called again, it drops the same units: two points of one and the same function."""

    module: nn.Module
    weights: tuple[nn.Parameter, ...]
    images: ImageRows
    labels: Tensor
    rows: Tensor
    dropout: torch.Generator | None
    micro_batch: int | None
    precision: str | None
    _masks: Tensor | None = field(default=None, init=False)

    def __call__(self) -> Tensor:
        if self.dropout is not None:
            if self._masks is None:
                self._masks = self.dropout.get_state()
            else:
                self.dropout.set_state(self._masks)
        for weight in self.weights:  # `module.zero_grad` looks for them in every layer, at every step
            weight.grad = None
        losses = [self._add(rows) for rows in self.rows.split(self.micro_batch or len(self.rows))]
        return sum(losses[1:], start=losses[0])

    def _add(self, rows: Tensor) -> Tensor:
        """Add the gradient of some of the batch's examples to what is there; returns their part of the mean loss."""
        images = self.images[rows]
        with passes_in(self.precision, images.device):
            scores = self.module(images)
        loss = nn.functional.cross_entropy(scores.float(), self.labels[rows])
        if len(rows) < len(self.rows):
            loss = loss * (len(rows) / len(self.rows))
        loss.backward()
        return loss.detach()


def refuse_pieces(module: nn.Module) -> None:
    """`ValueError` where a batch is more than the sum of its pieces."""
    for name, layer in module.named_modules():
        if layer.training and isinstance(layer, _BatchNorm):
            raise ValueError(
                f"{name} is a batch norm, whose statistics are those of a whole batch. Leave it out, or use a network "
                "with group norm (init-model --norm group)"
            )


def batches(
    size: int, num_examples: int, steps: int, generator: torch.Generator, device: torch.device | None = None
) -> Iterator[Tensor]:
    """Row numbers of each step's batch of `size`: a fresh permutation for each pass, the last batch as it falls.

    Drawn on the CPU, so that every device sees the same ones, and copied to `device` once a pass.
    """
    left = steps
    while left:
        order = torch.randperm(num_examples, generator=generator).to(device)
        for first in range(0, min(num_examples, left * size), size):
            yield order[first : first + size]
            left -= 1
