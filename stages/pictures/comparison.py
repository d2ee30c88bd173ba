"""Runs side by side: accuracy against round, and the rounds that each took to a target."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stages.pictures.palette import style
from stages.pictures.render import plain_style, png_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LETTERS = 26
_LEAST_HEIGHT, _PER_GROUP = 3.6, 0.42


@dataclass(frozen=True)
class GroupCurve:
    """One line: accuracy by round, of one run or of several that differ by their seed.

    `reached` is the round in which each seed reached the target, None for never.
    """

    label: str
    seeds: Sequence[Mapping[int, float]]
    reached: Sequence[int | None] = ()

    def mean(self) -> tuple[list[int], list[float]]:
        """Over the rounds that all seeds have."""
        rounds = sorted(set(self.seeds[0]).intersection(*self.seeds[1:]))
        return rounds, [sum(seed[r] for seed in self.seeds) / len(self.seeds) for r in rounds]


def comparison_picture(groups: Sequence[GroupCurve], target: float | None) -> bytes:
    """PNG: one line a group (its mean; the seeds thin behind it). The names stand once, beside the bars or as a legend.

    With a target a dashed line shows it, and bars show the mean number of rounds with a dot for each seed; where a
    seed never got there the bar is hollow and runs to the last round.
    """
    from matplotlib.figure import Figure

    height = max(_LEAST_HEIGHT, 1.4 + _PER_GROUP * len(groups))
    with plain_style():
        figure = Figure(figsize=(10.5 if target is not None else 8.4, height), layout="constrained")
        if target is None:
            lines = figure.add_subplot()
        else:
            lines, bars = figure.subplots(1, 2, width_ratios=[1.5, 1])
            _draw_bars(bars, groups, target)
        _draw_lines(lines, groups, target)
        if target is None:
            lines.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9, handlelength=3)
        return png_bytes(figure)


def _draw_lines(axes: Axes, groups: Sequence[GroupCurve], target: float | None) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    for number, group in enumerate(groups):
        look = style(number)
        if len(group.seeds) > 1:
            for seed in group.seeds:
                rounds = sorted(seed)
                axes.plot(rounds, [seed[r] for r in rounds], color=look.colour, alpha=0.3, linewidth=0.8)
        rounds, mean = group.mean()
        marker = look.marker if len(rounds) <= 30 else None
        axes.plot(
            rounds, mean, color=look.colour, linestyle=look.dash, linewidth=2, marker=marker, markersize=4,
            label=_wrapped(group.label),
        )  # fmt: skip
    if target is not None:
        axes.axhline(target, color="0.25", linestyle=(0, (5, 4)), linewidth=1)
        # At the left, where curves are still low; above the line while there is room.
        axes.annotate(
            f"target {100 * target:g}%", (0, target), (4, 3 if target < 0.97 else -11), fontsize=8.5, color="0.25",
            xycoords=axes.get_yaxis_transform(), textcoords="offset points",
        )  # fmt: skip
    axes.set(xlabel="round", ylabel="test accuracy", ylim=(0.0, 1.04))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    several = max(len(group.seeds) for group in groups) > 1
    axes.set_title("accuracy (mean of the seeds; thin: each seed)" if several else "accuracy", fontsize=10)


def _draw_bars(axes: Axes, groups: Sequence[GroupCurve], target: float) -> None:
    from matplotlib.ticker import MaxNLocator

    longest = max(max(max(seed) for seed in group.seeds) for group in groups)
    for number, group in enumerate(groups):
        look, reached = style(number), group.reached
        known = [r for r in reached if r is not None]
        last = max(max(seed) for seed in group.seeds)
        if len(known) == len(reached):
            mean = sum(known) / len(known)
            axes.barh(number, mean, height=0.6, color=look.colour, alpha=0.75)
            end, text = max(known), f"{mean:.1f}".removesuffix(".0")
        else:
            axes.barh(number, last, height=0.6, fill=False, edgecolor=look.colour, hatch="///", alpha=0.75)
            some = f" for {len(reached) - len(known)} of {len(reached)}" if known else ""
            end, text = last, f"> {last}{some}"
        if len(reached) > 1:
            axes.scatter(known, [number] * len(known), s=16, color="white", edgecolor=look.colour, zorder=3)
        axes.annotate(text, (end, number), (7, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(groups)), [_wrapped(group.label) for group in groups], parse_math=False)
    for number, name in enumerate(axes.get_yticklabels()):
        name.set_color(style(number).colour)
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.set_xlim(0, longest * 1.4 + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.set_xlabel("rounds")
    axes.set_title(f"rounds to {100 * target:g}%", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)


def _wrapped(label: str) -> str:
    """At most two lines, broken after a comma or a space; what is longer ends in «…»."""
    lines = textwrap.wrap(" ".join(label.replace(",", ", ").split()), _LETTERS) or [""]
    return "\n".join(lines if len(lines) <= 2 else [lines[0], lines[1][: _LETTERS - 1] + "…"])
