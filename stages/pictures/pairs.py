"""The memorisation check to look at: the closest pairs side by side, and the two distributions of distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.pictures.palette import style
from stages.pictures.render import plain_style, png_bytes

_COLUMNS = 4
_BINS = 40
_LEAST_WIDTH = 0.05  # of the axis of distances, where all are copies
_SHOWN = 96  # pixels that a small image is blown up to at least


@dataclass(frozen=True)
class Pair:
    """A synthetic image [c, h, w], the real one nearest to it, and how far they are apart."""

    synthetic: NDArray[np.uint8]
    real: NDArray[np.uint8]
    distance: float


def pairs_picture(
    pairs: Sequence[Pair], synthetic: NDArray[np.float64], reference: NDArray[np.float64], reference_words: str
) -> bytes:
    """PNG: each pair synthetic | real with its distance below; under them, how far all images are from the real."""
    from matplotlib.figure import Figure

    rows = -(-len(pairs) // _COLUMNS)
    with plain_style():
        figure = Figure(figsize=(8.4, 1.3 * rows + 3.4), layout="constrained")
        above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[1.3 * rows + 0.6, 2.8])[:, 0]
        above.suptitle("closest pairs: synthetic (left), nearest real (right)", fontsize=10)
        grid = above.subplots(rows, _COLUMNS, squeeze=False)
        for place, axes in enumerate(grid.flat):
            axes.set_axis_off()
            if place < len(pairs):
                pair = pairs[place]
                axes.imshow(_side_by_side(pair), interpolation="nearest")
                words = "copy" if pair.distance == 0 else f"{pair.distance:.3f}"
                axes.set_title(words, y=-0.3, fontsize=9, weight="bold" if pair.distance == 0 else "normal")
        axes = below.add_subplot()
        top = float(max(synthetic.max(), reference.max(), _LEAST_WIDTH)) * 1.02
        bins = np.linspace(0, top, _BINS + 1)
        for number, (values, words) in enumerate([(synthetic, "synthetic images"), (reference, reference_words)]):
            look, weights = style(number), np.full(len(values), 1 / len(values))
            axes.hist(values, bins.tolist(), weights=weights, color=look.colour, alpha=0.3)
            axes.hist(
                values, bins.tolist(), weights=weights, histtype="step", color=look.colour, linewidth=1.5, label=words,
                linestyle="-" if number == 0 else "--",
            )  # fmt: skip
        axes.set(xlabel="distance to the nearest real image (0: a copy, 1: black to white)", ylabel="share of images")
        axes.set_xlim(0, top)
        axes.margins(y=0.25)
        axes.legend(loc="upper right", frameon=False, fontsize=9)
        return png_bytes(figure)


def _side_by_side(pair: Pair) -> NDArray[np.uint8]:
    """The two as one colour image, close together, with white at both ends: one sees what belongs together."""
    zoom = -(-_SHOWN // max(pair.synthetic.shape[1:]))
    left, right = (
        np.broadcast_to(image, (3, *image.shape[1:])).transpose(1, 2, 0).repeat(zoom, axis=0).repeat(zoom, axis=1)
        for image in (pair.synthetic, pair.real)
    )
    height, width = left.shape[:2]
    between, beside = (np.full((height, width // part, 3), 255, np.uint8) for part in (24, 6))
    return np.concatenate([beside, left, between, right, beside], axis=1)
