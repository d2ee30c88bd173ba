"""Hyper-parameters of `encode`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import hyper
from stages.methods.params.client_privacy import PANEL, UpdateBounds


@dataclass(frozen=True, kw_only=True)
class Encoding(UpdateBounds):
    """How an update becomes a message, and what of client-level privacy the client does itself."""

    method: Literal["delta", "state"] = hyper(
        "delta", "delta: the full update, as it is; state: the change of the client's control variates."
    )
    tell_examples: bool = hyper(
        False, "State the number of training examples, for `aggregate --weights examples`. It is declared."
    )
    tell_steps: bool = hyper(False, "State the number of local steps, for `aggregate --rule fednova`. It is declared.")

    noise_multiplier: float | None = hyper(
        None,
        "Noise of the round's sum in units of the clip norm, of which this message carries a share: for rounds whose "
        "messages nobody sees one by one. Without it the server adds the noise, and is trusted.",
        symbol="σ",
        panel=PANEL,
    )
    least_clients: int | None = hyper(
        None, "The fewest messages that a round may end with; the noise is complete with these.", symbol="t",
        panel=PANEL,
    )  # fmt: skip
    colluders: int | None = hyper(None, "Of these, clients that may tell their noise (0).", panel=PANEL)

    def check(self) -> None:
        super().check()
        self._check_shares()
        if self.method == "state" and (self.clip_norm or self.sparsify):
            # Under client-level DP update and state share one clip (privacy contract, 15), which is not built.
            raise ValueError("--clip-norm and --sparsify go with --method delta")
        if self.method == "state" and (self.tell_examples or self.tell_steps):
            raise ValueError("--tell-examples and --tell-steps go with --method delta")

    def _check_shares(self) -> None:
        shared = self.noise_multiplier is not None
        for name in ("least_clients", "colluders"):
            self.require(shared or getattr(self, name) is None, name, "given with --noise-multiplier")
        if not shared:
            return
        for name in ("clip_norm", "least_clients"):
            if getattr(self, name) is None:
                raise ValueError(f"--{name.replace('_', '-')} needs a value with --noise-multiplier")
        if self.tell_examples or self.tell_steps:
            raise ValueError("--tell-examples and --tell-steps would tell numbers without noise")
        self.require(0 < (self.noise_multiplier or 0) < 1e6, "noise_multiplier", "above 0")
        self.require((self.least_clients or 0) >= 1, "least_clients", "at least 1")
        fits = 0 <= (self.colluders or 0) < (self.least_clients or 0)
        self.require(fits, "colluders", "at least 0 and less than --least-clients")

    @property
    def shares(self) -> int:
        """t − colluders: over so many messages the noise is spread (privacy contract, rule 23)."""
        return (self.least_clients or 1) - (self.colluders or 0)
