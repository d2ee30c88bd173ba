"""What every class-conditional generator is trained with. Free of torch: `--help` reads it.

A family is a subclass beside this module, registered in `GENERATORS`: its own hyper-parameters, its defaults for each
scale, and the facts below. Fedssyn (Sec. 4, App. A.4) trains a DDPM on each client, a β-VAE on dSprites, and compares
with GANs (Fig. 4c). Where it prints a number, the scale `paper` has that number; the rest of `paper`, and all of
`small`, is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from stages.hyperparameters import By, When, hyper
from stages.methods.params.record_privacy import PANEL, Effort
from stages.nets.generator_params import ImageShape

if TYPE_CHECKING:
    from stages.methods.generator_training import Generator


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """How weights follow gradients, whatever the family."""

    batch_size: int
    learning_rate: float
    weight_decay: float
    ema_decay: float


def steps_of(small: int) -> Any:
    return hyper(By("scale", {"small": small}, unless="epochs"), "Gradient steps, instead of epochs.")


def epochs_of(paper: int) -> Any:
    default = By("scale", {"paper": paper}, unless="steps")
    return hyper(default, "Passes over the images.", symbol="E", source="paper")


def batch_size_of(small: int, paper: int) -> Any:
    return hyper(By("scale", {"small": small, "paper": paper}), "Images in a step.", symbol="B", source="paper")


def learning_rate_of(small: float, paper: float) -> Any:
    return hyper(By("scale", {"small": small, "paper": paper}), "Step size.", symbol="η", source="paper")


def ema_decay_of(small: float, paper: float) -> Any:
    text = "What a running average of the weights keeps in a step, once warm; 0: no average."
    return hyper(By("scale", {"small": small, "paper": paper}), text, source="paper")


@dataclass(frozen=True, kw_only=True)
class GeneratorTraining(Effort):
    """A class-conditional generator and its training, differentially private if noise is asked for.

    `samplers` are the ways to draw an image in several steps, each with its usual number of steps, the default one
    first; none where one step does. `libraries` beyond torch decide about the result, so that files name their
    versions. `learnt_classes` names the tensor of a family that knows which classes it can make.
    """

    samplers: ClassVar[Mapping[str, int]] = {}
    libraries: ClassVar[tuple[str, ...]] = ()
    learnt_classes: ClassVar[str | None] = None
    small_up_to: ClassVar[int | None] = 16
    """The largest side, in pixels, of which the scale `small` makes readable images; None: any."""

    family: str = hyper("", "Kind of generator.", source="paper")
    scale: Literal["small", "paper"] = hyper(
        "small", "Where all that is not given comes from: small trains in seconds on 8×8 digits, paper is Fedssyn's."
    )
    data_fraction: float = hyper(
        0.75,
        "Share of the client's images, drawn once, that the generator sees.",
        symbol="ρ",
        source="paper",
        unit="share",
    )
    steps: int | None = steps_of(1)
    epochs: int | None = epochs_of(1)
    batch_size: int = batch_size_of(1, 1)
    learning_rate: float = learning_rate_of(1.0, 1.0)
    weight_decay: float = hyper(0.01, "Weight decay of AdamW.")
    ema_decay: float = ema_decay_of(0.0, 0.0)
    noise_multiplicity: int = hyper(
        1,
        "Draws of time and noise for each image before its gradient is clipped: costs time, not ε.",
        symbol="K",
        panel=PANEL,
        when=When("--noise-multiplier or --target-epsilon", lambda params: params.is_private),
        unit="draws",
    )

    def check(self) -> None:
        super().check()
        if self.epochs is not None and self.steps is not None:
            raise ValueError("--epochs and --steps exclude each other: give one")
        if self.epochs is None and self.steps is None:
            raise ValueError("--epochs or --steps needs a value")
        if self.is_private and self.steps is None:
            raise ValueError(
                "--steps needs a value under differential privacy: from epochs one could tell how many images there are"
            )
        self.require(0 < self.data_fraction <= 1, "data_fraction", "above 0 and at most 1")
        self.require(self.weight_decay >= 0, "weight_decay", "0 or more")
        self.require(self.steps is None or self.steps >= 1, "steps", "at least 1")
        self.require(self.epochs is None or self.epochs >= 1, "epochs", "at least 1")
        self.require(self.batch_size >= 1, "batch_size", "at least 1")
        self.require(self.learning_rate > 0, "learning_rate", "above 0")
        self.require(0 <= self.ema_decay < 1, "ema_decay", "from 0 up to, not including, 1")
        self.require(self.noise_multiplicity >= 1, "noise_multiplicity", "at least 1")

    def warnings(self, side: int) -> list[str]:
        """What to know before a training on images of this size."""
        most = self.small_up_to
        if self.scale != "small" or most is None or side <= most:
            return []
        return [
            f"--scale small of --family {self.family} is made for images of 8×8; of {side} pixels they are hardly "
            "readable. Take --family vae, or --scale paper and hours"
        ]

    def build(self, shape: ImageShape) -> Generator:
        """The family, ready to train or to sample. Raises `ValueError` where it cannot make such images."""
        raise NotImplementedError

    def num_steps(self, num_examples: int) -> int:
        """Gradient steps in all: as given, or E·⌈n/B⌉."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None  # check saw to it
        return self.epochs * -(-num_examples // self.batch_size)

    def releases(self, steps: int) -> int:
        """How often images are looked at under noise in so many steps: once in each."""
        return steps

    def num_examples(self, available: int) -> int:
        """ρ·n, rounded, and never none."""
        return max(1, int(self.data_fraction * available + 0.5))

    def optimisation(self) -> Optimisation:
        return Optimisation(
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            ema_decay=self.ema_decay,
        )
