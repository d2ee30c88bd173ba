"""The images of synthetic sets at a glance: a row for each client and class, the rounds side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.pictures.contact_sheet import blown_up
from stages.pictures.render import plain_style, png_bytes
from stages.pictures.sent_images import visible
from stages.pictures.surrogates import spread

_DPI = 100
_SHOWN = 40  # pixels that a small image is blown up to at least, in whole steps
_GAP, _BETWEEN = 4, 24  # between images, between rounds
_HEAD, _NAMES, _MARGIN = 84, 160, 16
_NARROWEST = 640  # for the text in the head
_MOST_ROUNDS, _MOST_COLUMNS, _MOST_ROWS = 4, 24, 60
_WHITE, _FRAME = 255, (176, 200, 224)  # a pale blue, so that white pixels at an edge are seen


@dataclass(frozen=True, eq=False)
class SheetRound:
    """The images [n, c, h, w] and labels [n] of each client."""

    round: int
    sets: Mapping[str, tuple[NDArray[np.float32], NDArray[np.int64]]]

    def row(self, client: str, label: int) -> NDArray[np.float32] | None:
        if client not in self.sets:
            return None
        images, labels = self.sets[client]
        mine: NDArray[np.float32] = images[labels == label]
        return mine


def surrogate_sheet(rounds: Sequence[SheetRound]) -> bytes:
    """PNG; what there is no room for is counted in the head."""
    from matplotlib.figure import Figure

    rounds, every = spread(rounds, _MOST_ROUNDS), len(rounds)
    keys = sorted({(client, int(label)) for r in rounds for client, (_, labels) in r.sets.items() for label in labels})
    shown = keys[:_MOST_ROWS]
    most = max(len(row) for r in rounds for key in keys if (row := r.row(*key)) is not None)
    columns = min(most, max(1, _MOST_COLUMNS // len(rounds)))
    height, width = next(iter(rounds[0].sets.values()))[0].shape[2:]
    zoom = -(-_SHOWN // max(height, width))
    cell = (height * zoom + _GAP, width * zoom + _GAP)
    block = columns * cell[1] + _BETWEEN
    canvas = np.full(
        (_HEAD + len(shown) * cell[0] + _MARGIN, max(_NARROWEST, _NAMES + len(rounds) * block + _MARGIN), 3),
        _WHITE,
        np.uint8,
    )
    for place, found in enumerate(rounds):
        for number, key in enumerate(shown):
            row = found.row(*key)
            if row is None or not len(row):
                continue
            top = _HEAD + number * cell[0]
            for column, image in enumerate(blown_up(visible(row[:columns]), zoom)):
                left = _NAMES + place * block + column * cell[1]
                canvas[top - _GAP : top + cell[0], left - _GAP : left + cell[1]] = _FRAME
                canvas[top : top + image.shape[0], left : left + image.shape[1]] = image
    with plain_style():
        figure = Figure(figsize=(canvas.shape[1] / _DPI, canvas.shape[0] / _DPI))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.imshow(canvas, interpolation="nearest", aspect="auto")
        axes.set_axis_off()
        axes.text(_MARGIN, 20, "Synthetic sets as they were sent", fontsize=10, weight="bold", va="center")
        text = _head(rounds, every, (columns, most), (len(shown), len(keys)))
        axes.text(_MARGIN, 40, text, fontsize=7.5, color="0.35", va="center")
        for place, found in enumerate(rounds):
            axes.text(
                _NAMES + place * block, _HEAD - 12, f"round {found.round}", fontsize=8.5, weight="bold", va="center"
            )
        for number, (client, label) in enumerate(shown):
            middle = _HEAD + number * cell[0] + (cell[0] - _GAP) / 2
            if number == 0 or shown[number - 1][0] != client:
                axes.text(_MARGIN, middle, _short(f"client {client}"), fontsize=8, va="center", parse_math=False)
            axes.text(_NAMES - 10, middle, f"class {label}", fontsize=8, va="center", ha="right")
        return png_bytes(figure, dpi=_DPI)


def _head(rounds: Sequence[SheetRound], every: int, columns: tuple[int, int], rows: tuple[int, int]) -> str:
    words = ["Shown clipped to −1 … 1, black to white: the pixels sent are free numbers that go beyond."]
    if len(rounds) < every:
        words.append(f"{len(rounds)} of {every} rounds.")
    if columns[0] < columns[1]:
        words.append(f"The first {columns[0]} of {columns[1]} images.")
    if rows[0] < rows[1]:
        words.append(f"The first {rows[0]} of {rows[1]} rows.")
    return " ".join(words)


def _short(name: str, letters: int = 11) -> str:
    return name if len(name) <= letters else name[: letters - 1] + "…"
