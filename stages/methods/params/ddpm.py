"""Hyper-parameters of the diffusion model, Fedssyn's generator (Sec. 4). Free of torch: `--help` reads them."""

from __future__ import annotations

from collections.abc import Mapping
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
from stages.nets.generator_params import ImageShape, UNetSize
from stages.registry import GENERATORS

if TYPE_CHECKING:
    from stages.methods.ddpm import Ddpm

_PANEL = "ddpm"
_MOST_LEVELS = 6


@GENERATORS.register
@dataclass(frozen=True, kw_only=True)
class DdpmTraining(GeneratorTraining):
    """A U-Net that predicts the noise in an image, and the diffusion that it undoes."""

    samplers: ClassVar[Mapping[str, int]] = {"dpm-solver": 25, "ddpm": 250, "ddim": 50}
    libraries: ClassVar[tuple[str, ...]] = ("diffusers",)

    family: Literal["ddpm"] = hyper("ddpm", "ddpm: diffusion, the paper's.", source="paper")
    steps: int | None = steps_of(small=300)
    epochs: int | None = epochs_of(paper=500)
    batch_size: int = batch_size_of(small=32, paper=256)
    learning_rate: float = learning_rate_of(small=4e-3, paper=1e-4)
    ema_decay: float = ema_decay_of(small=0.9995, paper=0.9995)
    base_width: int = hyper(
        By("scale", {"small": 16, "paper": 64}), "Channels at full resolution, a multiple of 8.", source="paper",
        panel=_PANEL, unit="channels",
    )  # fmt: skip
    multipliers: str = hyper(
        By("scale", {"small": "1,2", "paper": "1,2,2,2"}), "Width of each level; each halves the image.",
        source="paper", panel=_PANEL,
    )  # fmt: skip
    residual_blocks: int = hyper(
        By("scale", {"small": 1, "paper": 3}),
        "Residual blocks of each level.",
        source="paper",
        panel=_PANEL,
        unit="blocks",
    )
    attention_from: int = hyper(
        By("scale", {"small": 2, "paper": 1}),
        "First level that attends to itself, 0 being full resolution; the middle always does.",
        source="paper",
        panel=_PANEL,
    )
    dropout: float = hyper(
        By("scale", {"small": 0.0, "paper": 0.1}),
        "Dropout in the residual blocks.",
        source="paper",
        panel=_PANEL,
        unit="probability",
    )
    timesteps: int = hyper(1000, "Length of the diffusion.", symbol="T", source="paper", panel=_PANEL, unit="steps")

    def check(self) -> None:
        super().check()
        self.require(self.residual_blocks >= 1, "residual_blocks", "at least 1")
        self.require(self.timesteps >= 2, "timesteps", "at least 2")
        self.require(0 <= self.dropout < 1, "dropout", "from 0 up to, not including, 1")
        self.require(self.attention_from >= 0, "attention_from", "0 or more")
        whole = self.base_width >= 8 and self.base_width % 8 == 0
        self.require(whole, "base_width", "a multiple of 8 (attention heads are 8 wide)")
        parts = self.multipliers.split(",")
        fits = len(parts) <= _MOST_LEVELS and all(p.strip().isdecimal() and int(p) >= 1 for p in parts)
        self.require(fits, "multipliers", f"1 to {_MOST_LEVELS} whole numbers with commas between, such as 1,2,2")

    def unet(self) -> UNetSize:
        return UNetSize(
            base_width=self.base_width,
            multipliers=tuple(int(part) for part in self.multipliers.split(",")),
            residual_blocks=self.residual_blocks,
            attention_from=self.attention_from,
            dropout=self.dropout,
        )

    def build(self, shape: ImageShape) -> Ddpm:
        from stages.methods.ddpm import Ddpm

        return Ddpm(self, shape)
