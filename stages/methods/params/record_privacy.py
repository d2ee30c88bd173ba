"""Differential privacy of a training for records or people: what the command line says about it. Free of torch.

Under DP the sampling rate, the divisor and the number of steps are public constants, never computed from the client's
number of records (privacy contract, rule 2): a rate of 256/n with a known batch of 256 would publish n.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, Self

from stages.hyperparameters import By, HyperParameters, When, hyper

PANEL = "Differential privacy"
EFFORT = "Memory and speed"
PRIVATE_PIECES = (2, 4, 8, 16, 32, 64)  # for which `stages.privacy.clipped_total` bounds the rounding
WITH_DP = When("--noise-multiplier or --target-epsilon", lambda params: params.is_private)
_TARGET = When("--target-epsilon", lambda params: params.target_epsilon is not None)


@dataclass(frozen=True, kw_only=True)
class RecordPrivacy(HyperParameters):
    """Absent unless a noise multiplier or a target ε is given."""

    noise_multiplier: float | None = hyper(
        None, "Noise of each step, in units of the clip norm; turns DP on.", symbol="σ", panel=PANEL, unit="clip norms"
    )
    target_epsilon: float | None = hyper(
        None, "Instead: the least noise with which the whole training stays within this ε (PLD), at --delta.",
        symbol="ε", panel=PANEL, unit="ε",
    )  # fmt: skip
    delta: float | None = hyper(
        None,
        "The δ at which ε is stated, and that of --target-epsilon; it has no default.",
        symbol="δ",
        panel=PANEL,
        when=WITH_DP,
        unit="probability",
    )
    clip_norm: float | None = hyper(
        By("protection", {"DP": 1.0}),
        "Each record's gradient, over all weights, is clipped to this length.",
        symbol="C", source="paper", panel=PANEL, when=WITH_DP, unit="L2 norm",
    )  # fmt: skip
    unit: Literal["record", "person"] | None = hyper(
        By("protection", {"DP": "record"}),
        "Who is protected: one record; or a person with all of their records, which are drawn and clipped as one. The "
        "data must then say whose they are (ingest --unit-column); --sampling-rate and --batch-size count people.",
        panel=PANEL, when=WITH_DP,
    )  # fmt: skip
    sampling_rate: float | None = hyper(
        None,
        "Each record is in a batch with this probability, secretly; a public constant, as is --batch-size, which "
        "becomes the divisor: the size that you expect.",
        symbol="q",
        panel=PANEL,
        when=WITH_DP,
        unit="probability",
    )

    @property
    def is_private(self) -> bool:
        return self.noise_multiplier is not None or self.target_epsilon is not None

    @property
    def protection(self) -> Literal["DP", "no noise"]:
        """For defaults that follow from it: `By("protection", …)`."""
        return "DP" if self.is_private else "no noise"

    def check(self) -> None:
        super().check()
        if not self.is_private:
            return
        if self.noise_multiplier is not None and self.target_epsilon is not None:
            raise ValueError("--noise-multiplier and --target-epsilon exclude each other: give one")
        if self.clip_norm is None:
            raise ValueError("--clip-norm needs a value under differential privacy")
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


@dataclass(frozen=True, kw_only=True)
class MicroBatch(HyperParameters):
    """A batch in pieces, where the network's passes over it take more memory than there is."""

    micro_batch: int | None = hyper(
        None,
        "Examples in a pass of the network: a batch's gradient is summed over pieces of this size. The batch stays "
        "what it is, and under DP its noise is added once.",
        panel=EFFORT,
        unit="images",
    )

    def check(self) -> None:
        super().check()
        self.require(self.micro_batch is None or self.micro_batch >= 1, "micro_batch", "at least 1")


@dataclass(frozen=True, kw_only=True)
class PrivateMicroBatch(RecordPrivacy, MicroBatch):
    """The same where each record may be clipped."""

    def check(self) -> None:
        super().check()
        if self.is_private and self.micro_batch is not None:
            sizes = ", ".join(map(str, PRIVATE_PIECES))
            self.require(
                self.micro_batch in PRIVATE_PIECES, "micro_batch", f"one of {sizes} under differential privacy"
            )


@dataclass(frozen=True, kw_only=True)
class Effort(PrivateMicroBatch):
    """How a training's arithmetic is done."""

    precision: Literal["bf16"] | None = hyper(
        None,
        "bf16: the network's two passes in 16 bits; weights, their steps and the loss stay float32, which is all there "
        "is if not given. Not under DP.",
        panel=EFFORT,
    )

    def check(self) -> None:
        super().check()
        if self.is_private and self.precision is not None:
            raise ValueError(
                f"--precision {self.precision} does not go with --noise-multiplier or --target-epsilon: the bound on "
                "what one record changes is proven for gradients in float32. Leave it out"
            )


@dataclass(frozen=True, kw_only=True)
class RoundPrivacy(RecordPrivacy):
    """For a stage that runs once a round: a target ε is to last for all of them."""

    privacy_rounds: int = hyper(
        1, "Rounds for which --target-epsilon is to last.", symbol="R", panel=PANEL, when=_TARGET, unit="rounds"
    )

    def check(self) -> None:
        super().check()
        self.require(self.privacy_rounds >= 1, "privacy_rounds", "at least 1")
