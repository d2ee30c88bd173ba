"""How far a FedLAP set can be trusted: the radius r_k of Fig. 2, and the layers' norms of Eq. 18, at the client."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stages.methods.augmentation import drawn_transformation
from stages.methods.image_rows import pieces
from stages.methods.params.fedlap import FedLapEncoding
from stages.methods.surrogate_nets import (
    Examples,
    LabelledSet,
    Weights,
    distance,
    gradient,
    loss_and_gradient,
    mean_loss,
    start_weights,
    stepped,
)

_STRIDE = 5  # steps from one look at the real loss to the next
_CHUNK = 512  # images whose gradient is taken at a time where all are meant


@dataclass(frozen=True)
class RadiusPoint:
    """One point of Fig. 2, after `steps` steps on the synthetic set alone."""

    steps: int
    distance: float
    synthetic_loss: float
    real_loss: float


def calibrated_radius(
    module: nn.Module,
    surrogate: LabelledSet,
    real: LabelledSet,
    *,
    params: FedLapEncoding,
    rate: float,
    generator: torch.Generator | None = None,
) -> tuple[float, list[RadiusPoint]]:
    """r_k of Fig. 2, and the curve: how far descent on the set goes until the loss on real data turns, at most r.

    The real loss is taken after every fifth step, then after each step around the least of these: it falls, turns once
    and rises, and costs far more than the steps on the set. The first step beyond r is looked at, too: a set that is
    good until there is good for all of r. Where the server's descent transforms the images, this one does.
    """
    origin = start_weights(module)
    # Of each step: the second walk makes some of them again.
    seen = [drawn_transformation(params.augmentations, generator) for _ in range(params.radius_steps + 1)]

    def walk(weights: Weights, steps: range, every: int) -> Iterator[tuple[RadiusPoint, Weights]]:
        for number in steps:
            away = distance(weights, origin)
            images = LabelledSet(seen[number](surrogate.images), surrogate.labels)
            loss, direction = loss_and_gradient(module, weights, images, micro_batch=params.micro_batch)
            if number % every == 0 or away > params.radius:
                with torch.no_grad():
                    real_loss = float(mean_loss(module, weights, real, micro_batch=params.micro_batch))
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


def layer_norms(module: nn.Module, real: Examples, *, micro_batch: int | None = None) -> Tensor:
    """‖∇L(w, D)‖ of each parameter tensor at the model's weights, for Eq. 18."""
    weights = start_weights(module)
    total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for rows in pieces(len(real), micro_batch or _CHUNK):
        batch = real.take(rows)
        for name, part in gradient(module, weights, batch).items():
            total[name] += part * (len(batch) / len(real))
    return torch.stack([torch.linalg.vector_norm(part) for part in total.values()])
