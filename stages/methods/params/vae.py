"""Hyper-parameters of the β-VAE, Fedssyn's generator for dSprites (App. A.4). Free of torch: `--help` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from stages.hyperparameters import By, When, hyper
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
    from stages.methods.vae import Vae

_PANEL = "vae"
_WITH_CAPACITY = When("--capacity", lambda params: params.capacity is not None)


@GENERATORS.register
@dataclass(frozen=True, kw_only=True)
class VaeTraining(GeneratorTraining):
    """An encoder and a decoder with a Gaussian code between them."""

    small_up_to: ClassVar[int | None] = None

    family: Literal["vae"] = hyper("vae", "vae: β-VAE, the paper's for dSprites.", source="paper")
    steps: int | None = steps_of(small=600)
    epochs: int | None = epochs_of(paper=360)
    batch_size: int = batch_size_of(small=64, paper=256)
    learning_rate: float = learning_rate_of(small=2e-3, paper=5e-4)
    ema_decay: float = ema_decay_of(small=0.0, paper=0.0)
    latent_size: int = hyper(10, "Dimensions of the latent code.", source="paper", panel=_PANEL, unit="dimensions")
    filters: int = hyper(32, "Channels of the convolutions.", source="paper", panel=_PANEL, unit="channels")
    hidden_size: int = hyper(256, "Units of the fully connected layers.", source="paper", panel=_PANEL, unit="units")
    beta: float = hyper(
        By("scale", {"small": 0.3, "paper": 4.0}), "Weight of the KL term.", symbol="β", panel=_PANEL,
        when=When("no --capacity", lambda params: params.capacity is None),
    )  # fmt: skip
    capacity: float | None = hyper(
        None,
        "In place of --beta: the KL is held at a capacity that grows from 0 to so many nats (Burgess et al.: 25).",
        symbol="C",
        panel=_PANEL,
    )
    capacity_steps: int = hyper(
        100_000,
        "Steps in which the capacity grows, evenly; then it stays.",
        panel=_PANEL,
        when=_WITH_CAPACITY,
        unit="steps",
    )
    gamma: float = hyper(
        1000.0, "Weight of the distance from the capacity, |KL − C|.", symbol="γ", panel=_PANEL, when=_WITH_CAPACITY
    )
    conditioning: Literal["label", "class-mean"] = hyper(
        By("scale", {"small": "label", "paper": "class-mean"}),
        "label: encoder and decoder see the class; class-mean: codes are drawn around the class's mean, N(μ_c, I).",
        source="paper",
        panel=_PANEL,
    )

    def check(self) -> None:
        super().check()
        for name in ("latent_size", "filters", "hidden_size"):
            self.require(getattr(self, name) >= 1, name, "at least 1")
        self.require(self.beta >= 0, "beta", "0 or more")
        self.require(self.capacity is None or self.capacity >= 0, "capacity", "0 or more")
        self.require(self.capacity_steps >= 1, "capacity_steps", "at least 1")
        self.require(self.gamma >= 0, "gamma", "0 or more")
        if self.is_private and self.conditioning == "class-mean":
            raise ValueError(
                "--conditioning class-mean is refused under differential privacy: the mean codes of the classes "
                "would be taken from the images without noise. Use --conditioning label"
            )

    def build(self, shape: ImageShape) -> Vae:
        from stages.methods.vae import Vae

        return Vae(self, shape)
