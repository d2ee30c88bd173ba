"""Hyper-parameters of `aggregate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import HyperParameters, hyper


@dataclass(frozen=True, kw_only=True)
class Aggregation(HyperParameters):
    """How messages become the next model."""

    weights: Literal["uniform", "examples"] = hyper(
        "uniform", "Weigh clients equally, or by the number of examples that their messages declare.", symbol="a_k"
    )
    rule: Literal["mean", "fednova", "feddyn"] = hyper(
        "mean", "mean: FedAvg and its kin; fednova: updates divided by their steps; feddyn: the mean less h/α."
    )
    clients: int | None = hyper(None, "Number of all clients, for --rule feddyn and --as state.", symbol="N")
    alpha: float | None = hyper(
        None, "feddyn: the α that the clients used; 0.01 if not given.", symbol="α", source="paper", panel="feddyn"
    )
    momentum: float | None = hyper(
        None, "fednova: the momentum that the clients used; 0 if not given.", symbol="ρ", panel="fednova"
    )
    server_rate: float = hyper(1.0, "Step size of the server: x − η_g · mean update.", symbol="η_g", source="paper")

    def check(self) -> None:
        self.require(self.server_rate > 0, "server_rate", "above 0")
        for name, owner in (("alpha", "feddyn"), ("momentum", "fednova")):
            absent = getattr(self, name) is None
            self.require(absent or self.rule == owner, name, f"absent with --rule {self.rule} (it belongs to {owner})")
        self.require(self.alpha is None or self.alpha > 0, "alpha", "above 0")
        self.require(self.momentum is None or 0 <= self.momentum < 1, "momentum", "from 0 up to, not including, 1")
        self.require(self.clients is None or self.clients >= 1, "clients", "at least 1")
        if self.rule == "feddyn":
            self.require(self.server_rate == 1, "server_rate", "1 with --rule feddyn")
            self.require(self.clients is not None, "clients", "given with --rule feddyn")

    @property
    def dynamic_weight(self) -> float:
        """FedDyn's α; 0.01 where none is given."""
        return 0.01 if self.alpha is None else self.alpha
