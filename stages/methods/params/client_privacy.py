"""Client-level differential privacy: clip, sparsification and noise of whole updates. Free of torch.

`encode` and `aggregate` must agree on these: the client clips and masks, the server does both again, because a
guarantee must not rest on what a client says of itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import HyperParameters, hyper

PANEL = "Client-level privacy"
Sparsify = Literal["rand-k", "top-k", "own-top-k"]


@dataclass(frozen=True, kw_only=True)
class UpdateBounds(HyperParameters):
    """How large an update may be, and which of its coordinates are sent."""

    clip_norm: float | None = hyper(
        None, "The whole update is clipped to this Euclidean length.", symbol="C", source="paper", panel=PANEL
    )
    sparsify: Sparsify | None = hyper(
        None,
        "rand-k: coordinates drawn for the round by --mask-seed; top-k: half of them those that moved most between the "
        "last two models (--before); both are public and the same for all clients. own-top-k: each client's largest.",
        panel=PANEL,
    )
    keep: float | None = hyper(None, "Share of the coordinates that are sent (0.4).", symbol="k/d", panel=PANEL)
    mask_seed: int | None = hyper(None, "Public seed of rand-k and top-k (0).", panel=PANEL)

    def check(self) -> None:
        self.require(self.clip_norm is None or self.clip_norm > 0, "clip_norm", "above 0")
        self.require(self.keep is None or 0 < self.keep <= 1, "keep", "above 0 and at most 1")
        for name in ("keep", "mask_seed"):
            self.require(self.sparsify is not None or getattr(self, name) is None, name, "given with --sparsify")

    @property
    def share(self) -> float:
        return 0.4 if self.keep is None else self.keep
