"""How well a synthetic set stands in for data: its gradients beside the data's, where descent on the set leads.

FedLAP, Eq. 9 and 10 and Fig. 6: direction and length are two things. A set whose gradients point the right way but are
too long or too short still leads astray after some steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stages.methods.surrogate_nets import (
    Examples,
    LabelledSet,
    Weights,
    distance,
    loss_and_gradient,
    start_weights,
    stepped,
)

# A tensor with less than this share of the whole gradient has none but rounding: a bias before a norm, for instance.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class Agreement:
    """Of two gradients: the cosine between them, ‖g_S‖/‖g_D‖, and both lengths. None where one of them is nothing."""

    cosine: float | None
    norm_ratio: float | None
    norm_real: float
    norm_synthetic: float


@dataclass(frozen=True)
class MatchedPoint:
    """After `steps` steps on the set. `whole` is over all weights as one vector, `tensors` by parameter tensor."""

    steps: int
    distance: float
    loss_real: float
    loss_synthetic: float
    whole: Agreement
    tensors: dict[str, Agreement]


def matching_trajectory(
    module: nn.Module,
    surrogate: LabelledSet,
    data: Examples,
    *,
    steps: int,
    rate: float,
    batch_size: int,
    report: Callable[[int, int], None],
) -> list[MatchedPoint]:
    """At the module's weights, and after each step of w ← w − η∇L(w, S) (Eq. 10)."""
    origin = weights = start_weights(module)
    points = []
    for number in range(steps + 1):
        synthetic_loss, synthetic = loss_and_gradient(module, weights, surrogate)
        real_loss, real = mean_gradient(module, weights, data, batch_size)
        whole, tensors = compared(real, synthetic)
        points.append(MatchedPoint(number, distance(weights, origin), real_loss, float(synthetic_loss), whole, tensors))
        report(number + 1, steps + 1)
        weights = stepped(weights, synthetic, rate)
    return points


def mean_gradient(
    module: nn.Module, weights: Mapping[str, Tensor], data: Examples, batch_size: int
) -> tuple[float, Weights]:
    """Loss and gradient over all the data, some at a time; in float64, so that the size of a batch changes nothing."""
    loss = 0.0
    total = {name: torch.zeros(weight.shape, dtype=torch.float64) for name, weight in weights.items()}
    for first in range(0, len(data), batch_size):
        batch = data.take(slice(first, first + batch_size))
        share = len(batch) / len(data)
        value, found = loss_and_gradient(module, weights, batch)
        loss += share * float(value)
        for name, part in found.items():
            total[name] += share * part.cpu().double()
    return loss, total


def compared(real: Mapping[str, Tensor], synthetic: Mapping[str, Tensor]) -> tuple[Agreement, dict[str, Agreement]]:
    """Over all weights together, and tensor by tensor."""
    flat = {
        name: (part.cpu().double().flatten(), synthetic[name].cpu().double().flatten()) for name, part in real.items()
    }
    joined = torch.cat([a for a, _ in flat.values()]), torch.cat([b for _, b in flat.values()])
    least = tuple(_ROUNDING * float(torch.linalg.vector_norm(side)) for side in joined)
    return _agreement(*joined, (0.0, 0.0)), {name: _agreement(a, b, least) for name, (a, b) in flat.items()}


def _agreement(real: Tensor, synthetic: Tensor, least: tuple[float, ...]) -> Agreement:
    norms = float(torch.linalg.vector_norm(real)), float(torch.linalg.vector_norm(synthetic))
    if not (norms[0] > least[0] and norms[1] > least[1]):
        return Agreement(None, None, *norms)
    cosine = float(torch.dot(real, synthetic)) / (norms[0] * norms[1])
    return Agreement(min(1.0, max(-1.0, cosine)), norms[1] / norms[0], *norms)
