"""How sharp a model's minimum is: the rise in the ρ-ball, the Hessian's largest eigenvalue, a surface to look at.

DP-FedSAM (Shi et al. 2023) says that clipping and noise lead to sharp minima and SAM to flat ones (Fig. 1, Appendix C),
and shows it on loss surfaces as Li et al. 2018 draw them. A loss is a sum of parts, each a function of the weights: a
batch's share in the mean loss of a dataset, so that memory is bounded by one batch, or a formula in a test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stages.methods.image_rows import ImageRows
from stages.methods.sam import total_norm, uphill
from stages.nets.called import called

Weights = Mapping[str, Tensor]
Parts = Sequence[Callable[[Weights], Tensor]]

_TINY = 1e-6


def dataset_loss(module: nn.Module, images: ImageRows, labels: Tensor, *, batch_size: int) -> Parts:
    """The mean cross-entropy in eval mode (no dropout, the trained averages of batch norm), batch by batch."""
    module.eval()
    buffers = dict(module.named_buffers())

    def part(first: int) -> Callable[[Weights], Tensor]:
        rows = slice(first, first + batch_size)

        def share(weights: Weights) -> Tensor:
            logits = called(module, {**weights, **buffers}, images[rows])
            return nn.functional.cross_entropy(logits.double(), labels[rows], reduction="sum") / len(labels)

        return share

    return [part(first) for first in range(0, len(labels), batch_size)]


@torch.no_grad()
def loss_at(parts: Parts, weights: Weights) -> float:
    return sum(float(part(weights)) for part in parts)


def gradient_at(parts: Parts, weights: Weights) -> dict[str, Tensor]:
    """∇L, summed over the parts."""
    return _summed(parts, weights, lambda loss, leaves: torch.autograd.grad(loss, leaves))


def hessian_product(parts: Parts, weights: Weights, direction: Weights) -> dict[str, Tensor]:
    """H·v without H: the gradient of ⟨∇L, v⟩ (Pearlmutter 1994)."""

    def product(loss: Tensor, leaves: list[Tensor]) -> Sequence[Tensor]:
        slopes = torch.autograd.grad(loss, leaves, create_graph=True)
        along = sum((g * direction[name]).sum() for name, g in zip(weights, slopes, strict=True))
        if not isinstance(along, Tensor) or not along.requires_grad:  # a loss that is linear has no curvature
            return [torch.zeros_like(leaf) for leaf in leaves]
        found = torch.autograd.grad(along, leaves, allow_unused=True)
        return [torch.zeros_like(x) if h is None else h for x, h in zip(leaves, found, strict=True)]

    return _summed(parts, weights, product)


def _summed(
    parts: Parts, weights: Weights, derived: Callable[[Tensor, list[Tensor]], Sequence[Tensor]]
) -> dict[str, Tensor]:
    total = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
    for part in parts:
        leaves = {name: tensor.detach().requires_grad_(True) for name, tensor in weights.items()}
        for kept, found in zip(total.values(), derived(part(leaves), list(leaves.values())), strict=True):
            kept.add_(found.detach())
    return total


def ascent_sharpness(parts: Parts, weights: Weights, rho: float) -> float:
    """L(w + ρ·g/‖g‖) − L(w): what SAM's inner maximum (Eq. 5) finds by its one step (Eq. 7), on the whole dataset."""
    there = uphill(list(weights.values()), list(gradient_at(parts, weights).values()), rho)
    return loss_at(parts, dict(zip(weights, there, strict=True))) - loss_at(parts, weights)


@dataclass(frozen=True)
class Eigenvalue:
    """`residual` is ‖Hv − λv‖/‖Hv‖ where the iteration ended: an eigenvalue is within residual·‖Hv‖ of `value`."""

    value: float
    residual: float


