"""FedLAP's server: descent on the sets of all clients, within the radius (Eq. 11, with calibrated gradients Eq. 18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stages.methods.augmentation import drawn_transformation
from stages.methods.surrogate_nets import (
    LabelledSet,
    Weights,
    distance,
    loss_and_gradient,
    start_weights,
    stepped,
)

_TINY = 1e-12  # the norm of a gradient of zero


@dataclass(frozen=True, eq=False)
class Contribution:
    """A client's set as the server uses it; `norms` are its layer norms where gradients are calibrated (Eq. 18)."""

    surrogate: LabelledSet
    weight: float
    norms: Tensor | None = None


@dataclass(frozen=True)
class DescentStep:
    distance: float
    loss: float


def optimise(
    module: nn.Module,
    contributions: Sequence[Contribution],
    *,
    radius: float | None,
    steps: int,
    rate: float,
    augmentations: Sequence[str] = (),
    generator: torch.Generator | None = None,
    micro_batch: int | None = None,
) -> tuple[Weights, list[DescentStep]]:
    """Eq. 11: w ← w − η Σ (N_k/N) ∇L(w, S_k), until the next step would leave the radius; None: `steps` steps.

    The step that would leave is not taken, so the result is inside. One transformation is drawn for each step.
    """
    origin = weights = start_weights(module)
    trace: list[DescentStep] = []
    for _ in range(steps):
        direction = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        transformation = drawn_transformation(augmentations, generator)
        loss = 0.0
        for client in contributions:
            seen = LabelledSet(transformation(client.surrogate.images), client.surrogate.labels)
            value, found = loss_and_gradient(module, weights, seen, micro_batch=micro_batch)
            loss += client.weight * float(value)
            for number, (name, part) in enumerate(found.items()):
                if client.norms is not None:
                    part = part * (client.norms[number] / (torch.linalg.vector_norm(part) + _TINY))
                direction[name] += client.weight * part
        further = stepped(weights, direction, rate)
        away = distance(further, origin)
        if radius is not None and not away <= radius:
            break
        weights = further
        trace.append(DescentStep(away, loss))
    return weights, trace
