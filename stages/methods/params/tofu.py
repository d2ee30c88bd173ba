"""Hyper-parameters of TOFU: `encode --method tofu`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import HyperParameters, hyper

_PROXY = "tofu: the proxy data"


@dataclass(frozen=True, kw_only=True)
class TofuEncoding(HyperParameters):
    """Algorithm 1: images, soft labels and spanning ratios whose gradient points where the update does."""

    method: Literal["tofu"] = hyper("tofu", "tofu: images and soft labels whose gradient is the update.")
    images: int = hyper(64, "Images of the proxy.", symbol="Nimgs", source="paper", panel=_PROXY)
    init: Literal["noise", "previous"] = hyper(
        "noise", "What the proxy begins as: noise, or the sender's proxy of the round before, given by --previous.",
        source="paper", panel=_PROXY,
    )  # fmt: skip
    solver: Literal["residuals", "paper"] = hyper(
        "residuals",
        "How the proxy is found. paper: Adam on images, labels and ratios. residuals: Adam on images and on what "
        "labels and ratios stand for, which least squares find at the end; the same cosine in far fewer steps.",
        panel=_PROXY,
    )
    iterations: int | None = hyper(
        None, "Most steps of Adam (paper 1000, residuals 125).", symbol="I_max", source="paper", panel=_PROXY
    )
    proxy_rate: float | None = hyper(
        None,
        "Its step size. paper: 0.1, a tenth after 375, 625 and 875 of 1000 steps; residuals: 0.2, falling to 0.",
        symbol="β", source="paper", panel=_PROXY,
    )  # fmt: skip
    objective: Literal["whole", "decoded"] = hyper(
        "decoded",
        "What to bring to 1: the cosine of the whole update before layers are scaled (Eq. 3), or the one that the "
        "decoder gets after scaling.",
        panel=_PROXY,
    )
    target_cosine: float | None = hyper(None, "Stop as soon as the cosine is this high.", panel=_PROXY)
    pixels: Literal["float32", "float16", "uint8"] = hyper(
        "float32", "How pixels are sent; the loss in cosine is measured and printed.", panel=_PROXY
    )
    scale_by_cosine: bool = hyper(
        False, "Phase 2: shorten the update by its cosine, 1 − R_loss.", source="paper", panel=_PROXY
    )

    def check(self) -> None:
        super().check()
        self.require(self.images >= 1, "images", "at least 1")
        self.require(self.steps >= 1, "iterations", "at least 1")
        self.require(self.first_rate > 0, "proxy_rate", "above 0")
        target = self.target_cosine
        self.require(target is None or 0 < target < 1, "target_cosine", "between 0 and 1")

    @property
    def steps(self) -> int:
        default = 1000 if self.solver == "paper" else 125
        return default if self.iterations is None else self.iterations

    @property
    def first_rate(self) -> float:
        default = 0.1 if self.solver == "paper" else 0.2
        return default if self.proxy_rate is None else self.proxy_rate

    def rate(self, iteration: int) -> float:
        """The step size of an iteration, counted from 0."""
        done = iteration / self.steps
        if self.solver == "paper":
            return self.first_rate * 0.1 ** sum(done >= share for share in (0.375, 0.625, 0.875))
        return self.first_rate * 0.5 * (1 + math.cos(math.pi * done))