def largest_eigenvalue(
    parts: Parts, weights: Weights, generator: torch.Generator, *, iterations: int = 20
) -> Eigenvalue:
    """The largest eigenvalue of the Hessian, by power iteration from a random direction.

    That finds the one of the largest size. Where it is negative (no minimum, then) the iteration goes on with H − λI,
    whose largest in size is the largest of H. `generator` lives on the CPU.
    """
    found = _power_iteration(parts, weights, generator, 0.0, iterations)
    if found.value < 0:
        found = _power_iteration(parts, weights, generator, found.value, iterations)
    return found


def _power_iteration(
    parts: Parts, weights: Weights, generator: torch.Generator, shift: float, iterations: int
) -> Eigenvalue:
    direction = {name: _normal_like(tensor, generator) for name, tensor in weights.items()}
    value, residual = 0.0, 0.0
    for _ in range(iterations):
        length = total_norm(list(direction.values()))
        if length == 0:  # H·v = 0: the loss is flat along v, and v was drawn at random
            return Eigenvalue(shift, 0.0)
        direction = {name: tensor / length for name, tensor in direction.items()}
        product = hessian_product(parts, weights, direction)
        value = float(sum((product[name] * direction[name]).sum() for name in weights))  # Rayleigh's quotient
        left = total_norm([product[name] - value * direction[name] for name in weights])
        size = total_norm(list(product.values()))
        residual = left / size if size > 0 else 0.0
        direction = {name: product[name] - shift * direction[name] for name in weights}
    return Eigenvalue(value, residual)


def filter_normalised_directions(weights: Weights, generator: torch.Generator) -> tuple[Weights, Weights]:
    """Two random directions, each filter of the length of the model's own (Li et al. 2018), at right angles.

    A filter is what feeds one output: a row of a linear layer, a kernel of a convolution. Biases and norms, which are
    no filters, stay where they are, as in their figures. The second direction is made orthogonal filter by filter
    before it is scaled, so that both properties hold exactly; a filter of a single weight has no second direction.
    """
    first, second = {}, {}
    for name, tensor in weights.items():
        drawn = [_normal_like(tensor, generator) for _ in range(2)]
        if tensor.dim() < 2:
            first[name], second[name] = torch.zeros_like(tensor), torch.zeros_like(tensor)
            continue
        lengths = tensor.flatten(1).double().norm(dim=1, keepdim=True).to(tensor.dtype)  # squares may overflow
        u, v = (_rows_of_length_one(draw.flatten(1)) for draw in drawn)
        across = v - u * (u * v).sum(dim=1, keepdim=True)
        alone = across.norm(dim=1, keepdim=True) < _TINY
        w = torch.where(alone, 0.0, _rows_of_length_one(across))
        # Once more: where the draws were almost parallel the first time leaves rounding errors.
        w = torch.where(alone, 0.0, _rows_of_length_one(w - u * (u * w).sum(dim=1, keepdim=True)))
        first[name], second[name] = ((x * lengths).view_as(tensor) for x in (u, w))
    return first, second


@torch.no_grad()
def loss_surface(
    parts: Parts,
    weights: Weights,
    directions: tuple[Weights, Weights],
    steps: Sequence[float],
    report: Callable[[int, int, str], None],
) -> list[list[float]]:
    """L(w + a·d₁ + b·d₂): a row for each b, a column for each a."""
    rows = []
    first, second = directions
    for number, up in enumerate(steps):
        lifted = {name: torch.add(tensor, second[name], alpha=up) for name, tensor in weights.items()}
        there = (
            {name: torch.add(tensor, first[name], alpha=across) for name, tensor in lifted.items()} for across in steps
        )
        rows.append([loss_at(parts, moved) for moved in there])
        report(number + 1, len(steps), "surface")
    return rows


def _normal_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Drawn on the CPU, so that every device sees the same direction."""
    return torch.randn(tensor.shape, generator=generator).to(device=tensor.device, dtype=tensor.dtype)


def _rows_of_length_one(rows: Tensor) -> Tensor:
    lengths = rows.norm(dim=1, keepdim=True)
    return rows / torch.where(lengths > 0, lengths, 1.0)
