"""FedProx: Li, Sahu et al., Federated Optimization in Heterogeneous Networks (2020), Eq. 2.

The client minimises F_k(w) + μ/2·‖w − w₀‖², whose gradient adds μ(w − w₀).
"""

from __future__ import annotations

import torch
from torch import nn


class FedProx:
    """Adds the gradient of the proximal term. `mu` is the paper's μ."""

    def __init__(self, weights: list[nn.Parameter], mu: float) -> None:
        self._start = [weight.detach().clone() for weight in weights]
        self._mu = mu

    @torch.no_grad()
    def correct(self, weights: list[nn.Parameter]) -> None:
        for weight, start in zip(weights, self._start, strict=True):
            if weight.grad is not None:
                weight.grad.add_(weight - start, alpha=self._mu)
