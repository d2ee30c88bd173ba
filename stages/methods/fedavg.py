"""FedAvg, FedSGD: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017.

The client's side: plain local SGD (FedSGD: one step on all of its data). The server's side, which every algorithm
of this family shares, is in `averaging`.
"""

from __future__ import annotations

from torch import nn


class FedAvg:
    """No correction: the client follows its own gradients."""

    def correct(self, weights: list[nn.Parameter]) -> None:
        """Leave the gradients as they are."""
