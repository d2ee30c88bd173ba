"""The step size of a round, and how it changes from round to round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import HyperParameters, hyper


@dataclass(frozen=True, kw_only=True)
class RateSchedule(HyperParameters):
    """Client and server of one method name the same one, where the paper has one rate for both."""

    learning_rate: float = hyper(0.1, "Step size in the first round.", symbol="η")
    lr_schedule: Literal["constant", "exponential", "cosine"] = hyper(
        "constant", "How the step size changes from round to round."
    )
    lr_decay: float | None = hyper(None, "exponential: the factor of each round, such as 0.998.")
    schedule_rounds: int | None = hyper(None, "cosine: the round at which the step size reaches zero.", symbol="R")

    def check(self) -> None:
        super().check()
        self.require(self.learning_rate > 0, "learning_rate", "above 0")
        exponential, cosine = self.lr_schedule == "exponential", self.lr_schedule == "cosine"
        self.require(
            (self.lr_decay is not None) == exponential,
            "lr_decay",
            "given with --lr-schedule exponential, and only then",
        )
        self.require(self.lr_decay is None or 0 < self.lr_decay <= 1, "lr_decay", "above 0 and at most 1")
        self.require(
            (self.schedule_rounds is not None) == cosine,
            "schedule_rounds",
            "given with --lr-schedule cosine, and only then",
        )
        self.require(self.schedule_rounds is None or self.schedule_rounds >= 1, "schedule_rounds", "at least 1")

    def rate(self, round: int) -> float:
        """The step size of a round; rounds count from 1."""
        if self.lr_decay is not None:
            return self.learning_rate * self.lr_decay ** (round - 1)
        if self.schedule_rounds is not None:
            done = min(1.0, (round - 1) / self.schedule_rounds)
            return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))
        return self.learning_rate
