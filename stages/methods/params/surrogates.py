"""What the methods that send synthetic sets (FedLAP, FedDM) have in common on the client. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from stages.hyperparameters import By, When, hyper
from stages.methods.params.aggregation import Rule
from stages.methods.params.encoding import Encoder
from stages.methods.params.record_privacy import MicroBatch, PrivateMicroBatch, RoundPrivacy

Init = Literal["noise", "previous", "real"]
_SET = "fedlap and feddm: the synthetic set"
_MOST_IMAGES = 10_000
LARGEST_PIXEL = 1e4  # real images lie in −1…1; optimised ones go beyond, but not so far


@dataclass(frozen=True, kw_only=True)
class SurrogateSet(Encoder, RoundPrivacy, PrivateMicroBatch):
    """A few images for each class, optimised until they represent the client's data near the model's weights."""

    performed_by: ClassVar[str] = "stages.surrogates.client:encode_surrogate"
    kind: ClassVar[str] = "surrogate"
    checked_by: ClassVar[str | None] = "stages.audit.contents:surrogate_misfits"
    reads: ClassVar[tuple[str, ...]] = ("data",)
    takes: ClassVar[tuple[str, ...]] = ("previous", "metrics")
    on_device: ClassVar[bool] = True

    images_per_class: int = hyper(
        10, "Synthetic images for each class.", symbol="ipc", source="paper", panel=_SET, unit="images"
    )
    classes: str = hyper(
        By("protection", {"DP": "all", "no noise": "own"}),
        "own: the classes in the client's data, which discloses them; all: every class of the model; or a list that "
        "is public, such as 0,3.",
        panel=_SET,
    )
    least_images: int = hyper(
        1, "Of the client's own classes, leave out those with fewer real images than this.", panel=_SET, unit="images",
        when=When("--classes own and without DP", lambda params: params.classes == "own" and not params.is_private),
    )  # fmt: skip
    init: Init = hyper(
        "noise",
        "What the images begin as: Gaussian noise; the set of the round before, given by --previous; or real images, "
        "which then leave altered, and is declared.",
        panel=_SET,
    )
    tell_examples: bool = hyper(
        False, "State the number of training examples, for `aggregate --weights examples`. It is declared."
    )
    batch_size: int = hyper(
        256,
        "Real images looked at together (feddm: of each class, and without DP only). Under DP --sampling-rate draws "
        "them, and for fedlap this is the public divisor, the number that you expect.",
        symbol="B",
        source="paper",
        panel=_SET,
        unit="images",
    )
    image_descent: Literal["sgd", "adam"] = hyper(
        "sgd",
        "How the images move: sgd with momentum, whose step size depends on the network and the images' size; or adam, "
        "whose steps are about --image-rate for every pixel (real ones lie in −1…1), whatever the network.",
        source="paper",
        panel=_SET,
    )
    image_rate: float = hyper(
        By("image_descent", {"sgd": 1.0, "adam": 0.1}),
        "Step size of the images' own descent.",
        symbol="τ",
        panel=_SET,
        unit="step size",
    )
    image_momentum: float = hyper(
        0.5, "Its momentum, new each round.", source="paper", panel=_SET,
        when=When("--image-descent sgd", lambda params: params.image_descent == "sgd"),
    )  # fmt: skip

    @property
    def accesses(self) -> int:
        """How often real data is looked at in a round, at most: what a round is charged for (rule 2)."""
        raise NotImplementedError

    def check(self) -> None:
        super().check()
        self.require(1 <= self.images_per_class <= _MOST_IMAGES, "images_per_class", f"from 1 to {_MOST_IMAGES}")
        self.require(self.least_images >= 1, "least_images", "at least 1")
        self.require(self.batch_size >= 1, "batch_size", "at least 1")
        self.require(self.image_rate > 0, "image_rate", "above 0")
        self.require(0 <= self.image_momentum < 1, "image_momentum", "from 0 up to, not including, 1")
        if self.is_private and self.init == "real":
            raise ValueError(
                "--init real would send altered real images, which no noise covers. Under differential privacy begin "
                "with noise or with the round before"
            )
        if self.is_private and self.tell_examples:
            raise ValueError("--tell-examples would send a number without noise; under DP clients weigh the same")


@dataclass(frozen=True, kw_only=True)
class SurrogateDescent(Rule, MicroBatch):
    """The server's side: descent on the clients' sets."""

    performed_by: ClassVar[str] = "stages.surrogates.server:aggregate_surrogates"
    reads: ClassVar[str] = "surrogate"
    takes: ClassVar[tuple[str, ...]] = ("strict", "metrics", "seed")
    on_device: ClassVar[bool] = True
