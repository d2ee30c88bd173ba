"""SCAFFOLD: Karimireddy et al., Stochastic Controlled Averaging for Federated Learning, 2020."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from stages.hyperparameters import hyper
from stages.methods.params.local_training import BatchTraining
from stages.registry import ALGORITHMS

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.methods.local_training import LocalAlgorithm


@dataclass(frozen=True, kw_only=True)
class ControlVariates(BatchTraining):
    """Client and server keep estimates of their gradients, and the client sends the change of its own."""

    keeps_state: ClassVar[bool] = True
    sends_state: ClassVar[bool] = True

    def check(self) -> None:
        super().check()
        # Option II reads the mean gradient off the weights, which momentum would blur.
        self.require(self.momentum == 0, "momentum", f"0 with --algorithm {self.algorithm}")


@ALGORITHMS.register
@dataclass(frozen=True, kw_only=True)
class ScaffoldTraining(ControlVariates):
    """Option II. Under DP the variates are made from noised steps alone (privacy contract, rule 15)."""

    record_dp: ClassVar[bool] = True

    algorithm: Literal["scaffold"] = hyper("scaffold", "scaffold: with control variates.")

    def client(
        self, named: Mapping[str, nn.Parameter], own: Mapping[str, Tensor], server: Mapping[str, Tensor]
    ) -> LocalAlgorithm:
        from stages.methods.scaffold import Scaffold

        return Scaffold(named, own, server)
