"""Colours that people with any colour vision can tell apart (Okabe and Ito 2008), then again with other dashes."""

from __future__ import annotations

from dataclasses import dataclass

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_DASHES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D")


@dataclass(frozen=True)
class Style:
    colour: str
    dash: str
    marker: str


def style(number: int) -> Style:
    """The look of the `number`-th line of a picture; yellow is left out, it is hardly seen on white."""
    turn = number // len(_COLOURS) % len(_DASHES)
    return Style(_COLOURS[number % len(_COLOURS)], _DASHES[turn], _MARKERS[turn])
