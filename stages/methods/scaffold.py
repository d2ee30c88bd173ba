"""SCAFFOLD: Karimireddy et al., Stochastic Controlled Averaging for Federated Learning (2020), Algorithm 1, option II.

The client steps along g_i(y) − c_i + c, where the control variates c_i and c estimate the gradients of the client and
of the server. Afterwards c_i⁺ = c_i − c + (x − y)/(K·η); what it sends is Δc_i = c_i⁺ − c_i, and the server does
c ← c + |S|/N · mean Δc_i.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn


class Scaffold:
    """Control variates on all parameters; `client` is c_i, `server` is c, both zero where absent."""

    def __init__(
        self, named: Mapping[str, nn.Parameter], client: Mapping[str, Tensor], server: Mapping[str, Tensor]
    ) -> None:
        self._start = {name: weight.detach().clone() for name, weight in named.items() if self.covers(name)}
        self._client = {name: client.get(name, start.new_zeros(())) for name, start in self._start.items()}
        self._server = {name: server.get(name, start.new_zeros(())) for name, start in self._start.items()}
        self._shift = {name: self._server[name] - self._client[name] for name in self._start}

    def covers(self, name: str) -> bool:  # noqa: ARG002  (FedPVR covers fewer)
        """Whether this parameter has a control variate."""
        return True

    def correct(self, named: Mapping[str, nn.Parameter]) -> None:
        """g ← g − c_i + c (line 10)."""
        for name, shift in self._shift.items():
            gradient = named[name].grad
            if gradient is not None:
                gradient.add_(shift)

    def finish(self, named: Mapping[str, nn.Parameter], num_steps: int, rate: float) -> dict[str, Tensor]:
        """c_i⁺ = c_i − c + (x − y)/(K·η) (line 12, option II)."""
        return {
            name: self._client[name] - self._server[name] + (start - named[name].detach()) / (num_steps * rate)
            for name, start in self._start.items()
        }
