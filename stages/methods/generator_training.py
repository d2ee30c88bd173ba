"""Training a generator: the loop that all families share.

Nothing outlives a step but its state: batch, noise and dropout of step t come from a generator that is made for step t
alone. So a training that was killed goes on from any saved state and ends where it would have ended, and a training of
fewer steps is the beginning of a longer one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from stages.methods.draws import Draw, Draws, drawn
from stages.methods.image_rows import ImageRows
from stages.methods.params.generator import Optimisation
from stages.methods.precision import passes_in

Weights = Mapping[str, Tensor]
Losses = Callable[[Weights, Tensor, Tensor, Draws], Tensor]


@dataclass(frozen=True, kw_only=True)
class Part:
    """Weights that are trained together, those named `name.…`, and their loss.

    `losses(weights, images, labels, draws)` gives one loss for each example, and the loss of one depends on no other.
    `sees_images` is false where it reads labels only: these need not be private ones.
    """

    name: str
    losses: Losses
    betas: tuple[float, float] = (0.9, 0.999)
    sees_images: bool = True


class Generator(Protocol):
    """A class-conditional family.

    `parts` are updated in turn within a step. `kept` has the names and shapes, without memory, of what sampling needs.
    """

    @property
    def parts(self) -> Sequence[Part]: ...

    @property
    def draws(self) -> Mapping[str, Draw]: ...

    @property
    def kept(self) -> Mapping[str, Tensor]: ...

    def initial(self, generator: torch.Generator) -> dict[str, Tensor]:
        """The first weights of all parts."""

    def finished(self, weights: Weights, images: ImageRows, labels: Tensor, /) -> dict[str, Tensor]:
        """What sampling needs of the trained weights, `kept` with its values: no more goes into the file."""

    def sample(self, *args: Any, **options: Any) -> Tensor:
        """Images in [−1, 1]: `sample(weights, labels, generator, report=…)`, one for each label.

        A family with samplers also takes `sampler` and `steps`. All noise comes from `generator`, on the CPU.
        """


@runtime_checkable
class MeanMatching(Generator, Protocol):
    """A family that looks at the images once, by sums over each class, and is trained on these alone.

    No part of it sees images. `class_sums` has length ≤ `limit` for one record, or for all of one person.
    """

    def class_sums(
        self, weights: Weights, images: ImageRows, labels: Tensor, *, limit: float, people: Tensor | None
    ) -> Tensor: ...

    def targets(self, sums: Tensor, *, limit: float, noise: float) -> dict[str, Tensor]:
        """Weights that are not trained, from the sums, each with noise of this standard deviation."""


@dataclass(frozen=True)
class TrainingState:
    """All there is after `step` steps: weights, Adam's two moments, and the running average (empty if there is none).

    The tensors are changed in place by the steps that follow.
    """

    step: int
    weights: dict[str, Tensor]
    means: dict[str, Tensor]
    squares: dict[str, Tensor]
    average: dict[str, Tensor]

    @property
    def result(self) -> dict[str, Tensor]:
        return self.average or self.weights


def first_state(weights: Mapping[str, Tensor], params: Optimisation) -> TrainingState:
    return TrainingState(
        0,
        dict(weights),
        {name: torch.zeros_like(tensor) for name, tensor in weights.items()},
        {name: torch.zeros_like(tensor) for name, tensor in weights.items()},
        {name: tensor.clone() for name, tensor in weights.items()} if params.ema_decay else {},
    )


# Of one part in one step: gradient(part, all weights, names of the part's own) → their gradients, and the loss, if any.
PartGradient = Callable[[Part, Weights, Sequence[str]], tuple[Sequence[Tensor], Tensor | None]]


def train(
    family: Generator,
    *,
    params: Optimisation,
    start: TrainingState,
    num_steps: int,
    gradients: Callable[[int], PartGradient],
    after_step: Callable[[TrainingState, Mapping[str, Tensor]], None],
) -> TrainingState:
    """Go on from `start` to `num_steps`. `gradients(t)` draws the batch of step t, and knows the data.

    `after_step` receives the state and the loss of each part that has one.
    """
    weights = {name: tensor.detach().requires_grad_(True) for name, tensor in start.weights.items()}
    state = TrainingState(start.step, weights, start.means, start.squares, start.average)
    optimisers = [_optimiser(part, state, params) for part in family.parts]
    for step in range(start.step + 1, num_steps + 1):
        gradient_of = gradients(step)
        losses = {}
        for part, (optimiser, mine) in zip(family.parts, optimisers, strict=True):
            found, loss = gradient_of(part, weights, list(mine))
            for weight, gradient in zip(mine.values(), found, strict=True):
                weight.grad = gradient
            optimiser.step()
            if loss is not None:
                losses[part.name] = loss
        average_weights(state.average, weights, ema_keep(step, params.ema_decay))
        state = TrainingState(step, weights, state.means, state.squares, state.average)
        after_step(state, losses)
    return state


def batch_gradients(
    family: Generator,
    images: ImageRows,
    labels: Tensor,
    batch_size: int,
    generator_of: Callable[[int], torch.Generator],
    *,
    micro_batch: int | None = None,
    precision: str | None = None,
) -> Callable[[int], PartGradient]:
    """Plain gradients, of `micro_batch` of a batch's examples at a time.

    `generator_of(t)`, on the CPU, makes all that step t draws: every device sees the same.
    """

    def gradients(step: int) -> PartGradient:
        generator = generator_of(step)
        rows = batch(len(labels), batch_size, generator).to(labels.device)
        draws = {k: v.to(images.device) for k, v in drawn(family.draws, len(rows), generator, step=step).items()}

        def gradient(part: Part, weights: Weights, names: Sequence[str]) -> tuple[Sequence[Tensor], Tensor]:
            found, losses = [], []
            for first in range(0, len(rows), micro_batch or len(rows)):
                piece = slice(first, first + (micro_batch or len(rows)))
                mine, some = rows[piece], {name: tensor[piece] for name, tensor in draws.items()}
                with passes_in(precision, labels.device):
                    each = part.losses(weights, images[mine], labels[mine], some)
                loss = each.float().mean()
                if len(mine) < len(rows):
                    loss = loss * (len(mine) / len(rows))
                found.append(torch.autograd.grad(loss, [weights[name] for name in names]))
                losses.append(loss.detach())
            return [sum(parts[1:], start=parts[0]) for parts in zip(*found, strict=True)], sum(losses[1:], losses[0])

        return gradient

    return gradients


def batch(num_examples: int, batch_size: int, generator: torch.Generator) -> Tensor:
    """Row numbers of one batch: without repetition, or, of fewer examples than it holds, each as often as another."""
    passes = -(-batch_size // num_examples)
    order = torch.cat([torch.randperm(num_examples, generator=generator) for _ in range(passes)])
    return order[:batch_size]


def ema_keep(step: int, decay: float) -> float:
    """What the running average keeps in step t: min(decay, (1+t)/(10+t)), so that a short training has one too."""
    return min(decay, (1 + step) / (10 + step))


@torch.no_grad()
def average_weights(average: Mapping[str, Tensor], weights: Weights, keep: float) -> None:
    """θ̄ ← keep·θ̄ + (1 − keep)·θ, in place."""
    for name, tensor in average.items():
        tensor.lerp_(weights[name], 1 - keep)


def _optimiser(
    part: Part, state: TrainingState, params: Optimisation
) -> tuple[torch.optim.Optimizer, dict[str, Tensor]]:
    mine = {name: tensor for name, tensor in state.weights.items() if name.startswith(f"{part.name}.")}
    device = next(iter(mine.values())).device
    fused = device.type in ("cpu", "cuda")
    optimiser = torch.optim.AdamW(
        list(mine.values()), lr=params.learning_rate, betas=part.betas, weight_decay=params.weight_decay, fused=fused
    )
    for name, weight in mine.items():
        # Adam's own counter is a float32 tensor, on the weights' device where it is fused.
        count = torch.tensor(float(state.step), device=device if fused else "cpu")
        optimiser.state[weight] = {"step": count, "exp_avg": state.means[name], "exp_avg_sq": state.squares[name]}
    return optimiser, mine
