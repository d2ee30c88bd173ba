"""FedProx: Li, Sahu et al., Federated Optimization in Heterogeneous Networks (2020), Eq. 2.

The client minimises F_k(w) + μ/2·‖w − w₀‖², whose gradient adds μ(w − w₀).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stages.methods.fedavg import FedAvg

if TYPE_CHECKING:
    from torch import nn


class FedProx(FedAvg):
    """Adds the gradient of the proximal term. `mu` is the paper's μ."""

    def __init__(self, named: Mapping[str, nn.Parameter], mu: float) -> None:
        self._start = {name: weight.detach().clone() for name, weight in named.items()}
        self._mu = mu

    def correct(self, named: Mapping[str, nn.Parameter]) -> None:
        for name, start in self._start.items():
            gradient = named[name].grad
            if gradient is not None:
                gradient.add_(named[name].detach() - start, alpha=self._mu)
