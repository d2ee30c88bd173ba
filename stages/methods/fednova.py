"""FedNova: Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization (2020).

Clients that make more local steps pull the mean towards themselves. The server divides each update by the norm
‖a_i‖₁ of its accumulation (Eq. 5: the number of steps, for plain SGD), averages, and multiplies by
τ_eff = Σ p_i ‖a_i‖₁: x ← x − τ_eff Σ p_i Δ_i / ‖a_i‖₁ (Eq. 6, 7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.methods.averaging import WeightedMean


def accumulation_norm(num_steps: int, momentum: float) -> float:
    """‖a‖₁ of τ steps of SGD with momentum ρ: (τ − ρ(1 − ρ^τ)/(1 − ρ)) / (1 − ρ); τ without momentum (Sec. 4)."""
    if num_steps < 1:
        raise ValueError(f"the number of steps must be at least 1, found {num_steps}")
    return (num_steps - momentum * (1 - momentum**num_steps) / (1 - momentum)) / (1 - momentum)


class NormalisedMean:
    """τ_eff Σ p_i Δ_i/‖a_i‖₁ as a stream, with p_i the weights divided by their sum."""

    def __init__(self, momentum: float) -> None:
        self._momentum = momentum
        self._directions = WeightedMean()
        self._steps = WeightedMean()

    def add(self, update: Mapping[str, NDArray[Any]], weight: float, num_steps: int) -> None:
        norm = accumulation_norm(num_steps, self._momentum)
        self._directions.add({name: tensor.astype(np.float64) / norm for name, tensor in update.items()}, weight)
        self._steps.add({"tau": np.array(norm)}, weight)

    def mean(self) -> dict[str, NDArray[np.float64]]:
        effective = float(self._steps.mean()["tau"])
        return {name: effective * direction for name, direction in self._directions.mean().items()}
