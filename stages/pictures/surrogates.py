"""Synthetic sets over rounds: how far they are good for, how far the server went, and what their pixels are like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from stages.pictures.palette import style
from stages.pictures.render import plain_style, png_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Round = TypeVar("_Round")
_MOST_ROUNDS = 5  # histograms side by side
_BINS = 60
_SHOWN = 0.999  # of all pixels lie inside the axis; how many do not is written
_THIN = "0.6"


@dataclass(frozen=True, eq=False)
class SurrogateRound:
    """`radii` are those that clients sent, `radius` the server's; `pixels` are the numbers of each client's images."""

    round: int
    radii: Mapping[str, float]
    radius: float | None
    steps: int | None
    distance: float | None
    pixels: Mapping[str, NDArray[np.float32]]

    def all_pixels(self) -> NDArray[np.float32]:
        return np.concatenate(list(self.pixels.values()))


def surrogates_picture(rounds: Sequence[SurrogateRound]) -> bytes:
    """PNG. Above: distances and steps, where known. Below: pixels in the first round, in the last, and between."""
    from matplotlib.figure import Figure

    drawn = spread(rounds, _MOST_ROUNDS)
    walked = any(found.radii or found.distance is not None for found in rounds)
    heights = [3.3, 2.9] if walked else [2.9]
    with plain_style():
        figure = Figure(figsize=(9.6, sum(heights) + 0.3), layout="constrained")
        parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        if walked:
            stepped = any(found.steps is not None for found in rounds)
            panels = parts[0].subplots(1, 2 if stepped else 1, squeeze=False)[0]
            _draw_distances(panels[0], rounds)
            if stepped:
                _draw_steps(panels[1], rounds)
        panels = parts[-1].subplots(1, len(drawn), sharex=True, sharey=True, squeeze=False)[0]
        _draw_pixels(panels, drawn)
        lines, names = panels[0].get_legend_handles_labels()
        parts[-1].legend(lines, names, loc="outside upper right", ncols=2, frameon=False, fontsize=8.5)
        parts[-1].suptitle("pixels of the sets", fontsize=10)
        parts[-1].supxlabel("value of a pixel; grey: −1 to 1, where real images lie", fontsize=9)
        return png_bytes(figure)


def spread(rounds: Sequence[_Round], most: int) -> list[_Round]:
    """The first, the last, and as many between them as there is room for."""
    if len(rounds) <= most:
        return list(rounds)
    last = len(rounds) - 1
    return [rounds[number * last // max(1, most - 1)] for number in range(most)]


def _draw_distances(axes: Axes, rounds: Sequence[SurrogateRound]) -> None:
    """Each client's radius thin, with the smallest, the median and the largest; the server's, and how far it went."""
    marker = "o" if len(rounds) <= 30 else ""
    stated = [found for found in rounds if found.radii]
    for number, client in enumerate(sorted({client for found in stated for client in found.radii})):
        mine = [found for found in stated if client in found.radii]
        axes.plot(
            [found.round for found in mine], [found.radii[client] for found in mine], color=_THIN, linewidth=0.8,
            marker=marker, markersize=2.5, label="each client's radius" if number == 0 else None,
        )  # fmt: skip
    if stated:
        middle = [float(np.median(list(found.radii.values()))) for found in stated]
        axes.plot([found.round for found in stated], middle, color="0.3", linestyle="--", label="their median",
                  marker="_" if len(rounds) == 1 else None, markersize=10)  # fmt: skip
    bounded = [found for found in rounds if found.radius is not None and np.isfinite(found.radius)]
    if bounded:
        radii = [float(found.radius or 0.0) for found in bounded]
        axes.plot([found.round for found in bounded], radii, color=style(0).colour, linewidth=2, marker=marker,
                  markersize=4, label="the server's radius")  # fmt: skip
    walked = [found for found in rounds if found.distance is not None]
    if walked:
        distances = [float(found.distance or 0.0) for found in walked]
        axes.plot([found.round for found in walked], distances, color=style(1).colour, linestyle=":", linewidth=2,
                  marker=marker and "s", markersize=3.5, label="how far the server went")  # fmt: skip
    _finish(axes, "distance from the round's model", rounds)
    axes.set_title("radius" if stated else "radius: the sets bring none", fontsize=10)
    axes.legend(loc="best", frameon=False, fontsize=8)


def _draw_steps(axes: Axes, rounds: Sequence[SurrogateRound]) -> None:
    stated = [found for found in rounds if found.steps is not None]
    marker = "o" if len(rounds) <= 30 else None
    axes.plot([found.round for found in stated], [int(found.steps or 0) for found in stated], color=style(0).colour,
              linewidth=2, marker=marker, markersize=4)  # fmt: skip
    _finish(axes, "steps", rounds)
    axes.set_title("the server's steps on the sets", fontsize=10)


def _finish(axes: Axes, name: str, rounds: Sequence[SurrogateRound]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel="round", ylabel=name)
    top = max((float(np.asarray(line.get_ydata(), float).max()) for line in axes.get_lines()), default=0.0)
    axes.set_ylim(0.0, 1.12 * top or 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    if len(rounds) == 1:
        axes.set_xlim(rounds[0].round - 1, rounds[0].round + 1)
    axes.grid(alpha=0.3)


def _draw_pixels(panels: Sequence[Axes], rounds: Sequence[SurrogateRound]) -> None:
    """Densities: the clients thin, all together thick. One axis for all rounds, so that widths can be compared."""
    values = [found.all_pixels() for found in rounds]
    reach = max(1.2, *(float(np.quantile(np.abs(pixels), _SHOWN)) for pixels in values))
    bins = np.linspace(-reach, reach, _BINS + 1)
    for number, (axes, found, pixels) in enumerate(zip(panels, rounds, values, strict=True)):
        axes.axvspan(-1, 1, color="0.93", linewidth=0)
        for client, mine in found.pixels.items():
            label = "each client" if number == 0 and client == next(iter(found.pixels)) else None
            axes.stairs(_density(mine, bins), bins, color=style(5).colour, linewidth=0.7, alpha=0.8, label=label)
        label = "all" if number == 0 else None
        axes.stairs(_density(pixels, bins), bins, color=style(0).colour, linewidth=1.6, label=label)
        axes.set_title(f"round {found.round}", fontsize=10)
        low, high = np.quantile(pixels, [0.05, 0.95])
        beyond, unseen = float((np.abs(pixels) > 1).mean()), float((np.abs(pixels) > reach).mean())
        text = f"{beyond:.0%} beyond ±1\n5–95%: {low:.1f} … {high:.1f}".replace("-", "−")
        if unseen:
            text += "\n< 0.1% off the axis" if unseen < 0.001 else f"\n{unseen:.1%} off the axis"
        axes.text(0.5, 0.98, text, transform=axes.transAxes, ha="center", va="top", fontsize=7.5)
        axes.set_xlim(-reach, reach)
        axes.spines[["top", "right"]].set_visible(False)
    top = max(float(np.max(_density(mine, bins))) for found in rounds for mine in found.pixels.values())
    panels[0].set_ylim(0.0, 1.4 * top)  # room for the text above the curves
    panels[0].set_ylabel("density of pixels")


def _density(values: NDArray[np.float32], bins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over all values: what lies beyond the axis is missing from the curve, and makes it no higher."""
    counts = np.histogram(values, bins)[0]
    density: NDArray[np.float64] = counts / (len(values) * np.diff(bins))
    return density
