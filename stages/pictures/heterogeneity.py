"""ζ̂²_p and σ̂²_p against the share p of shuffled data, with Lemma 1's bounds; or over rounds, a line for each share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.pictures.palette import style
from stages.pictures.render import plain_style, png_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What is drawn in each of the two panels: the key, its name.
_PANELS = (("dissimilarity", "gradient dissimilarity  $\\hat{ζ}_p^2$"), ("noise", "stochastic noise  $\\hat{σ}_p^2$"))


@dataclass(frozen=True)
class MeasuredRound:
    """`values` is what `evaluate --heterogeneity` writes for one round; `bounds` are lines to draw, by their key."""

    round: int
    values: Mapping[str, Any]
    bounds: Mapping[str, Sequence[float]]


def heterogeneity_picture(rounds: Sequence[MeasuredRound], shuffled: str) -> bytes:
    """PNG of two panels. One round: against p. Several: against the round."""
    from matplotlib.figure import Figure

    with plain_style():
        figure = Figure(figsize=(9.6, 4.4), layout="constrained")
        panels = figure.subplots(1, 2)
        for axes, (key, name) in zip(panels, _PANELS, strict=True):
            if len(rounds) == 1:
                _draw_shares(axes, rounds[0], key)
            else:
                _draw_rounds(axes, rounds, key)
            axes.set_title(name, fontsize=11)
            axes.grid(alpha=0.3)
        # Below both, where no line runs through it; the panel of the noise has every line.
        lines, names = panels[1].get_legend_handles_labels()
        figure.legend(lines, names, loc="outside lower center", ncols=min(len(names), 6), frameon=False, fontsize=9)
        first, last = rounds[0], rounds[-1]
        where = f"round {first.round}" if first is last else f"rounds {first.round} to {last.round}"
        figure.suptitle(f"{where}, shuffled {shuffled} data", fontsize=11)
        return png_bytes(figure)


def _draw_shares(axes: Axes, found: MeasuredRound, key: str) -> None:
    """Measured points, the bound as a line."""
    rows = list(found.values["shares"].values())
    bounds, shares = found.bounds, found.bounds["share"]
    axes.plot(shares, bounds[f"{key}_bound"], color=style(1).colour, label="bound of Lemma 1")
    if f"{key}_bound_largest" in bounds:
        label = "bound with the largest $σ^2$ of a client"
        axes.plot(shares, bounds[f"{key}_bound_largest"], color="0.4", linestyle=":", label=label)
    points = [row["share"] for row in rows], [row[key] for row in rows]
    axes.plot(*points, "o", color=style(0).colour, markersize=6, label="measured")
    if "dealt" in found.values:
        row = found.values["dealt"]
        axes.plot([row["share"]], [row[key]], "*", color=style(2).colour, markersize=13, label="as the run dealt it")
    axes.set_xlabel("share p of shuffled data")
    highest = max(max(line) for name, line in bounds.items() if name.startswith(key))
    axes.set_ylim(0.0, 1.1 * max(highest, *points[1]) or 1.0)


def _draw_rounds(axes: Axes, rounds: Sequence[MeasuredRound], key: str) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    numbers = [found.round for found in rounds]
    for number, share in enumerate(rounds[0].values["shares"]):
        heights = [found.values["shares"][share][key] for found in rounds]
        if max(heights) <= 1e-12 * rounds[0].values[key]:
            continue  # all shuffled: nothing is left, and a logarithm of nothing is none
        look = style(number)
        axes.plot(numbers, heights, color=look.colour, marker=look.marker, markersize=4, label=f"p = {share}")
    if "dealt" in rounds[0].values:
        heights = [found.values["dealt"][key] for found in rounds]
        axes.plot(
            numbers, heights, color="black", linestyle="--", marker="*", markersize=8, label="as the run dealt it"
        )
    axes.set_yscale("log")
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
