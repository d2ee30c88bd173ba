"""Hyper-parameters of TOFU: `encode --method tofu`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from stages.hyperparameters import By, When, hyper
from stages.methods.params.encoding import Encoder
from stages.methods.params.record_privacy import MicroBatch
from stages.registry import ENCODERS

_PROXY = "tofu: the proxy data"
_PAPER = When("--solver paper", lambda p: p.solver == "paper")
_RESIDUALS = When("--solver residuals", lambda p: p.solver == "residuals")


@ENCODERS.register
@dataclass(frozen=True, kw_only=True)
class TofuEncoding(Encoder, MicroBatch):
    """Algorithm 1: images, soft labels and spanning ratios whose gradient points where the update does."""

    performed_by: ClassVar[str] = "stages.proxies.encoder:encode_proxy"
    kind: ClassVar[str] = "proxy"
    decoded_by: ClassVar[str | None] = "stages.proxies.file:decoded"
    decodes_with_torch: ClassVar[bool] = True
    checked_by: ClassVar[str | None] = "stages.audit.contents:proxy_misfits"
    reads: ClassVar[tuple[str, ...]] = ("update",)
    takes: ClassVar[tuple[str, ...]] = ("previous",)
    on_device: ClassVar[bool] = True
    names_previous: ClassVar[bool] = False
    by_server: ClassVar[bool] = True

    method: Literal["tofu"] = hyper("tofu", "tofu: a few images whose gradient is the update.")
    images: int = hyper(64, "Images of the proxy.", symbol="Nimgs", source="paper", panel=_PROXY, unit="images")
    init: Literal["noise", "previous"] = hyper(
        "noise", "What the images begin as: noise, or those of the sender's last proxy, given by --previous.",
        source="paper", panel=_PROXY,
    )  # fmt: skip
    solver: Literal["residuals", "paper"] = hyper(
        "residuals",
        "How the proxy is found. paper: Adam on images, labels and ratios. residuals: Adam on images and on the "
        "residuals that labels and ratios amount to, which least squares find at the end; far fewer steps.",
        panel=_PROXY,
    )
    iterations: int = hyper(
        By("solver", {"paper": 1000, "residuals": 125}), "Most steps of Adam.", symbol="I_max", source="paper",
        panel=_PROXY, unit="iterations",
    )  # fmt: skip
    image_rate: float = hyper(
        By("solver", {"paper": 0.1, "residuals": 0.2}),
        "Step size of the images. paper: a tenth after 37.5, 62.5 and 87.5% of the steps; residuals: falls to 0 along "
        "a cosine. The other step sizes fall with it.",
        symbol="β_x", source="paper", panel=_PROXY, unit="step size",
    )  # fmt: skip
    label_rate: float | None = hyper(
        By("solver", {"paper": 0.1}), "Step size of the labels.", symbol="β_y", source="paper", panel=_PROXY,
        when=_PAPER, unit="step size",
    )  # fmt: skip
    ratio_rate: float | None = hyper(
        By("solver", {"paper": 0.1}), "Step size of the spanning ratios.", symbol="β_α", source="paper", panel=_PROXY,
        when=_PAPER, unit="step size",
    )  # fmt: skip
    residual_rate: float | None = hyper(
        By("solver", {"residuals": 0.1}), "Step size of the residuals.", panel=_PROXY, when=_RESIDUALS, unit="step size"
    )
    objective: Literal["whole", "decoded"] = hyper(
        "decoded",
        "What to bring to 1: the cosine of the whole update before layers are scaled (Eq. 3), or the one that the "
        "decoder gets after scaling.",
        panel=_PROXY,
    )
    target_cosine: float | None = hyper(None, "Stop as soon as the cosine is this high.", panel=_PROXY, unit="cosine")
    pixels: Literal["float32", "float16", "uint8"] = hyper(
        "float32", "How pixels are sent; the cosine that is printed is the one after rounding.", panel=_PROXY
    )
    scale_by_cosine: bool = hyper(
        False, "Phase 2: shorten the update by its cosine, 1 − R_loss.", source="paper", panel=_PROXY
    )
    least_cosine: float = hyper(
        0.1,
        "A proxy that decodes to less than this cosine, or to none at all, is not sent.",
        panel=_PROXY,
        unit="cosine",
    )
    fallback: Literal["refuse", "delta"] = hyper(
        "refuse", "What happens then. refuse: nothing is written; delta: a client's full update leaves instead.",
        panel=_PROXY,
    )  # fmt: skip

    def check(self) -> None:
        super().check()
        self.require(self.images >= 1, "images", "at least 1")
        self.require(self.iterations >= 1, "iterations", "at least 1")
        for name in ("image_rate", "label_rate", "ratio_rate", "residual_rate"):
            rate = getattr(self, name)
            self.require(rate is None or rate > 0, name, "above 0")
        target = self.target_cosine
        self.require(target is None or 0 < target < 1, "target_cosine", "between 0 and 1")
        self.require(0 <= self.least_cosine < 1, "least_cosine", "at least 0 and below 1")

    def share(self, iteration: int) -> float:
        """What the step sizes of an iteration, counted from 0, are multiplied by."""
        done = iteration / self.iterations
        if self.solver == "paper":
            return 0.1 ** sum(done >= share for share in (0.375, 0.625, 0.875))
        return 0.5 * (1 + math.cos(math.pi * done))
