"""The loss around a model along two directions, as contours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stages.pictures.palette import style
from stages.pictures.render import plain_style, png_bytes

_LINES = 14


def surface_picture(steps: Sequence[float], losses: Sequence[Sequence[float]], title: str) -> bytes:
    """PNG. Levels are equally far apart in the logarithm: a loss that explodes at the rim would hide the valley."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure
    from matplotlib.patheffects import withStroke
    from matplotlib.ticker import FuncFormatter

    heights = np.maximum(np.ma.masked_invalid(np.array(losses, dtype=np.float64)), 1e-12)
    low, high = float(heights.min()), float(heights.max())
    if not high > low * (1 + 1e-9):  # flat: matplotlib wants levels that differ
        low, high = low * 0.99, high * 1.01
    levels = np.geomspace(low, high, _LINES)
    number = FuncFormatter(lambda value, _: f"{value:.3g}")
    with plain_style():
        figure = Figure(figsize=(6.4, 5.2), layout="constrained")
        axes = figure.add_subplot()
        filled = axes.contourf(steps, steps, heights, levels=levels, norm=LogNorm(low, high), cmap="viridis_r")
        lines = axes.contour(steps, steps, heights, levels=levels, colors="black", linewidths=0.5, alpha=0.6)
        for label in axes.clabel(lines, levels[1::2], fontsize=8, fmt=number):
            label.set(color="black", alpha=1.0, path_effects=[withStroke(linewidth=2.5, foreground="white")])
        axes.plot([0], [0], "*", color=style(1).colour, markeredgecolor="white", markersize=13)
        axes.set(xlabel="first direction", ylabel="second direction", aspect="equal")
        axes.set_title(title, fontsize=9)
        bar = figure.colorbar(filled, ax=axes, label="loss", format=number, ticks=levels[::2])
        bar.ax.minorticks_off()
        return png_bytes(figure)
