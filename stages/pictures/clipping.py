"""How long updates are before a clip, and what the clip leaves of them: one round, or round by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stages.pictures.palette import style
from stages.pictures.render import plain_style, png_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class ClippedRound:
    """The clients' norms ‖Δ_i‖ and factors α_i = min(1, C/‖Δ_i‖), in one order."""

    round: int
    norms: NDArray[np.float64]
    factors: NDArray[np.float64]

    @property
    def mean(self) -> float:
        """α̅ of Eq. 15."""
        return float(self.factors.mean())

    @property
    def deviation(self) -> float:
        """α̃ of Eq. 15."""
        return float(np.abs(self.factors - self.mean).mean())


def clipping_picture(rounds: Sequence[ClippedRound], clip_norm: float) -> bytes:
    """PNG of two panels: the norms with C, the factors with α̅ and α̃. One round: clients. Several: over rounds."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with plain_style():
        figure = Figure(figsize=(9.6, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        first, last = rounds[0], rounds[-1]
        if len(rounds) == 1:
            _draw_norms(left, first, clip_norm)
            _draw_factors(right, first)
        else:
            _draw_norms_over_rounds(left, rounds, clip_norm)
            _draw_factors_over_rounds(right, rounds)
            for axes in (left, right):
                axes.set_xlabel("round")
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        for axes in (left, right):
            axes.grid(alpha=0.3)
            axes.set_axisbelow(True)
            lines, names = axes.get_legend_handles_labels()
            axes.legend(
                lines, names, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4, frameon=False, fontsize=9
            )
        where = f"round {first.round}" if first is last else f"rounds {first.round} to {last.round}"
        clipped = sum(int((found.norms > clip_norm).sum()) for found in rounds)
        total = sum(len(found.norms) for found in rounds)
        figure.suptitle(f"{where}: {clipped} of {total} updates are longer than C = {clip_norm:g}", fontsize=11)
        return png_bytes(figure)


def _draw_norms(axes: Axes, found: ClippedRound, clip_norm: float) -> None:
    from matplotlib.ticker import MaxNLocator

    bins = min(40, max(4, round(1.5 * np.sqrt(len(found.norms)))))
    axes.hist(found.norms, bins=bins, color=style(0).colour, edgecolor="white", alpha=0.75, label="clients")
    _draw_clip(axes, clip_norm, upright=True)
    axes.axvline(found.norms.mean(), color="black", linestyle=":", label="mean")
    axes.set(xlabel="norm of the update before the clip", ylabel="clients")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_factors(axes: Axes, found: ClippedRound) -> None:
    from matplotlib.ticker import MaxNLocator

    ordered = np.sort(found.factors)
    axes.axhspan(found.mean - found.deviation, found.mean + found.deviation, color=style(2).colour, alpha=0.18,
                 linewidth=0, label=f"$\\tilde{{α}}$ = {found.deviation:.3g} on either side")  # fmt: skip
    axes.axhline(found.mean, color=style(2).colour, label=f"$\\overline{{α}}$ = {found.mean:.3g}")
    axes.plot(np.arange(1, len(ordered) + 1), ordered, "o", color=style(0).colour, markersize=4, label="clients")
    axes.set(xlabel="clients, by what the clip leaves", ylabel="$α_i$ = min(1, C / norm)", ylim=(0.0, 1.05))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_norms_over_rounds(axes: Axes, rounds: Sequence[ClippedRound], clip_norm: float) -> None:
    numbers = [found.round for found in rounds]
    lines = {share: [float(np.quantile(found.norms, share)) for found in rounds] for share in (0, 0.25, 0.5, 0.75, 1)}
    colour = style(0).colour
    axes.fill_between(numbers, lines[0], lines[1], color=colour, alpha=0.15, linewidth=0, label="all clients")
    axes.fill_between(numbers, lines[0.25], lines[0.75], color=colour, alpha=0.35, linewidth=0, label="middle half")
    axes.plot(numbers, lines[0.5], color=colour, marker=_marker(numbers), markersize=4, label="median")
    _draw_clip(axes, clip_norm, upright=False)
    axes.set_ylabel("norm of the update before the clip")
    axes.set_ylim(bottom=0.0)


def _draw_factors_over_rounds(axes: Axes, rounds: Sequence[ClippedRound]) -> None:
    numbers = [found.round for found in rounds]
    for number, (name, values) in enumerate(
        {
            "$\\overline{α}$: what is left, on average": [found.mean for found in rounds],
            "$\\tilde{α}$: how unequally": [found.deviation for found in rounds],
        }.items()
    ):
        look = style(number + 2)
        axes.plot(numbers, values, color=look.colour, marker=_marker(numbers), markersize=4, label=name)
    axes.set_ylabel("factor of the clip, min(1, C / norm)")
    axes.set_ylim(0.0, 1.05)


def _draw_clip(axes: Axes, clip_norm: float, *, upright: bool) -> None:
    draw = axes.axvline if upright else axes.axhline
    draw(clip_norm, color=style(1).colour, linestyle="--", label=f"C = {clip_norm:g}")


def _marker(numbers: Sequence[int]) -> str | None:
    return "o" if len(numbers) <= 30 else None
