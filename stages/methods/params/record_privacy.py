"""Record-level differential privacy of a training: what the command line says about it. Free of torch.

Under DP the sampling rate, the divisor and the number of steps are public constants, never computed from the client's
number of records (privacy contract, rule 2): a rate of 256/n with a known batch of 256 would publish n.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

from stages.hyperparameters import HyperParameters, hyper

PANEL = "Differential privacy"
_CLIP_NORM = 1.0


@dataclass(frozen=True, kw_only=True)
class RecordPrivacy(HyperParameters):
    """Absent unless a noise multiplier or a target ε is given."""

    noise_multiplier: float | None = hyper(
        None, "Noise of each step, in units of the clip norm; turns DP on.", symbol="σ", panel=PANEL
    )
    target_epsilon: float | None = hyper(
        None, "Instead: the least noise with which the whole training stays within this ε (PLD), at --delta.",
        symbol="ε", panel=PANEL,
    )  # fmt: skip
    delta: float | None = hyper(None, "The δ of --target-epsilon; it has no default.", symbol="δ", panel=PANEL)
    clip_norm: float | None = hyper(
        None,
        "Each record's gradient, over all weights, is clipped to this length (1); feddm: its features, logits and "
        "count (5).",
        symbol="C",
        source="paper",
        panel=PANEL,
    )
    sampling_rate: float | None = hyper(
        None,
        "Each record is in a batch with this probability, secretly; a public constant, as is --batch-size, which "
        "becomes the divisor: the size that you expect.",
        symbol="q",
        panel=PANEL,
    )

    @property
    def is_private(self) -> bool:
        return self.noise_multiplier is not None or self.target_epsilon is not None

    def check(self) -> None:
        super().check()
        if not self.is_private:
            for name in ("delta", "clip_norm", "sampling_rate"):
                self.require(getattr(self, name) is None, name, "given with --noise-multiplier or --target-epsilon")
            return
        if self.noise_multiplier is not None and self.target_epsilon is not None:
            raise ValueError("--noise-multiplier and --target-epsilon exclude each other: give one")
        if self.sampling_rate is None:
            raise ValueError("--sampling-rate needs a value under differential privacy: a public constant")
        if self.target_epsilon is not None and self.delta is None:
            raise ValueError("--delta needs a value with --target-epsilon")
        for name in ("noise_multiplier", "target_epsilon", "clip_norm"):
            value = getattr(self, name)
            self.require(value is None or value > 0, name, "above 0")
        self.require(self.delta is None or 0 < self.delta < 1, "delta", "between 0 and 1")
        self.require(0 < self.sampling_rate <= 1, "sampling_rate", "above 0 and at most 1")

    def calibrated(self, steps: int, **changes: Any) -> Self:
        """With the noise multiplier that the target ε asks for over `steps` steps, in the target's place."""
        if self.target_epsilon is None:
            return self
        from stages.privacy.accountant import calibrated

        assert self.delta is not None and self.sampling_rate is not None  # check saw to it
        noise = calibrated(self.target_epsilon, delta=self.delta, sampling_rate=self.sampling_rate, steps=steps)
        return dataclasses.replace(self, noise_multiplier=noise, target_epsilon=None, **changes)

    @property
    def clip_length(self) -> float:
        return _CLIP_NORM if self.clip_norm is None else self.clip_norm


@dataclass(frozen=True, kw_only=True)
class RoundPrivacy(RecordPrivacy):
    """For a stage that runs once a round: a target ε is to last for all of them."""

    privacy_rounds: int | None = hyper(
        None, "Rounds for which --target-epsilon is to last (1).", symbol="R", panel=PANEL
    )

    def check(self) -> None:
        super().check()
        target = self.target_epsilon is not None
        self.require(target or self.privacy_rounds is None, "privacy_rounds", "given with --target-epsilon only")
        self.require(self.privacy_rounds is None or self.privacy_rounds >= 1, "privacy_rounds", "at least 1")
