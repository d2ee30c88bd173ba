"""FedDyn: Acar et al., Federated Learning Based on Dynamic Regularization (2021), Algorithm 1.

The client minimises F_i(θ) − ⟨h_i, θ⟩ + α/2·‖θ − θ₀‖² (a squared norm) and then sets h_i ← h_i − α(θ_i − θ₀). The
server keeps h ← h − α·(1/N)·Σ_{i∈S}(θ_i − θ₀) and takes θ = mean_S θ_i − h/α.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor, nn

Array = NDArray[Any]


class FedDyn:
    """The client's side; `client` is h_i, zero where absent."""

    def __init__(self, named: Mapping[str, nn.Parameter], client: Mapping[str, Tensor], alpha: float) -> None:
        self._start = {name: weight.detach().clone() for name, weight in named.items()}
        self._client = {name: client.get(name, start.new_zeros(())) for name, start in self._start.items()}
        self._alpha = alpha

    def correct(self, named: Mapping[str, nn.Parameter]) -> None:
        """g ← g − h_i + α(θ − θ₀)."""
        for name, start in self._start.items():
            gradient = named[name].grad
            if gradient is not None:
                gradient.sub_(self._client[name]).add_(named[name].detach() - start, alpha=self._alpha)

    def finish(self, named: Mapping[str, nn.Parameter], num_steps: int, rate: float) -> dict[str, Tensor]:  # noqa: ARG002
        """h_i − α(θ_i − θ₀)."""
        return {
            name: self._client[name] - self._alpha * (named[name].detach() - start)
            for name, start in self._start.items()
        }


def first_state(mean_update: Mapping[str, Array]) -> dict[str, Array]:
    """The server's h before the first round. The running averages of batch norm are no parameters: they have none."""
    return {name: np.zeros(change.shape) for name, change in mean_update.items() if ".running_" not in name}


def server_step(
    model: Mapping[str, Array],
    mean_update: Mapping[str, Array],
    state: Mapping[str, Array],
    *,
    share: float,
    alpha: float,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The server's side: (next model, next h). `share` is |S|/N; Δ̄ = θ₀ − mean θ_i, so that h ← h + α·share·Δ̄.

    What is not a parameter (the running averages of batch norm) has no h: it is averaged.
    """
    moved, kept = dict(model), {}
    for name, change in mean_update.items():
        start = model[name].astype(np.float64)
        after = state[name].astype(np.float64) + alpha * share * change if name in state else 0.0
        moved[name] = (start - change - after / alpha).astype(model[name].dtype)
        if name in state:
            kept[name] = np.asarray(after).astype(np.float32)
    return moved, kept
