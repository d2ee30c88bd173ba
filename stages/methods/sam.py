"""Sharpness-aware minimisation: Foret et al. 2021, as the local optimiser of DP-FedSAM (Shi et al. 2023), Eqs. 5 to 7.

A step follows the gradient of its batch not at w but at w + δ(w), δ(w) = ρ·g/‖g‖: near the worst point of the ρ-ball,
by a Taylor expansion of first order. The norm is one over all weights. Adaptive SAM (Kwon et al. 2021) measures the
ball in units of each weight, T_w = diag(|w|), so that a rescaled network has the same neighbours: δ = ρ·T_w²g/‖T_w g‖.
The paper writes plain SAM, its public code runs the adaptive one; plain is what is meant unless it is asked for.

The gradient is left where an ordinary step leaves it: what an algorithm adds (a proximal term, control variates), the
penalty on the update, momentum and weight decay come after it, at w, and play no part in the choice of δ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def sam_gradient(
    module: nn.Module, gradient: Callable[[], Tensor | None], *, rho: float, adaptive: bool = False
) -> Tensor | None:
    """Set the gradients of the parameters to g̃ of Eq. 7; gives the loss at w, as an ordinary step would.

    `gradient` sets them at the parameters' present values and is called twice, for one and the same batch and dropout.
    Weights and buffers are afterwards what they were, bit for bit: subtracting δ again would round. The running
    averages of batch norm are those of the pass at w; the pass at w + δ leaves no trace in them.
    """
    loss = gradient()
    found = {weight: weight.grad for weight in module.parameters() if weight.grad is not None}
    moved = uphill([weight.detach() for weight in found], list(found.values()), rho, adaptive=adaptive)
    with _put_aside(module):
        for weight, there in zip(found, moved, strict=True):
            weight.data = there
        gradient()
    return loss


@torch.no_grad()
def uphill(
    weights: Sequence[Tensor], gradients: Sequence[Tensor], rho: float, *, adaptive: bool = False
) -> list[Tensor]:
    """w + δ(w) of Eq. 7, tensor by tensor. Where the gradient is zero no direction is worse than another: δ = 0."""
    scaled = [w.abs() * g for w, g in zip(weights, gradients, strict=True)] if adaptive else list(gradients)
    norm = total_norm(scaled)
    factor = rho / norm if norm > 0 else 0.0
    if adaptive:
        return [torch.addcmul(w, w.abs(), s, value=factor) for w, s in zip(weights, scaled, strict=True)]
    return [torch.add(w, g, alpha=factor) for w, g in zip(weights, scaled, strict=True)]


@torch.no_grad()
def uphill_stacked(
    weights: Mapping[str, Tensor], gradients: Mapping[str, Tensor], rho: float, *, adaptive: bool = False
) -> dict[str, Tensor]:
    """The same for several networks, whose tensors are stacked: a norm for each."""
    scaled = {name: weights[name].abs() * g for name, g in gradients.items()} if adaptive else dict(gradients)
    norms = stacked_norms(list(scaled.values()))
    factors = torch.where(norms > 0, rho / norms, 0.0)
    return {
        name: weights[name] + (weights[name].abs() * part if adaptive else part) * along(factors, part)
        for name, part in scaled.items()
    }


def stacked_norms(tensors: Sequence[Tensor]) -> Tensor:
    """The length of all tensors as one vector, for each index of their first dimension."""
    parts = [torch.linalg.vector_norm(tensor.flatten(1), dim=1) for tensor in tensors]
    norms: Tensor = torch.linalg.vector_norm(torch.stack(parts, dim=1), dim=1)
    return norms


def along(factors: Tensor, tensor: Tensor) -> Tensor:
    """One number for each index of the first dimension, in a form that multiplies the tensor."""
    return factors.view(-1, *(1 for _ in tensor.shape[1:]))


def total_norm(tensors: Sequence[Tensor]) -> float:
    """The length of all of them as one vector. (torch's own `get_total_norm` took five times as long.)"""
    return float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(tensor) for tensor in tensors])))


@contextmanager
def _put_aside(module: nn.Module) -> Iterator[None]:
    """The weights themselves, which are kept elsewhere, untouched, and copies of the buffers, which are written to."""
    weights = [(weight, weight.data) for weight in module.parameters()]
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        for weight, before in weights:
            weight.data = before
        for buffer, before in buffers:
            buffer.copy_(before)
