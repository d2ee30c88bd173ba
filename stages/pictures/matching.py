"""Gradients of a synthetic set beside those of the data: direction and length, along the descent on the set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stages.pictures.palette import style
from stages.pictures.render import plain_style, png_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_NAMED = 16  # lines that one can tell apart; of more, all are grey and none is named
_COLOURS = 6  # before the palette comes to black, which is the whole's
_LEAST_DECADES = 0.5
_FINE, _COARSE = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 2, 5)


@dataclass(frozen=True)
class MatchingLine:
    """One parameter tensor, or all of them; None where there is no gradient to compare."""

    name: str
    distances: Sequence[float]
    cosines: Sequence[float | None]
    ratios: Sequence[float | None]


def matching_picture(lines: Sequence[MatchingLine], title: str) -> bytes:
    """PNG of two panels against the distance walked: the first line, which is the whole, is drawn over the others."""
    from matplotlib.figure import Figure

    with plain_style():
        figure = Figure(figsize=(10.5, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw(left, lines, [line.cosines for line in lines])
        _draw(right, lines, [line.ratios for line in lines])
        lowest = min((value for line in lines for value in line.cosines if value is not None), default=0.0)
        left.set(ylim=(min(0.0, lowest) - 0.05, 1.05), ylabel="cosine of the two gradients")
        left.set_title("direction (1: the same)", fontsize=10)
        _set_log(right, [value for line in lines for value in line.ratios if value])
        right.set_title("length (1: the same)", fontsize=10)
        for axes in (left, right):
            axes.axhline(1.0, color="0.4", linewidth=0.8, linestyle=(0, (5, 4)), zorder=1)
            axes.set_xlabel("distance from the model, along descent on the set")
            if len(lines[0].distances) > 1:
                axes.set_xlim(left=0.0)
            else:
                axes.set_xticks([0.0])
            axes.grid(alpha=0.3)
        named, names = left.get_legend_handles_labels()
        figure.legend(named, names, loc="outside right center", frameon=False, fontsize=8, handlelength=2.6)
        figure.suptitle(f"Synthetic set beside the data: {title}", fontsize=10)
        return png_bytes(figure)


def _draw(axes: Axes, lines: Sequence[MatchingLine], series: Sequence[Sequence[float | None]]) -> None:
    named = len(lines) - 1 <= _MOST_NAMED
    for number, (line, values) in enumerate(zip(lines, series, strict=True)):
        heights = [math.nan if value is None else value for value in values]
        # A descent that cannot move, or a single point, is seen as dots.
        marker = "o" if len(set(line.distances)) == 1 else None
        if number == 0:
            axes.plot(line.distances, heights, color="black", linewidth=2.8, marker=marker, label=line.name, zorder=3)
            continue
        look = style(number - 1 + (number - 1) // _COLOURS)
        label = line.name if named else f"each of {len(lines) - 1} tensors" if number == 1 else None
        axes.plot(
            line.distances, heights, color=look.colour if named else "0.6", linestyle=look.dash if named else "-",
            linewidth=1.2 if named else 0.8, marker=marker, markersize=4, label=label,
        )  # fmt: skip


def _set_log(axes: Axes, ratios: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers, and at least half a decade, so that small differences look small."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    low, high = (math.log10(f(1.0, *ratios)) for f in (min, max))
    room = max(0.04 * (high - low), (_LEAST_DECADES - (high - low)) / 2)
    axes.set_ylim(10 ** (low - room), 10 ** (high + room))
    axes.yaxis.set_major_locator(LogLocator(subs=_FINE if high - low < 0.8 else _COARSE, numticks=20))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("$\\|g_S\\| \\,/\\, \\|g_D\\|$: synthetic to real")
