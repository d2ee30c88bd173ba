"""Hyper-parameters of the conditional GAN, to compare with (Fedssyn, Fig. 4c). Free of torch: `--help` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stages.hyperparameters import By, hyper
from stages.methods.params.generator import (
    GeneratorTraining,
    batch_size_of,
    ema_decay_of,
    epochs_of,
    learning_rate_of,
    steps_of,
)
from stages.nets.generator_params import ImageShape
from stages.registry import GENERATORS

if TYPE_CHECKING:
    from stages.methods.gan import Gan

_PANEL = "gan"


@GENERATORS.register
@dataclass(frozen=True, kw_only=True)
class GanTraining(GeneratorTraining):
    """A generator and the discriminator that it has to deceive. Fedssyn prints no sizes: these are ours."""

    family: Literal["gan"] = hyper("gan", "gan: generator against discriminator.", source="paper")
    steps: int | None = steps_of(small=500)
    epochs: int | None = epochs_of(paper=500)
    batch_size: int = batch_size_of(small=32, paper=256)
    learning_rate: float = learning_rate_of(small=2e-3, paper=2e-4)
    ema_decay: float = ema_decay_of(small=0.99, paper=0.999)
    latent_size: int = hyper(
        By("scale", {"small": 16, "paper": 100}), "Dimensions of the latent code.", panel=_PANEL, unit="dimensions"
    )
    filters: int = hyper(
        By("scale", {"small": 16, "paper": 64}), "Channels of the convolutions.", panel=_PANEL, unit="channels"
    )
    r1: float = hyper(
        0.1, "Weight of the penalty on the discriminator's slope at real images.", symbol="γ", panel=_PANEL
    )

    def check(self) -> None:
        super().check()
        for name in ("latent_size", "filters"):
            self.require(getattr(self, name) >= 1, name, "at least 1")
        self.require(self.r1 >= 0, "r1", "0 or more")

    def build(self, shape: ImageShape) -> Gan:
        from stages.methods.gan import Gan

        return Gan(self, shape)
