"""What a masked vector is, by the encoding that its file states: an update, one with noise, or what decodes to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from artifacts.kinds import KINDS
from stages.registry import ENCODERS


def carries_noise(encoding: Mapping[str, Any]) -> bool:
    """Whether these are parameters of a share of noise, which has a grid of its own."""
    return encoding.get("noise_multiplier") is not None


def summed_kind(encoding: Mapping[str, Any]) -> str:
    """The kind of the sum: an update as it is, or still in the encoding, which is linear and everybody's."""
    if not encoding:
        return "update"
    kind: str = ENCODERS.chosen(encoding).kind
    return kind if KINDS[kind].encoded else "update"
