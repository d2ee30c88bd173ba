"""An attack to look at (TOFU, Fig. 2): private images, below each what was made of an update, beside it the proxy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.pictures.render import plain_style, png_bytes
from stages.pictures.sent_images import visible

_COLUMNS, _COLUMNS_OF_TWO = 10, 6  # at most, in one block and in each of two
_CELL, _CAPTION, _NAMES, _BETWEEN = 0.8, 0.24, 1.6, 0.45  # inches
_HEAD = 0.75

# Images [c, h, w] in −1…1, none where a column has none, and what is below each.
Shown = Sequence[tuple[NDArray[np.floating[Any]] | None, str]]


@dataclass(frozen=True, eq=False)
class AttackRow:
    """What the attack made, in the columns of the private images; `own` is what the file itself shows."""

    name: str
    found: Shown
    own: Shown = field(default=())


def attack_picture(rows: Sequence[AttackRow]) -> bytes:
    """PNG. The first row is the truth: the others are in its order, as many as there is room for."""
    from matplotlib.figure import Figure

    two = any(row.own for row in rows)
    every = len(rows[0].found)
    columns = min(every, _COLUMNS_OF_TWO if two else _COLUMNS)
    block = columns * _CELL
    width = max(4.0, _NAMES + block * (2 if two else 1) + (_BETWEEN if two else 0) + 0.1)
    total = _HEAD + len(rows) * (_CELL + _CAPTION) + 0.05
    with plain_style():
        figure = Figure(figsize=(width, total))

        def write(left: float, top: float, words: str, **look: Any) -> None:
            figure.text(left / width, 1 - top / total, words, va="center", parse_math=False, **look)

        more = f"; {every - columns} more images are not shown" if every > columns else ""
        write(0.1, 0.17, "Inverting gradients", fontsize=10, weight="bold")
        write(0.1, 0.37, f"PSNR: to the private image at the top{more}", fontsize=8, color="0.35")
        if two:
            write(_NAMES, 0.6, "what the attack finds", fontsize=8.5, weight="bold")
            write(_NAMES + block + _BETWEEN, 0.6, "nearest of the proxy's own images", fontsize=8.5, weight="bold")
        for number, row in enumerate(rows):
            top = _HEAD + number * (_CELL + _CAPTION)
            write(_NAMES - 0.12, top + _CELL / 2, row.name, fontsize=8.5, ha="right")
            for start, shown in ((_NAMES, row.found), (_NAMES + block + _BETWEEN, row.own)):
                for column, (image, words) in enumerate(shown[:columns]):
                    if image is None:
                        continue
                    place = (start + column * _CELL) / width, 1 - (top + 0.92 * _CELL) / total
                    axes = figure.add_axes((*place, 0.9 * _CELL / width, 0.9 * _CELL / total))
                    axes.imshow(_in_colours(image), interpolation="nearest")
                    axes.set_xticks([])
                    axes.set_yticks([])
                    for spine in axes.spines.values():
                        spine.set(color="0.6", linewidth=0.6)
                    axes.set_xlabel(words, fontsize=8, labelpad=2)
        return png_bytes(figure)


def _in_colours(image: NDArray[np.floating[Any]]) -> NDArray[np.uint8]:
    kept = visible(image)
    return np.broadcast_to(kept, (3, *kept.shape[1:])).transpose(1, 2, 0)
