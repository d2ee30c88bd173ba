"""Hyper-parameters of `encode`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import HyperParameters, hyper


@dataclass(frozen=True, kw_only=True)
class Encoding(HyperParameters):
    """How an update becomes a message."""

    method: Literal["delta", "state"] = hyper(
        "delta", "delta: the full update, as it is; state: the change of the client's control variates."
    )
    tell_examples: bool = hyper(
        False, "State the number of training examples, for `aggregate --weights examples`. It is declared."
    )
    tell_steps: bool = hyper(False, "State the number of local steps, for `aggregate --rule fednova`. It is declared.")

    def check(self) -> None:
        if self.method == "state" and (self.tell_examples or self.tell_steps):
            raise ValueError("--tell-examples and --tell-steps go with --method delta")
