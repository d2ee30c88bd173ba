"""Hyper-parameters of class-conditional generators. Free of torch: `--help` reads them.

Fedssyn (Sec. 4, App. A.4) trains a DDPM on each client, a β-VAE on dSprites, and compares with GANs (Fig. 4c). One
class declares them all: a field that belongs to a family stands under its name in `--help`, and giving it to another
is an error. What is not given comes from `--scale`, and the metadata spell it out: a file must stay readable if a later
version changes its defaults.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from stages.hyperparameters import hyper
from stages.methods.params.record_privacy import PANEL, RecordPrivacy
from stages.nets.generator_params import UNetSize

GeneratorFamily = Literal["ddpm", "vae", "gan"]

# Where Fedssyn prints a number, `paper` is that number; the rest of `paper`, and all of `small`, is ours.
_DEFAULTS: dict[tuple[str, str], dict[str, Any]] = {
    ("ddpm", "small"): {
        "steps": 300, "batch_size": 32, "learning_rate": 4e-3, "ema_decay": 0.9995, "base_width": 16,
        "multipliers": "1,2", "residual_blocks": 1, "attention_from": 2, "dropout": 0.0, "timesteps": 1000,
    },
    ("ddpm", "paper"): {
        "epochs": 500, "batch_size": 256, "learning_rate": 1e-4, "ema_decay": 0.9995, "base_width": 64,
        "multipliers": "1,2,2,2", "residual_blocks": 3, "attention_from": 1, "dropout": 0.1, "timesteps": 1000,
    },
    ("vae", "small"): {
        "steps": 600, "batch_size": 64, "learning_rate": 2e-3, "ema_decay": 0.0, "latent_size": 10, "filters": 32,
        "hidden_size": 256, "beta": 0.3, "conditioning": "label",
    },
    ("vae", "paper"): {
        "epochs": 360, "batch_size": 256, "learning_rate": 5e-4, "ema_decay": 0.0, "latent_size": 10, "filters": 32,
        "hidden_size": 256, "beta": 4.0, "conditioning": "class-mean",
    },
    ("gan", "small"): {
        "steps": 500, "batch_size": 32, "learning_rate": 2e-3, "ema_decay": 0.99, "latent_size": 16, "filters": 16,
        "r1": 0.1,
    },
    ("gan", "paper"): {
        "epochs": 500, "batch_size": 256, "learning_rate": 2e-4, "ema_decay": 0.999, "latent_size": 100, "filters": 64,
        "r1": 0.1,
    },
}  # fmt: skip
_OWN = {"base_width", "multipliers", "residual_blocks", "attention_from", "dropout", "timesteps", "latent_size",
        "filters", "hidden_size", "beta", "conditioning", "r1"}  # fmt: skip
_MOST_LEVELS = 6


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """How weights follow gradients, whatever the family."""

    batch_size: int
    learning_rate: float
    weight_decay: float
    ema_decay: float


@dataclass(frozen=True, kw_only=True)
class GeneratorTraining(RecordPrivacy):
    """A class-conditional generator and its training, differentially private if noise is asked for."""

    family: GeneratorFamily = hyper("ddpm", "Kind of generator.", source="paper")
    scale: Literal["small", "paper"] = hyper(
        "small", "Where all that is not given comes from: small trains in seconds on 8×8 digits, paper is Fedssyn's."
    )
    data_fraction: float = hyper(
        0.75, "Share of the client's images, drawn once, that the generator sees.", symbol="ρ", source="paper"
    )
    epochs: int | None = hyper(None, "Passes over those images (paper: 500; vae 360).", symbol="E", source="paper")
    steps: int | None = hyper(None, "Gradient steps, instead of epochs (small: ddpm 300, vae 600, gan 500).")
    batch_size: int | None = hyper(
        None, "Images in a step (paper: 256; small: 32, vae 64).", symbol="B", source="paper"
    )
    learning_rate: float | None = hyper(
        None,
        "Step size (paper: ddpm 1e-4, vae 5e-4, gan 2e-4; small: ddpm 4e-3, else 2e-3).",
        symbol="η",
        source="paper",
    )
    weight_decay: float = hyper(0.01, "Weight decay of AdamW.")
    ema_decay: float | None = hyper(
        None,
        "What a running average of the weights keeps in a step, once warm; 0: no average (ddpm 0.9995, the paper's).",
        source="paper",
    )
    base_width: int | None = hyper(
        None, "Channels at full resolution, a multiple of 8 (paper 64, small 16).", source="paper", panel="ddpm"
    )
    multipliers: str | None = hyper(
        None, "Width of each level; each halves the image (paper 1,2,2,2; small 1,2).", source="paper", panel="ddpm"
    )
    residual_blocks: int | None = hyper(
        None, "Residual blocks of each level (paper 3, small 1).", source="paper", panel="ddpm"
    )
    attention_from: int | None = hyper(
        None,
        "First level that attends to itself, 0 being full resolution; the middle always does (paper 1, small 2).",
        source="paper",
        panel="ddpm",
    )
    dropout: float | None = hyper(None, "Dropout in the residual blocks (paper 0.1, small 0).", panel="ddpm")
    timesteps: int | None = hyper(None, "Length of the diffusion (1000).", symbol="T", source="paper", panel="ddpm")
    latent_size: int | None = hyper(
        None, "Dimensions of the latent code (vae 10, the paper's; gan 100, small 16).", panel="vae, gan"
    )
    filters: int | None = hyper(None, "Channels of the convolutions (vae 32; gan 64, small 16).", panel="vae, gan")
    hidden_size: int | None = hyper(None, "Units of the fully connected layers (256).", source="paper", panel="vae")
    beta: float | None = hyper(None, "Weight of the KL term (paper 4, small 0.3; ours).", symbol="β", panel="vae")
    conditioning: Literal["label", "class-mean"] | None = hyper(
        None,
        "label: encoder and decoder see the class (small); class-mean: codes are drawn around the class's mean code, "
        "N(μ_c, I) (paper).",
        source="paper",
        panel="vae",
    )

    r1: float | None = hyper(
        None, "Weight of the penalty on the discriminator's slope at real images (0.1).", symbol="γ", panel="gan"
    )

    noise_multiplicity: int | None = hyper(
        None,
        "Draws of time and noise for each image before its gradient is clipped (1): costs time, not ε.",
        symbol="K",
        panel=PANEL,
    )

    def check(self) -> None:
        super().check()
        if self.epochs is not None and self.steps is not None:
            raise ValueError("--epochs and --steps exclude each other: give one")
        if self.is_private:
            if self._length()[0] != "steps":
                raise ValueError("--steps needs a value under differential privacy: epochs would tell how many images")
            if self.family == "vae" and self.value("conditioning") == "class-mean":
                raise ValueError(
                    "--conditioning class-mean is refused under differential privacy: the mean codes of the classes "
                    "would be taken from the images without noise. Use --conditioning label"
                )
        self.require(self.is_private or self.noise_multiplicity is None, "noise_multiplicity", "given under DP only")
        self.require(
            self.noise_multiplicity is None or self.noise_multiplicity >= 1, "noise_multiplicity", "at least 1"
        )
        for name in sorted(_OWN - _DEFAULTS[self.family, self.scale].keys()):
            owners = " and ".join(f for f in ("ddpm", "vae", "gan") if name in _DEFAULTS[f, self.scale])
            self.require(
                getattr(self, name) is None, name, f"absent with --family {self.family} (it belongs to {owners})"
            )
        self.require(0 < self.data_fraction <= 1, "data_fraction", "above 0 and at most 1")
        self.require(self.weight_decay >= 0, "weight_decay", "0 or more")
        for name in ("epochs", "steps", "batch_size", "residual_blocks", "latent_size", "filters", "hidden_size"):
            value = getattr(self, name)
            self.require(value is None or value >= 1, name, "at least 1")
        self.require(self.learning_rate is None or self.learning_rate > 0, "learning_rate", "above 0")
        self.require(self.timesteps is None or self.timesteps >= 2, "timesteps", "at least 2")
        for name in ("ema_decay", "dropout"):
            value = getattr(self, name)
            self.require(value is None or 0 <= value < 1, name, "from 0 up to, not including, 1")
        for name in ("beta", "r1"):
            value = getattr(self, name)
            self.require(value is None or value >= 0, name, "0 or more")
        self.require(self.attention_from is None or self.attention_from >= 0, "attention_from", "0 or more")
        self.require(
            self.base_width is None or (self.base_width >= 8 and self.base_width % 8 == 0),
            "base_width",
            "a multiple of 8 (attention heads are 8 wide)",
        )
        if self.multipliers is not None:
            parts = self.multipliers.split(",")
            fits = len(parts) <= _MOST_LEVELS and all(p.strip().isdecimal() and int(p) >= 1 for p in parts)
            self.require(fits, "multipliers", f"1 to {_MOST_LEVELS} whole numbers with commas between, such as 1,2,2")

    def value(self, name: str) -> Any:
        """The field as given, or the default of family and scale."""
        given = getattr(self, name)
        return _DEFAULTS[self.family, self.scale].get(name) if given is None else given

    def num_steps(self, num_examples: int) -> int:
        """Gradient steps in all: as given, or E·⌈n/B⌉."""
        unit, length = self._length()
        return length if unit == "steps" else length * -(-num_examples // int(self.value("batch_size")))

    def num_examples(self, available: int) -> int:
        """ρ·n, rounded, and never none."""
        return max(1, int(self.data_fraction * available + 0.5))

    def optimisation(self) -> Optimisation:
        return Optimisation(
            batch_size=self.value("batch_size"),
            learning_rate=self.value("learning_rate"),
            weight_decay=self.weight_decay,
            ema_decay=self.value("ema_decay"),
        )

    def unet(self) -> UNetSize:
        return UNetSize(
            base_width=self.value("base_width"),
            multipliers=tuple(int(part) for part in self.value("multipliers").split(",")),
            residual_blocks=self.value("residual_blocks"),
            attention_from=self.value("attention_from"),
            dropout=self.value("dropout"),
        )

    def to_json(self) -> dict[str, Any]:
        unit, length = self._length()
        resolved = {f.name: self.value(f.name) for f in dataclasses.fields(self) if f.name not in ("epochs", "steps")}
        return {name: value for name, value in resolved.items() if value is not None} | {unit: length}

    def _length(self) -> tuple[str, int]:
        """How long the training is, and whether in steps or in epochs."""
        if self.steps is not None:
            return "steps", self.steps
        if self.epochs is not None:
            return "epochs", self.epochs
        defaults = _DEFAULTS[self.family, self.scale]
        unit = "steps" if "steps" in defaults else "epochs"
        return unit, defaults[unit]
