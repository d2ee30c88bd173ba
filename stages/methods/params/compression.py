"""Hyper-parameters of plain compression: `encode --method quantised|topk|lowrank`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from stages.hyperparameters import hyper
from stages.methods.params.encoding import Encoder
from stages.registry import ENCODERS


@dataclass(frozen=True, kw_only=True)
class Compression(Encoder):
    """Base of the plain ways to send an update in fewer bytes; they hide nothing."""

    performed_by: ClassVar[str] = "stages.compression.encoder:encode_compressed"
    kind: ClassVar[str] = "compressed"
    decoded_by: ClassVar[str | None] = "stages.compression.file:expanded"
    checked_by: ClassVar[str | None] = "stages.audit.contents:compressed_misfits"
    reads: ClassVar[tuple[str, ...]] = ("update",)


@ENCODERS.register
@dataclass(frozen=True, kw_only=True)
class Quantisation(Compression):
    """A few bits a number."""

    method: Literal["quantised"] = hyper("quantised", "quantised: the update in a few bits a number.")
    bits: int = hyper(8, "Bits of each number.", panel="quantised", unit="bits")
    block: int = hyper(256, "So many numbers share one range.", panel="quantised", unit="numbers")
    rounding: Literal["stochastic", "nearest"] = hyper(
        "stochastic",
        "stochastic: up or down at random, so that the mean is right; nearest: less error in one message, but biased.",
        panel="quantised",
    )

    def check(self) -> None:
        super().check()
        self.require(1 <= self.bits <= 8, "bits", "from 1 to 8")
        self.require(1 <= self.block <= 1 << 24, "block", "from 1 to 16,777,216")


@ENCODERS.register
@dataclass(frozen=True, kw_only=True)
class TopK(Compression):
    """The largest numbers with their places."""

    takes: ClassVar[tuple[str, ...]] = ("previous", "error_out")

    method: Literal["topk"] = hyper(
        "topk", "topk: the largest numbers of the update; --error-out and --previous carry the rest to the next round."
    )
    keep: float = hyper(0.01, "Share of the numbers that are sent.", symbol="k/d", panel="topk", unit="share")

    def check(self) -> None:
        super().check()
        self.require(0 < self.keep <= 1, "keep", "above 0 and at most 1")


@ENCODERS.register
@dataclass(frozen=True, kw_only=True)
class LowRank(Compression):
    """Each matrix as a product of two thin ones."""

    method: Literal["lowrank"] = hyper("lowrank", "lowrank: each layer's update as a product of two thin matrices.")
    rank: int = hyper(4, "Columns of the thin matrices.", symbol="r", panel="lowrank", unit="columns")
    iterations: int = hyper(2, "Subspace iterations.", panel="lowrank", unit="iterations")

    def check(self) -> None:
        super().check()
        self.require(1 <= self.rank <= 1024, "rank", "from 1 to 1024")
        self.require(1 <= self.iterations <= 100, "iterations", "from 1 to 100")
