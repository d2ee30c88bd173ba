"""Hyper-parameters of DP-MERF (Harder et al. 2021). Free of torch: `--help` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from stages.hyperparameters import By, hyper
from stages.methods.params.generator import (
    GeneratorTraining,
    batch_size_of,
    ema_decay_of,
    epochs_of,
    learning_rate_of,
    steps_of,
)
from stages.methods.params.record_privacy import PANEL, WITH_DP
from stages.nets.generator_params import ImageShape
from stages.registry import GENERATORS

if TYPE_CHECKING:
    from stages.methods.merf import Merf

LEARNT_CLASSES = "learnt_classes"
_PANEL = "merf"


@GENERATORS.register
@dataclass(frozen=True, kw_only=True)
class MerfTraining(GeneratorTraining):
    """A generator whose random features have the classes' means. The images are looked at once, whatever the steps."""

    learnt_classes: ClassVar[str | None] = LEARNT_CLASSES
    small_up_to: ClassVar[int | None] = None

    family: Literal["merf"] = hyper("merf", "merf: DP-MERF, random features; one noised look at the images.")
    steps: int | None = steps_of(small=400)
    epochs: int | None = epochs_of(paper=100)
    batch_size: int = batch_size_of(small=128, paper=500)
    learning_rate: float = learning_rate_of(small=2e-3, paper=1e-2)
    ema_decay: float = ema_decay_of(small=0.9, paper=0.99)
    features: int = hyper(
        By("scale", {"small": 1000, "paper": 10_000}),
        "Random features, half cosines and half sines.",
        panel=_PANEL,
        unit="features",
    )
    bandwidth: float = hyper(
        0.3,
        "Width of the Gaussian kernel: the square of its length, for each pixel; their values are from −1 to 1.",
        panel=_PANEL,
    )
    latent_size: int = hyper(
        By("scale", {"small": 10, "paper": 5}), "Dimensions of the latent code.", panel=_PANEL, unit="dimensions"
    )
    filters: int = hyper(32, "Channels of the convolutions.", panel=_PANEL, unit="channels")
    hidden_size: int = hyper(256, "Units of the fully connected layers.", panel=_PANEL, unit="units")
    sampling_rate: float | None = hyper(
        By("protection", {"DP": 1.0}), "1: every record is in the one sum that is released.",
        symbol="q", panel=PANEL, when=WITH_DP, unit="probability",
    )  # fmt: skip

    def check(self) -> None:
        super().check()
        self.require(self.features >= 2 and self.features % 2 == 0, "features", "an even number, at least 2")
        self.require(self.bandwidth > 0, "bandwidth", "above 0")
        for name in ("latent_size", "filters", "hidden_size"):
            self.require(getattr(self, name) >= 1, name, "at least 1")
        if self.is_private:
            self.require(self.sampling_rate == 1, "sampling_rate", "1: all records are in the one sum")
            self.require(self.noise_multiplicity == 1, "noise_multiplicity", "1: no gradient is noised")
        self.require(self.micro_batch is None, "micro_batch", "left out: features are summed a few images at a time")

    def releases(self, steps: int) -> int:  # noqa: ARG002  (as the others have it)
        return 1

    def build(self, shape: ImageShape) -> Merf:
        from stages.methods.merf import Merf

        return Merf(self, shape)
