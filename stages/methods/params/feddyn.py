"""FedDyn: Acar et al., Federated Learning Based on Dynamic Regularization, 2021: both sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from stages.hyperparameters import hyper
from stages.methods.params.aggregation import ClientWeights
from stages.methods.params.local_training import BatchTraining
from stages.registry import ALGORITHMS, RULES

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.methods.averaging import Array
    from stages.methods.local_training import LocalAlgorithm


@ALGORITHMS.register
@dataclass(frozen=True, kw_only=True)
class FedDynTraining(BatchTraining):
    """A regulariser that changes from round to round; the client's part of it never leaves."""

    keeps_state: ClassVar[bool] = True
    rule: ClassVar[str] = "feddyn"

    algorithm: Literal["feddyn"] = hyper("feddyn", "feddyn: with a dynamic regulariser.")
    alpha: float = hyper(
        0.01,
        "feddyn: weight of the dynamic regulariser; the default is from Fedssyn's range.",
        symbol="α",
        source="paper",
        panel="feddyn",
    )

    def check(self) -> None:
        super().check()
        self.require(self.alpha > 0, "alpha", "above 0")

    def client(
        self,
        named: Mapping[str, nn.Parameter],
        own: Mapping[str, Tensor],
        server: Mapping[str, Tensor],  # noqa: ARG002
    ) -> LocalAlgorithm:
        from stages.methods.feddyn import FedDyn

        return FedDyn(named, own, self.alpha)


@RULES.register
@dataclass(frozen=True, kw_only=True)
class FedDynRule(ClientWeights):
    """The server's side: it keeps h and takes the mean less h/α."""

    takes: ClassVar[tuple[str, ...]] = ("state", "state_out")
    agrees: ClassVar[Mapping[str, tuple[str, ...]]] = {"train-client": ("alpha",)}

    rule: Literal["feddyn"] = hyper("feddyn", "feddyn: the mean less h/α.")
    clients: int = hyper(None, "Number of all clients.", symbol="N", unit="clients")
    alpha: float = hyper(0.01, "feddyn: the α that the clients used.", symbol="α", source="paper", panel="feddyn")

    def check(self) -> None:
        super().check()
        self.require(self.clients >= 1, "clients", "at least 1")
        self.require(self.alpha > 0, "alpha", "above 0")

    def result(
        self, model: Mapping[str, Array], mean: Mapping[str, Array], state: Mapping[str, Array] | None, share: float
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        from stages.methods.feddyn import first_state, server_step

        h = first_state(mean) if state is None else state
        return server_step(model, mean, h, share=share, alpha=self.alpha)
