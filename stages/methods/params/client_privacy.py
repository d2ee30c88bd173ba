"""Client-level differential privacy: clip, sparsification and noise of whole updates. Free of torch.

`encode` and `aggregate` must agree on these: the client clips and masks, the server does both again, because a
guarantee must not rest on what a client says of itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import HyperParameters, When, hyper

PANEL = "Client-level privacy"
Sparsify = Literal["rand-k", "moved-k", "own-top-k"]
NEXT_CLIP = "next_clip_norm"  # among the parameters of a model: the clip of the round that begins from it
PUBLIC_MASKS = ("rand-k", "moved-k")


@dataclass(frozen=True, kw_only=True)
class UpdateBounds(HyperParameters):
    """How large an update may be, and which of its coordinates are sent."""

    clip_norm: float | None = hyper(
        None,
        "The whole update is clipped to this Euclidean length.",
        symbol="C",
        source="paper",
        panel=PANEL,
        unit="L2 norm",
    )
    adaptive_clip: bool = hyper(
        False,
        "The clip of a round is the one that its model states, which the server adapts to a quantile of the updates' "
        "lengths, privately (Andrew et al. 2021); --clip-norm is that of the first round.",
        panel=PANEL,
        when=When("--clip-norm", lambda params: params.clip_norm is not None),
    )
    sparsify: Sparsify | None = hyper(
        None,
        "rand-k: coordinates drawn for the round by --mask-seed (Fed-SMP); moved-k: half of them those that moved most "
        "between the last two models (--before; ours); both are public and the same for all clients. own-top-k: each "
        "client's largest (Fed-SMP's top-k), a private mask.",
        panel=PANEL,
    )
    keep: float = hyper(
        0.4,
        "Share of the coordinates that are sent.",
        symbol="k/d",
        panel=PANEL,
        when=When("--sparsify", lambda params: params.sparsify is not None),
        unit="share",
    )
    mask_seed: int = hyper(
        0,
        "Public seed of rand-k and moved-k.",
        panel=PANEL,
        when=When("--sparsify rand-k or moved-k", lambda params: params.sparsify in PUBLIC_MASKS),
    )

    def check(self) -> None:
        super().check()
        self.require(self.clip_norm is None or self.clip_norm > 0, "clip_norm", "above 0")
        self.require(0 < self.keep <= 1, "keep", "above 0 and at most 1")

    @property
    def follows_movement(self) -> bool:
        """Whether the mask needs the model of the round before (`--before`)."""
        return self.sparsify == "moved-k"
