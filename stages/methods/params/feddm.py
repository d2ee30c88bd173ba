"""Hyper-parameters of FedDM: the client's in `encode --method feddm`, the server's in `aggregate --rule feddm`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import hyper
from stages.methods.params.schedule import RateSchedule
from stages.methods.params.surrogates import SurrogateSet

_MATCHING = "feddm: how distributions are matched"
_CLIP_NORM = 5.0  # of features, which are longer than gradients


@dataclass(frozen=True, kw_only=True)
class FedDmEncoding(SurrogateSet):
    """Algorithm 1, ClientUpdate."""

    method: Literal["feddm"] = hyper("feddm", "feddm: a synthetic set whose features are those of the data, by class.")
    iterations: int = hyper(
        1000,
        "Draws of weights, and looks at real data; 0 with --init real sends real images (REAL, simulations only).",
        symbol="T",
        source="paper",
        panel=_MATCHING,
    )
    rho: float = hyper(
        5.0, "Weights are drawn within this distance of the model's.", symbol="ρ", source="paper", panel=_MATCHING
    )
    steps_per_look: int = hyper(
        1, "Steps of the images for each look at real data; more cost time, not ε.", panel=_MATCHING
    )
    count_share: float | None = hyper(
        None,
        "DP: the part of a record's clipped length that goes to the counts of the classes (0.25).",
        panel=_MATCHING,
    )

    @property
    def accesses(self) -> int:
        return self.iterations

    @property
    def clip_length(self) -> float:
        return _CLIP_NORM if self.clip_norm is None else self.clip_norm

    @property
    def count_length(self) -> float:
        return 0.25 if self.count_share is None else self.count_share

    def check(self) -> None:
        super().check()
        self.require(self.iterations >= 0, "iterations", "0 or more")
        if not self.iterations and self.init != "real":
            raise ValueError("--iterations 0 leaves the images as they began: it goes with --init real (REAL)")
        self.require(self.rho > 0, "rho", "above 0")
        self.require(self.steps_per_look >= 1, "steps_per_look", "at least 1")
        self.require(not self.tell_examples, "tell_examples", "given with fedlap only: FedDM weighs no clients")
        share = self.count_share
        self.require(share is None or self.is_private, "count_share", "given under differential privacy only")
        self.require(share is None or 0 < share < 1, "count_share", "between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class FedDmOptimisation(RateSchedule):
    """The server's side: SGD on the union of the sets, the weights kept in the ball of radius ρ (Eq. 3 and 10)."""

    rule: Literal["feddm"] = hyper("feddm", "feddm: SGD on the clients' synthetic sets, within ρ of the model.")
    learning_rate: float = hyper(0.01, "Step size in the first round.", symbol="η_s", source="paper")
    rho: float = hyper(
        5.0, "Weights stay within this distance of the model's.", symbol="ρ", source="paper", panel="Surrogates"
    )
    server_epochs: int = hyper(500, "Passes over all sets.", source="paper", panel="Surrogates")
    batch_size: int = hyper(256, "Images in a step.", source="paper", panel="Surrogates")
    images_per_class: int | None = hyper(
        None, "The number that was agreed on; a client that sends more is refused.", symbol="ipc", panel="Surrogates"
    )

    def check(self) -> None:
        super().check()
        self.require(self.rho > 0, "rho", "above 0")
        self.require(self.server_epochs >= 1, "server_epochs", "at least 1")
        self.require(self.batch_size >= 1, "batch_size", "at least 1")
        self.require(self.images_per_class is None or self.images_per_class >= 1, "images_per_class", "at least 1")
