"""Images that left, a sheet for each file: small PNGs inside the page, blown up by the browser."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import FedsynthError
from artifacts.kinds import KINDS
from artifacts.places import RunFolder
from stages.data.png import encode_png
from stages.pictures.sent_images import SentImages, read_images
from stages.pictures.surrogates import spread
from stages.report.sent_files import REPLACED, SentFile

MOST_SHEETS = 24
_MOST_IMAGES = 60
_ACROSS = 500  # pixels of the screen that a sheet may take: two of them beside each other, one on a phone
_SHOWN = 32  # pixels that a small image is blown up to at least, in whole steps
_GAP = 1


@dataclass(frozen=True)
class Sheet:
    """`width` and `height` are what the browser shows; `source` is the PNG, as a data URI."""

    caption: str
    detail: str
    source: str
    width: int
    height: int


def sheets(run: RunFolder, sent: Mapping[str, Sequence[SentFile]]) -> tuple[list[Sheet], int]:
    """The sheets that there is room for, and how many there would be. Of many rounds the first and the last."""
    wanted: list[tuple[Path, SentFile]] = []
    for who, files in sent.items():
        outbox = (run.server if who == "server" else run.client(who)).outbox
        for kind in [name for name, kind in KINDS.items() if kind.pictures]:
            there = [file for file in files if file.kind == kind and file.status != REPLACED]
            mine = [file for file in there if (outbox / file.file).is_file()]
            # What the server deals out are the clients' images again.
            if mine and not (who == "server" and KINDS[kind].pictures == "bytes"):
                wanted += [(outbox / file.file, file) for file in (mine if len(mine) < 2 else (mine[0], mine[-1]))]
    # Of many clients some, over all of them.
    chosen = spread(wanted, MOST_SHEETS)
    return [sheet for path, file in chosen for sheet in _sheet(path, file)], len(wanted)


def _sheet(path: Path, file: SentFile) -> Iterator[Sheet]:
    try:
        found = read_images(path, file.kind, _MOST_IMAGES)
    except (FedsynthError, ValueError):
        return  # the audit says what is wrong with it
    images = found.images
    if not len(images):
        return
    who = "the server" if file.who == "server" else f"client {file.who}"
    when = f", round {file.round}" if file.round else ""
    shown = f"{len(images)} of {found.total} images" if len(images) < found.total else f"{found.total} images"
    zoom = -(-_SHOWN // max(images.shape[2:]))
    canvas = _grid(images, columns=max(4, _ACROSS // ((images.shape[3] + _GAP) * zoom)))
    png = base64.b64encode(encode_png(canvas)).decode("ascii")
    yield Sheet(
        f"{file.kind} from {who}{when}",
        f"{file.file}: {shown}, by class. {_scale(file.kind, found)}".strip(),
        f"data:image/png;base64,{png}",
        canvas.shape[1] * zoom,
        canvas.shape[0] * zoom,
    )


def _scale(kind: str, found: SentImages) -> str:
    """How the pixels are shown."""
    if found.ends is not None:
        return f"Black is {found.ends[0]:.2g}, white {found.ends[1]:.2g}."
    return (
        "Shown clipped to −1 … 1, black to white; the pixels sent go beyond."
        if KINDS[kind].pictures == "clipped"
        else ""
    )


def _grid(images: NDArray[np.uint8], *, columns: int) -> NDArray[np.uint8]:
    """[n, c, h, w] → one picture [h', w', c], mid-grey between the images."""
    count, channels, height, width = images.shape
    columns = min(columns, count)
    rows = -(-count // columns)
    shape = (rows * (height + _GAP) - _GAP, columns * (width + _GAP) - _GAP, channels)
    canvas = np.full(shape, 128, np.uint8)
    for number, image in enumerate(images):
        top, left = number // columns * (height + _GAP), number % columns * (width + _GAP)
        canvas[top : top + height, left : left + width] = image.transpose(1, 2, 0)
    return canvas
