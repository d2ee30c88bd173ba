"""How a stage says how far it is. The command line draws a bar from it; a stage never prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# (done, total, what to show beside the bar)
Report = Callable[[int, int, str], None]

# What a stage returns: what it wrote and what a person wants to know, as JSON.
Summary = dict[str, Any]


def silent(done: int, total: int, text: str) -> None:
    """For callers without a terminal."""
