"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_MOST_LETTERS = 600


def epsilon_words(value: float) -> str:
    """Three decimals, rounded up: an ε is never shown smaller than it is."""
    return "∞" if math.isinf(value) else f"{math.ceil(value * 1000) / 1000:.3f}"


def parameter_words(params: Mapping[str, Any]) -> str:
    """The parameters of a file on one line; a list of a thousand classes is cut."""
    text = ", ".join(f"{name} = {value}" for name, value in params.items()) or "none"
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"


def human_bytes(size: float) -> str:
    """Powers of a thousand, the same on the page as in the terminal."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1000
    raise AssertionError("unreachable")


def human_time(seconds: float) -> str:
    """Two figures are enough for a guess: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def counted(number: int, word: str) -> str:
    return f"{number:,} {word}" + ("" if number == 1 else "s")
