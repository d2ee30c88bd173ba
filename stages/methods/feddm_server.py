"""FedDM's server: SGD on the union of all sets within the ρ-ball. Algorithm 1, Eq. 3."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from stages.methods.surrogate_nets import LabelledSet, Weights, distance, loss_and_gradient, start_weights, stepped


@dataclass(frozen=True)
class ServerEpoch:
    distance: float
    loss: float


def optimise(
    module: nn.Module,
    union: LabelledSet,
    *,
    rho: float,
    epochs: int,
    batch_size: int,
    rate: float,
    generator: torch.Generator,
    report: Callable[[int, int], None],
    micro_batch: int | None = None,
) -> tuple[Weights, list[ServerEpoch]]:
    """Line 8 and Eq. 3: SGD on all sets together; a step that leads out of the ρ-ball is taken back to its surface."""
    origin = weights = start_weights(module)
    trace: list[ServerEpoch] = []
    for epoch in range(epochs):
        order = torch.randperm(len(union), generator=generator).to(union.labels.device)
        loss = 0.0
        for first in range(0, len(union), batch_size):
            rows = order[first : first + batch_size]
            batch = LabelledSet(union.images[rows], union.labels[rows])
            value, found = loss_and_gradient(module, weights, batch, micro_batch=micro_batch)
            weights = within(stepped(weights, found, rate), origin, rho)
            loss += float(value) * len(rows) / len(union)
        trace.append(ServerEpoch(distance(weights, origin), loss))
        report(epoch + 1, epochs)
    return weights, trace


def within(weights: Weights, origin: Weights, rho: float) -> Weights:
    """The nearest weights that are no farther than ρ."""
    away = distance(weights, origin)
    inside, room = weights, 2.0**-20
    while distance(inside, origin) > rho:  # with ever more room for rounding: inside means inside
        scale = rho * (1 - room) / away
        inside, room = (
            {name: start + scale * (weights[name] - start) for name, start in origin.items()},
            min(1, 4 * room),
        )
    return inside
