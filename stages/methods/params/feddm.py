"""Hyper-parameters of FedDM: the client's in `encode --method feddm`, the server's in `aggregate --rule feddm`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from stages.hyperparameters import By, When, hyper
from stages.methods.params.record_privacy import EFFORT, PANEL, WITH_DP
from stages.methods.params.schedule import RateSchedule
from stages.methods.params.surrogates import SurrogateDescent, SurrogateSet
from stages.registry import ENCODERS, RULES

_MATCHING = "feddm: how distributions are matched"
_MATCHED = When("--iterations above 0", lambda params: params.iterations > 0)
_BATCHED = When("--iterations above 0 and without DP", lambda params: params.iterations > 0 and not params.is_private)


@ENCODERS.register
@dataclass(frozen=True, kw_only=True)
class FedDmEncoding(SurrogateSet):
    """Algorithm 1, ClientUpdate."""

    rule: ClassVar[str] = "feddm"

    method: Literal["feddm"] = hyper("feddm", "feddm: a synthetic set whose features are those of the data, by class.")
    iterations: int = hyper(
        1000,
        "Draws of weights, and looks at real data; 0 with --init real sends real images (REAL, simulations only).",
        symbol="T",
        source="paper",
        panel=_MATCHING,
        unit="iterations",
    )
    rho: float = hyper(
        5.0, "Weights are drawn within this distance of the model's; the server relies on it.", symbol="ρ",
        source="paper", panel=_MATCHING, unit="L2 distance",
    )  # fmt: skip
    steps_per_look: int = hyper(
        1,
        "Steps of the images for each look at real data; more cost time, not ε.",
        panel=_MATCHING,
        when=_MATCHED,
        unit="steps",
    )
    batch_size: int = hyper(
        256,
        "Real images of each class in a look.",
        symbol="B",
        source="paper",
        panel=_MATCHING,
        when=_BATCHED,
        unit="images",
    )
    image_descent: Literal["sgd", "adam"] = hyper(
        "sgd", "How the images move: sgd with momentum, or adam.", source="paper", panel=_MATCHING, when=_MATCHED
    )
    image_rate: float = hyper(
        By("image_descent", {"sgd": 1.0, "adam": 0.1}), "Step size of the images' own descent.", symbol="τ",
        source="paper", panel=_MATCHING, when=_MATCHED, unit="step size",
    )  # fmt: skip
    image_momentum: float = hyper(
        0.5, "Its momentum, new each round.", source="paper", panel=_MATCHING,
        when=When(
            "--iterations above 0 and --image-descent sgd",
            lambda params: params.iterations > 0 and params.image_descent == "sgd",
        ),
    )  # fmt: skip
    micro_batch: int | None = hyper(
        None, "Images in a pass of the network, real or synthetic, where fewer than a look's are to be in memory.",
        panel=EFFORT, when=_MATCHED, unit="images",
    )  # fmt: skip
    clip_norm: float | None = hyper(
        By("protection", {"DP": 5.0}), "A record's features, logits and count are clipped to this length together.",
        symbol="C", source="paper", panel=PANEL, when=WITH_DP, unit="L2 norm",
    )  # fmt: skip
    count_share: float | None = hyper(
        By("protection", {"DP": 0.25}), "The part of that length that goes to the counts of the classes.",
        panel=_MATCHING, when=WITH_DP, unit="share",
    )  # fmt: skip

    @property
    def accesses(self) -> int:
        return self.iterations

    def check(self) -> None:
        super().check()
        self.require(self.iterations >= 0, "iterations", "0 or more")
        if not self.iterations and self.init != "real":
            raise ValueError("--iterations 0 leaves the images as they began: it goes with --init real (REAL)")
        self.require(self.rho > 0, "rho", "above 0")
        self.require(self.steps_per_look >= 1, "steps_per_look", "at least 1")
        self.require(not self.tell_examples, "tell_examples", "given with fedlap only: FedDM weighs no clients")
        share = self.count_share
        self.require(not self.is_private or share is not None, "count_share", "given under differential privacy")
        self.require(share is None or 0 < share < 1, "count_share", "between 0 and 1")


@RULES.register
@dataclass(frozen=True, kw_only=True)
class FedDmOptimisation(SurrogateDescent, RateSchedule):
    """The server's side: SGD on the union of the sets, the weights kept in the ball of radius ρ (Eq. 3 and 10)."""

    agrees: ClassVar[Mapping[str, tuple[str, ...]]] = {"encode": ("images_per_class", "rho")}

    rule: Literal["feddm"] = hyper("feddm", "feddm: SGD on the clients' synthetic sets, within ρ of the model.")
    learning_rate: float = hyper(0.01, "Step size in the first round.", symbol="η_s", source="paper", unit="step size")
    rho: float = hyper(
        5.0,
        "Weights stay within this distance of the model's.",
        symbol="ρ",
        source="paper",
        panel="Surrogates",
        unit="L2 distance",
    )
    server_epochs: int = hyper(500, "Passes over all sets.", source="paper", panel="Surrogates", unit="epochs")
    batch_size: int = hyper(256, "Images in a step.", source="paper", panel="Surrogates", unit="images")
    images_per_class: int | None = hyper(
        None,
        "The number that was agreed on; a client that sends more is refused.",
        symbol="ipc",
        panel="Surrogates",
        unit="images",
    )

    def check(self) -> None:
        super().check()
        self.require(self.rho > 0, "rho", "above 0")
        self.require(self.server_epochs >= 1, "server_epochs", "at least 1")
        self.require(self.batch_size >= 1, "batch_size", "at least 1")
        self.require(self.images_per_class is None or self.images_per_class >= 1, "images_per_class", "at least 1")
