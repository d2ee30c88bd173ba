"""The picture of a partition: how many rows of each class each client has, as papers of the field show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stages.pictures.render import plain_style, png_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_NUMBERED = 20
_MOST_TICKS = 50
_MOST_LINES = 100
_LONGEST_NAME = 20


def class_counts_picture(counts: NDArray[np.int64], class_names: Sequence[str]) -> bytes:
    """PNG of a grid, clients down, classes across, darker where `counts[client, class]` is larger; totals beside.

    A cell without rows is white, and the colour follows the square root of the count from a visible blue on: one
    row differs from none. The cells have numbers while there is room. Equal arguments, equal bytes.
    """
    num_clients, num_classes = counts.shape
    if len(class_names) != num_classes or counts.size == 0:
        raise ValueError(f"counts {list(counts.shape)} need one name for each class, found {len(class_names)}")
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm
    from matplotlib.figure import Figure

    numbered = num_clients <= _MOST_NUMBERED and num_classes <= _MOST_NUMBERED
    cell = 0.42 if numbered else 0.16
    width = float(np.clip(num_classes * cell, 2.4, 16.0))
    height = float(np.clip(num_clients * cell, 1.6, 16.0))
    with plain_style():
        figure = Figure(figsize=(width + 3.4, height + 1.8), layout="constrained")
        grid, totals = figure.subplots(1, 2, sharey=True, width_ratios=[width, 1.2])
        blues = LinearSegmentedColormap.from_list("rows", matplotlib.colormaps["Blues"](np.linspace(0.15, 1, 256)))
        norm = PowerNorm(0.5, vmin=0, vmax=max(int(counts.max()), 1))
        cells = np.ma.masked_equal(counts, 0)
        mesh = grid.imshow(cells, cmap=blues, norm=norm, aspect="auto", interpolation="nearest")
        figure.colorbar(mesh, ax=totals, label="rows in a cell")
        grid.set_title(f"{counts.sum():,} rows: {num_clients} clients, {num_classes} classes", fontsize="medium")
        _draw_frame(grid, class_names, num_clients)
        if numbered:
            _write_counts(grid, counts)
        _draw_totals(totals, counts.sum(axis=1))
        return png_bytes(figure)


def _draw_frame(axes: Axes, class_names: Sequence[str], num_clients: int) -> None:
    """Lines between the cells while they are few; ticks on every class and client, or on every second or so."""
    class_step, client_step = (-(-count // _MOST_TICKS) for count in (len(class_names), num_clients))
    shown = range(0, len(class_names), class_step)
    names = [_short(class_names[i]) for i in shown]
    turned = max(map(len, names)) > 2
    # A class may be named «$x$»: that is a name and no formula.
    axes.set_xticks(shown, names, rotation=90 if turned else 0, parse_math=False)
    axes.set_yticks(range(0, num_clients, client_step))
    axes.set(xlabel="class", ylabel="client")
    # Drawn as two collections: as a grid of minor ticks they take as long as all the rest.
    right, bottom = len(class_names) - 0.5, num_clients - 0.5
    if len(class_names) <= _MOST_LINES:
        axes.vlines(np.arange(0.5, right), -0.5, bottom, color="0.85", linewidth=0.5)
    if num_clients <= _MOST_LINES:
        axes.hlines(np.arange(0.5, bottom), -0.5, right, color="0.85", linewidth=0.5)


def _write_counts(axes: Axes, counts: NDArray[np.int64]) -> None:
    dark = counts.max() * 0.36  # there the square-root scale passes 0.6, and black on blue is hard to read
    for client, label in np.argwhere(counts > 0):
        count = counts[client, label]
        colour = "white" if count > dark else "black"
        size = 8 if count < 1000 else 6.5
        axes.text(label, client, str(count), ha="center", va="center", color=colour, fontsize=size)


def _draw_totals(axes: Axes, totals: NDArray[np.int64]) -> None:
    bars = axes.barh(np.arange(len(totals)), totals, color="0.8", height=0.8)
    axes.set_xlim(left=0)
    axes.tick_params(axis="y", which="both", left=False, labelleft=False)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set_title("all", fontsize="medium")
    axes.set_xticks([])
    if len(totals) > _MOST_LINES:
        return
    # At the axis, not at the bar's end: there they would be out of line, and a long bar would push its own out.
    size = 8 if len(totals) <= _MOST_TICKS else 5
    for bar, total in zip(bars, totals, strict=True):
        middle = bar.get_y() + bar.get_height() / 2
        axes.annotate(str(total), (0, middle), (3, 0), textcoords="offset points", va="center", fontsize=size)


def _short(name: str) -> str:
    line = " ".join(name.split())
    return line if len(line) <= _LONGEST_NAME else line[: _LONGEST_NAME - 1] + "…"
