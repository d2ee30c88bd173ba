"""Hyper-parameters of `encode`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stages.hyperparameters import HyperParameters, hyper


@dataclass(frozen=True, kw_only=True)
class Encoding(HyperParameters):
    """How an update becomes a message."""

    method: Literal["delta"] = hyper("delta", "delta: the full update, as it is.")
    tell_examples: bool = hyper(
        False, "State the number of training examples, for `aggregate --weights examples`. It is declared."
    )
