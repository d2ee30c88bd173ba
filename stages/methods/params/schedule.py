"""The step size of a round, and how it changes from round to round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import By, HyperParameters, When, hyper


@dataclass(frozen=True, kw_only=True)
class RateSchedule(HyperParameters):
    """Client and server of one method name the same one, where the paper has one rate for both."""

    learning_rate: float = hyper(0.1, "Step size in the first round.", symbol="η", unit="step size")
    lr_schedule: Literal["constant", "exponential", "cosine", "steps"] = hyper(
        "constant", "How the step size changes from round to round."
    )
    lr_decay: float | None = hyper(
        By("lr_schedule", {"steps": 0.1}),
        "exponential: the factor of each round, such as 0.998; steps: that of each step.",
        when=When("--lr-schedule exponential or steps", lambda params: params.lr_schedule in ("exponential", "steps")),
        unit="factor",
    )
    lr_steps: str | None = hyper(
        None,
        "steps: the rounds from which on the step size is multiplied by --lr-decay once more, such as 81,161.",
        when=When("--lr-schedule steps", lambda params: params.lr_schedule == "steps"),
    )
    schedule_rounds: int | None = hyper(
        None,
        "cosine: the round at which the step size reaches zero.",
        symbol="R",
        when=When("--lr-schedule cosine", lambda params: params.lr_schedule == "cosine"),
        unit="rounds",
    )

    def check(self) -> None:
        super().check()
        self.require(self.learning_rate > 0, "learning_rate", "above 0")
        if self.lr_schedule == "exponential":
            self.require(self.lr_decay is not None, "lr_decay", "given with --lr-schedule exponential")
        if self.lr_schedule == "cosine":
            self.require(self.schedule_rounds is not None, "schedule_rounds", "given with --lr-schedule cosine")
        if self.lr_schedule == "steps":
            self.require(self._steps() is not None, "lr_steps", "rising rounds from 1 on, such as 81,161")
        self.require(self.lr_decay is None or 0 < self.lr_decay <= 1, "lr_decay", "above 0 and at most 1")
        self.require(self.schedule_rounds is None or self.schedule_rounds >= 1, "schedule_rounds", "at least 1")

    def rate(self, round: int) -> float:
        """The step size of a round; rounds count from 1."""
        if self.lr_decay is not None:
            steps = self._steps()
            times = round - 1 if steps is None else sum(round >= step for step in steps)
            return self.learning_rate * self.lr_decay**times
        if self.schedule_rounds is not None:
            done = min(1.0, (round - 1) / self.schedule_rounds)
            return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))
        return self.learning_rate

    def _steps(self) -> list[int] | None:
        """The rounds of `lr_steps`; None where it is none, or not given."""
        words = (self.lr_steps or "").replace(" ", "").split(",")
        if not all(word.isdecimal() for word in words):
            return None
        steps = [int(word) for word in words]
        rising = all(before < after for before, after in zip([0, *steps], steps, strict=False))
        return steps if rising else None
