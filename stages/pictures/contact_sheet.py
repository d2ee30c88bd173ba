"""The contact sheet: every synthetic image at a glance, numbered, for the person who approves what leaves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stages.pictures.render import plain_style, png_bytes

_DPI = 100
_SHOWN = 56  # pixels that a small image is blown up to at least, in whole steps: 8×8 to 56×56, 32×32 to 64×64
_GAP = 12
_WIDTH, _HEIGHT = 1240, 1180
_NARROWEST = 640  # for the text in the head
_LINE = 13
_HEAD = 56
_MARGIN = 16
_SHORT = 3  # class names up to this length are beside the number, longer ones below it
_PIXELS_A_LETTER = 7
_WHITE = 255


def contact_sheets(
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    numbers: NDArray[np.int64],
    class_names: Sequence[str],
    title: str,
) -> list[bytes]:
    """PNGs of the images [n, c, h, w], as many to a sheet as one can look at, each with its number and its class."""
    _, _, height, width = images.shape
    zoom = -(-_SHOWN // max(height, width))
    below = max(len(name) for name in class_names) > _SHORT
    cell = (height * zoom + _LINE * (2 if below else 1) + _GAP, width * zoom + _GAP)
    columns = max(4, _WIDTH // cell[1])
    rows = max(2, _HEIGHT // cell[0])
    size = columns * rows
    total = -(-len(images) // size)
    sheets = []
    for page in range(total):
        these = slice(page * size, (page + 1) * size)
        shown = numbers[these]
        note = f"Sheet {page + 1} of {total}: numbers {shown[0]} to {shown[-1]}." if total > 1 else ""
        captions = [(str(number), class_names[label]) for number, label in zip(shown, labels[these], strict=True)]
        # A sheet that is not full loses its empty rows; a few images are in one row.
        grid = (-(-len(shown) // columns), min(columns, len(images)))
        sheets.append(_sheet(blown_up(images[these], zoom), captions, grid, cell, below, title, note))
    return sheets


def blown_up(images: NDArray[np.uint8], zoom: int) -> NDArray[np.uint8]:
    """[n, c, h, w] → [n, h·zoom, w·zoom, 3], each pixel a square."""
    colour = np.broadcast_to(images, (len(images), 3, *images.shape[2:])).transpose(0, 2, 3, 1)
    return colour.repeat(zoom, axis=1).repeat(zoom, axis=2)


def _sheet(
    images: NDArray[np.uint8],
    captions: Sequence[tuple[str, str]],
    grid: tuple[int, int],
    cell: tuple[int, int],
    below: bool,
    title: str,
    note: str,
) -> bytes:
    """One page, laid out in pixels: an image is never resampled, so that what is seen is what is sent."""
    from matplotlib.figure import Figure

    height, width = images.shape[1:3]
    page_height = _HEAD + grid[0] * cell[0] + _MARGIN
    page_width = max(_NARROWEST, 2 * _MARGIN + grid[1] * cell[1])
    canvas = np.full((page_height, page_width, 3), _WHITE, np.uint8)
    places = [
        (_HEAD + (i // grid[1]) * cell[0], _MARGIN + _GAP // 2 + (i % grid[1]) * cell[1]) for i in range(len(images))
    ]
    for image, (top, left) in zip(images, places, strict=True):
        canvas[top : top + height, left : left + width] = image
    with plain_style():
        figure = Figure(figsize=(page_width / _DPI, page_height / _DPI))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.imshow(canvas, interpolation="nearest", aspect="auto")
        axes.set_axis_off()
        left = _MARGIN + _GAP // 2
        axes.text(left, 20, title, fontsize=10, weight="bold", va="center", parse_math=False)
        help_text = "The grey number is the one that --drop takes; beside it, the class that was asked for."
        help_text = help_text.replace("beside", "below") if below else help_text
        axes.text(left, 39, f"{help_text} {note}".strip(), fontsize=7, color="0.35", va="center")
        letters = max(4, (width + _GAP) // _PIXELS_A_LETTER)
        for (top, left), (number, name) in zip(places, captions, strict=True):
            foot = top + height + 2
            axes.text(left, foot, number, fontsize=7, color="0.5", va="top", ha="left")
            where = (left, foot + _LINE - 1, "left") if below else (left + width, foot, "right")
            axes.text(
                where[0], where[1], _short(name, letters), fontsize=7.5, va="top", ha=where[2], weight="bold",
                parse_math=False,
            )  # fmt: skip
        return png_bytes(figure, dpi=_DPI)


def _short(name: str, letters: int) -> str:
    line = " ".join(name.split())
    return line if len(line) <= letters else line[: letters - 1] + "…"
