"""FedProx: Li, Sahu et al., Federated Optimization in Heterogeneous Networks, 2020."""

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


@ALGORITHMS.register
@dataclass(frozen=True, kw_only=True)
class FedProxTraining(BatchTraining):
    """Local SGD with a proximal term, whose gradient is made from the weights alone."""

    record_dp: ClassVar[bool] = True
    client_noise: ClassVar[bool] = True
    additive: ClassVar[bool] = True
    stacks: ClassVar[bool] = True

    algorithm: Literal["fedprox"] = hyper("fedprox", "fedprox: with a proximal term.")
    mu: float = hyper(
        0.01,
        "fedprox: weight of the proximal term μ/2·‖w − w₀‖²; the default is Fedssyn's.",
        symbol="μ",
        source="paper",
        panel="fedprox",
    )

    def check(self) -> None:
        super().check()
        self.require(self.mu >= 0, "mu", "0 or more")

    def client(
        self,
        named: Mapping[str, nn.Parameter],
        own: Mapping[str, Tensor],  # noqa: ARG002
        server: Mapping[str, Tensor],  # noqa: ARG002
    ) -> LocalAlgorithm:
        from stages.methods.fedprox import FedProx

        return FedProx(named, self.mu)
