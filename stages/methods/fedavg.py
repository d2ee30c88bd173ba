"""FedAvg, FedSGD: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017.

The client's side: plain local SGD (FedSGD: one step on all of its data). The server's side, which every algorithm
of this family shares, is in `averaging`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn


class FedAvg:
    """No correction: the client follows its own gradients and keeps nothing."""

    def correct(self, named: Mapping[str, nn.Parameter]) -> None:
        """Leave the gradients as they are."""

    def finish(self, named: Mapping[str, nn.Parameter], num_steps: int, rate: float) -> dict[str, Tensor]:  # noqa: ARG002
        return {}
