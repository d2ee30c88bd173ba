"""What the methods that send synthetic sets (FedLAP, FedDM) have in common on the client. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import hyper
from stages.methods.params.record_privacy import RoundPrivacy

Init = Literal["noise", "previous", "real"]
_SET = "fedlap and feddm: the synthetic set"
_MOST_IMAGES = 10_000
LARGEST_PIXEL = 1e4  # real images lie in −1…1; optimised ones go beyond, but not so far


@dataclass(frozen=True, kw_only=True)
class SurrogateSet(RoundPrivacy):
    """A few images for each class, optimised until they stand in for the client's data near the model's weights."""

    method: str = hyper("", "The paper's name.")
    images_per_class: int = hyper(10, "Synthetic images for each class.", symbol="ipc", source="paper", panel=_SET)
    classes: str | None = hyper(
        None,
        "own: the classes in the client's data, which that tells; all: every class of the model; or a list that is "
        "public, such as 0,3. Default own, under DP all.",
        panel=_SET,
    )
    least_images: int | None = hyper(
        None, "Of the client's own classes, leave out those with fewer real images than this (1).", panel=_SET
    )
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
        "Real images looked at in one go (feddm: of each class). Under DP --sampling-rate draws them, and this is "
        "fedlap's public divisor, the number that you expect.",
        symbol="B",
        source="paper",
        panel=_SET,
    )
    image_rate: float = hyper(1.0, "Step size of the images' own descent.", symbol="τ", panel=_SET)
    image_momentum: float = hyper(0.5, "Its momentum, new each round.", source="paper", panel=_SET)

    @property
    def accesses(self) -> int:
        """How often real data is looked at in a round, at most: what a round is charged for (rule 2)."""
        raise NotImplementedError

    @property
    def chosen_classes(self) -> str:
        return self.classes if self.classes is not None else "all" if self.is_private else "own"

    def check(self) -> None:
        super().check()
        self.require(1 <= self.images_per_class <= _MOST_IMAGES, "images_per_class", f"from 1 to {_MOST_IMAGES}")
        self.require(self.least_images is None or self.least_images >= 1, "least_images", "at least 1")
        counted = self.least_images is None or (self.chosen_classes == "own" and not self.is_private)
        self.require(counted, "least_images", "given with --classes own and without DP only")
        self.require(self.batch_size >= 1, "batch_size", "at least 1")
        self.require(self.image_rate > 0, "image_rate", "above 0")
        self.require(0 <= self.image_momentum < 1, "image_momentum", "from 0 up to, not including, 1")
        if self.is_private and self.init == "real":
            raise ValueError(
                "--init real would send altered real images, which no noise covers. Under differential privacy begin "
                "with noise or with the round before"
            )
        if self.is_private and self.tell_examples:
            raise ValueError("--tell-examples would tell a number without noise; under DP clients weigh the same")
