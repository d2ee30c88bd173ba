"""Hyper-parameters of `encode --method public-images`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from stages.hyperparameters import hyper
from stages.methods.params.encoding import Encoder
from stages.methods.params.record_privacy import MicroBatch
from stages.registry import ENCODERS

_PANEL = "public-images"


@ENCODERS.register
@dataclass(frozen=True, kw_only=True)
class PublicImages(Encoder, MicroBatch):
    """TOFU with images that everybody draws from the model: only what their labels amount to is sent."""

    performed_by: ClassVar[str] = "stages.proxies.public_images:encode_on_public_images"
    kind: ClassVar[str] = "residuals"
    decoded_by: ClassVar[str | None] = "stages.proxies.residuals_file:decoded_residuals"
    decodes_with_torch: ClassVar[bool] = True
    checked_by: ClassVar[str | None] = "stages.audit.contents:residuals_misfits"
    reads: ClassVar[tuple[str, ...]] = ("update",)
    additive: ClassVar[bool] = True
    on_device: ClassVar[bool] = True

    method: Literal["public-images"] = hyper(
        "public-images", "public-images: the update as the gradient of images that everybody draws from the model."
    )
    images: int = hyper(256, "Images that are drawn.", symbol="n", panel=_PANEL, unit="images")
    iterations: int = hyper(30, "Steps of conjugate gradients.", panel=_PANEL, unit="iterations")
    coarse: int = hyper(
        7, "Images are noise of so many points each way, smoothly enlarged.", panel=_PANEL, unit="points"
    )
    least_cosine: float = hyper(
        0.1, "A message that decodes to less than this cosine is not sent.", panel=_PANEL, unit="cosine"
    )

    def check(self) -> None:
        super().check()
        self.require(1 <= self.images <= 100_000, "images", "from 1 to 100,000")
        self.require(1 <= self.iterations <= 10_000, "iterations", "from 1 to 10,000")
        self.require(1 <= self.coarse <= 1024, "coarse", "from 1 to 1024")
        self.require(0 <= self.least_cosine < 1, "least_cosine", "at least 0 and below 1")
