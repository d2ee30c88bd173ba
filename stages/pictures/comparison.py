"""Runs side by side: accuracy against round, against bytes, against ε, and the rounds that each took to a target."""

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
_LISTED = 60
_LEAST_HEIGHT, _PER_GROUP = 3.6, 0.42


@dataclass(frozen=True)
class GroupCurve:
    """One line: accuracy by round, of one run or of several that differ by their seed.

    `reached` is the round in which each seed reached the target, None for never; `epsilons` is ε after each round for
    what `basis` says, empty where it is ∞; `sent` is the bytes of all clients, up and down, until each round.
    """

    label: str
    seeds: Sequence[Mapping[int, float]]
    reached: Sequence[int | None] = ()
    epsilons: Sequence[Mapping[int, float]] = ()
    basis: str = ""
    sent: Sequence[Mapping[int, int]] = ()

    def mean(self) -> tuple[list[int], list[float]]:
        """Over the rounds that all seeds have."""
        rounds = sorted(set(self.seeds[0]).intersection(*self.seeds[1:]))
        return rounds, [sum(seed[r] for seed in self.seeds) / len(self.seeds) for r in rounds]

    def against_bytes(self) -> tuple[list[float], list[float]]:
        """The mean bytes of the seeds beside their mean accuracy; nothing where they were not asked for."""
        rounds, mean = self.mean()
        if not self.sent:
            return [], []
        return [sum(each[r] for each in self.sent) / len(self.sent) for r in rounds], mean

    def against_epsilon(self) -> tuple[list[float], list[float]]:
        """The largest ε of the seeds beside their mean accuracy; nothing where one of them has none."""
        rounds, mean = self.mean()
        known = [(r, value) for r, value in zip(rounds, mean, strict=True) if all(r in each for each in self.epsilons)]
        if not self.epsilons:
            return [], []
        return [max(each[r] for each in self.epsilons) for r, _ in known], [value for _, value in known]


def comparison_picture(groups: Sequence[GroupCurve], target: float | None, delta: float | None = None) -> bytes:
    """PNG: one line a group (its mean; the seeds thin behind it). The names occur once, beside the bars or as a legend.

    With a target a dashed line shows it, and bars show the mean number of rounds with a dot for each seed; where a
    seed never got there the bar is hollow and runs to the last round. Where groups have bytes, a panel has accuracy
    against them; with δ one has accuracy against ε.
    """
    from matplotlib.figure import Figure

    height = max(_LEAST_HEIGHT, 1.4 + _PER_GROUP * len(groups)) + (0.5 if delta is not None else 0.0)
    with plain_style():
        sent = any(group.sent for group in groups)
        more = sent + (delta is not None)
        widths = [1.5, *[1.5] * more, *([1.0] if target is not None else [])]
        across = 8.4 + (2.1 if target is not None else 0.0) + 4.2 * more
        figure = Figure(figsize=(across, height), layout="constrained")
        panels = list(figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0])
        _draw_lines(panels[0], groups, target)
        if sent:
            _draw_bytes(panels[1], groups)
        if delta is not None:
            _draw_epsilon(panels[more], groups, delta)
        if target is not None:
            _draw_bars(panels[-1], groups, target)
        else:
            names = panels[0].get_legend_handles_labels()
            panels[-1].legend(
                *names, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9, handlelength=3
            )
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


def _draw_bytes(axes: Axes, groups: Sequence[GroupCurve]) -> None:
    from matplotlib.ticker import PercentFormatter

    for number, group in enumerate(groups):
        look, (sent, mean) = style(number), group.against_bytes()
        marker = look.marker if len(sent) <= 30 else None
        axes.plot(
            [size / 1e6 for size in sent], mean, color=look.colour, linestyle=look.dash, linewidth=2, marker=marker,
            markersize=4,
        )  # fmt: skip
    axes.set(xlabel="MB, up and down, all clients", ylim=(0.0, 1.04))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(alpha=0.3)
    axes.set_title("accuracy against bytes, round by round", fontsize=10)


def _draw_epsilon(axes: Axes, groups: Sequence[GroupCurve], delta: float) -> None:
    """A point a round, to the right as ε grows. Runs whose ε is ∞ have no place on the axis: they are named."""
    from matplotlib.ticker import PercentFormatter

    infinite: list[str] = []
    by_basis: dict[str, list[str]] = {}
    right = 0.0
    for number, group in enumerate(groups):
        look, (epsilons, mean) = style(number), group.against_epsilon()
        if not epsilons:
            infinite.append(group.label)
            continue
        by_basis.setdefault(group.basis, []).append(group.label)
        right = max(right, *epsilons)
        marker = look.marker if len(epsilons) <= 30 else None
        axes.plot(epsilons, mean, color=look.colour, linestyle=look.dash, linewidth=2, marker=marker, markersize=4)
    if not by_basis:
        axes.text(0.5, 0.5, "ε = ∞", ha="center", va="center", fontsize=24, transform=axes.transAxes)
    # Below the axis, where no line runs through it.
    words = [f"ε by PLD, δ = {delta:g}" + (f", for {next(iter(by_basis))}" if len(by_basis) == 1 else "")]
    words += [f"for {basis}: {_listed(labels)}" for basis, labels in by_basis.items() if len(by_basis) > 1]
    words += [f"ε = ∞: {_listed(infinite)}"] if infinite else []
    axes.set_xlabel("\n".join(words), parse_math=False)
    axes.set_ylim(0.0, 1.04)
    axes.set_xlim(-0.02 * (right or 1.0), 1.04 * (right or 1.0))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(alpha=0.3)
    axes.set_title("accuracy against ε, round by round", fontsize=10)


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


def _listed(labels: Sequence[str]) -> str:
    return textwrap.shorten(", ".join(labels), _LISTED, placeholder=" …")


def _wrapped(label: str) -> str:
    """At most two lines, broken after a comma or a space; what is longer ends in «…»."""
    lines = textwrap.wrap(" ".join(label.replace(",", ", ").split()), _LETTERS) or [""]
    return "\n".join(lines if len(lines) <= 2 else [lines[0], lines[1][: _LETTERS - 1] + "…"])
