"""Hyper-parameters of `aggregate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import hyper
from stages.methods.params.client_privacy import PANEL, UpdateBounds


@dataclass(frozen=True, kw_only=True)
class Aggregation(UpdateBounds):
    """How messages become the next model; with noise for whole clients under `dp-mean`."""

    weights: Literal["uniform", "examples"] = hyper(
        "uniform", "Weigh clients equally, or by the number of examples that their messages declare.", symbol="a_k"
    )
    rule: Literal["mean", "fednova", "feddyn", "dp-mean"] = hyper(
        "mean",
        "mean: FedAvg and its kin; fednova: updates divided by their steps; feddyn: the mean less h/α; dp-mean: "
        "updates clipped, summed, noised by the server and divided by the expected number of clients.",
    )
    clients: int | None = hyper(None, "Number of all clients, for feddyn, dp-mean and --as state.", symbol="N")
    noise_multiplier: float | None = hyper(
        None, "dp-mean: noise of the sum in units of the clip norm.", symbol="σ", source="paper", panel=PANEL
    )
    sampling_rate: float | None = hyper(
        None,
        "dp-mean: each client takes part with this probability, drawn secretly by sample-clients; 1: all do.",
        symbol="q",
        source="paper",
        panel=PANEL,
    )
    alpha: float | None = hyper(
        None, "feddyn: the α that the clients used; 0.01 if not given.", symbol="α", source="paper", panel="feddyn"
    )
    momentum: float | None = hyper(
        None, "fednova: the momentum that the clients used; 0 if not given.", symbol="ρ", panel="fednova"
    )
    server_rate: float = hyper(1.0, "Step size of the server: x − η_g · mean update.", symbol="η_g", source="paper")

    def check(self) -> None:
        super().check()
        self._check_private()
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

    def _check_private(self) -> None:
        own = ("clip_norm", "sparsify", "noise_multiplier", "sampling_rate")
        if self.rule != "dp-mean":
            for name in own:
                self.require(getattr(self, name) is None, name, "given with --rule dp-mean only")
            return
        for name in ("clip_norm", "noise_multiplier", "sampling_rate", "clients"):
            if getattr(self, name) is None:
                raise ValueError(f"--{name.replace('_', '-')} needs a value with --rule dp-mean")
        self.require(0 < (self.noise_multiplier or 0) < 1e6, "noise_multiplier", "above 0")
        self.require(0 < (self.sampling_rate or 0) <= 1, "sampling_rate", "above 0 and at most 1")
        self.require(self.weights == "uniform", "weights", "uniform with --rule dp-mean: others would break the clip")

    @property
    def expected_clients(self) -> float:
        """qN, the public divisor of dp-mean: never the number that took part (privacy contract, rule 12)."""
        return (self.sampling_rate or 1.0) * (self.clients or 1)

    @property
    def dynamic_weight(self) -> float:
        """FedDyn's α; 0.01 where none is given."""
        return 0.01 if self.alpha is None else self.alpha
