"""The server's side of FedAvg, as a stream: x ← x − η_g Σ_k a_k Δ_k (McMahan et al. 2017, Algorithm 1).

Memory is one sum in float64, whatever the number of clients. Free of torch: aggregating needs none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class WeightedMean:
    """The mean of updates under weights that need not be known in advance."""

    def __init__(self) -> None:
        self._sum: dict[str, NDArray[np.float64]] = {}
        self._weight = 0.0

    def add(self, update: Mapping[str, Array], weight: float) -> None:
        """Add weight·Δ to the sum. Every update must have the tensors of the first."""
        if not weight > 0:
            raise ValueError(f"a weight must be above 0, found {weight}")
        if self._sum and self._sum.keys() != update.keys():
            raise ValueError("updates of different models cannot be averaged")
        for name, tensor in update.items():
            if name in self._sum:
                self._sum[name] += tensor.astype(np.float64) * weight
            else:
                self._sum[name] = tensor.astype(np.float64) * weight
        self._weight += weight

    def mean(self) -> dict[str, NDArray[np.float64]]:
        """Σ a_k Δ_k with a_k = weight_k / Σ weights."""
        if not self._weight:
            raise ValueError("there is nothing to average")
        return {name: total / self._weight for name, total in self._sum.items()}


def apply_update(model: Mapping[str, Array], update: Mapping[str, Array], *, rate: float = 1.0) -> dict[str, Array]:
    """x − rate·Δ in float64, rounded once to the model's type; tensors without an update stay as they are."""
    moved = dict(model)
    for name, change in update.items():
        moved[name] = (model[name].astype(np.float64) - rate * change).astype(model[name].dtype)
    return moved


def next_variates(before: Mapping[str, Array], mean_change: Mapping[str, Array], *, share: float) -> dict[str, Array]:
    """SCAFFOLD's c ← c + |S|/N · mean Δc (Algorithm 1, line 17); `share` is |S|/N, and c is zero at first."""
    zero = np.zeros(())
    return {name: (before.get(name, zero) + share * change).astype(np.float32) for name, change in mean_change.items()}
