"""FedNova: Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, 2020."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from stages.hyperparameters import hyper
from stages.methods.params.aggregation import ClientWeights, ServerStep
from stages.methods.params.local_training import BatchTraining
from stages.registry import ALGORITHMS, RULES

if TYPE_CHECKING:
    from stages.methods.averaging import Array


@ALGORITHMS.register
@dataclass(frozen=True, kw_only=True)
class FedNovaTraining(BatchTraining):
    """Local SGD; the server divides each update by what its number of steps amounts to."""

    rule: ClassVar[str] = "fednova"
    states_counts: ClassVar[tuple[str, ...]] = ("tell_steps",)

    algorithm: Literal["fednova"] = hyper("fednova", "fednova: local SGD, whose steps the server counts.")


@RULES.register
@dataclass(frozen=True, kw_only=True)
class FedNovaRule(ClientWeights, ServerStep):
    """Eq. 6 and 7: each update divided by ‖a_i‖₁, the mean multiplied by τ_eff."""

    agrees: ClassVar[Mapping[str, tuple[str, ...]]] = {"train-client": ("momentum",)}

    rule: Literal["fednova"] = hyper("fednova", "fednova: updates divided by their steps.")
    momentum: float = hyper(0.0, "fednova: the momentum that the clients used.", symbol="ρ", panel="fednova")

    def check(self) -> None:
        super().check()
        self.require(0 <= self.momentum < 1, "momentum", "from 0 up to, not including, 1")

    def needed_counts(self) -> dict[str, str]:
        return {**super().needed_counts(), "local_steps": "--tell-steps"}

    def gathering(self) -> Any:
        from stages.methods.fednova import NormalisedMean

        return NormalisedMean(self.momentum)

    def add(self, mean: Any, update: Mapping[str, Array], counts: Mapping[str, int]) -> None:
        mean.add(update, self.weight_of(counts), counts["local_steps"])
