"""Images that left, a sheet for each file: small PNGs inside the page, blown up by the browser."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts import tensors_file
from artifacts.errors import FedsynthError
from artifacts.places import RunFolder
from stages.data.dataset_images import load_dataset
from stages.data.images import to_bytes
from stages.data.png import encode_png
from stages.pictures.surrogates import spread
from stages.proxy_file import seen_pixels
from stages.report.sent_files import SentFile

MOST_SHEETS = 24
_MOST_IMAGES = 60
_ACROSS = 500  # pixels of the screen that a sheet may take: two of them beside each other, one on a phone
_SHOWN = 32  # pixels that a small image is blown up to at least, in whole steps
_GAP = 1
_KINDS = ("dataset", "surrogate", "proxy")


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
        for kind in _KINDS:
            mine = [file for file in files if file.kind == kind and (outbox / file.file).is_file()]
            # What the server deals out are the clients' images again.
            if mine and not (who == "server" and kind == "dataset"):
                wanted += [(outbox / file.file, file) for file in (mine if len(mine) < 2 else (mine[0], mine[-1]))]
    # Of many clients some, over all of them.
    chosen = spread(wanted, MOST_SHEETS)
    return [sheet for path, file in chosen for sheet in _sheet(path, file)], len(wanted)


def _sheet(path: Path, file: SentFile) -> Iterator[Sheet]:
    try:
        images, labels, scale = _images(path, file.kind)
    except (FedsynthError, ValueError):
        return  # the audit says what is wrong with it
    if not len(images):
        return
    order = np.argsort(labels, kind="stable")
    rows = np.array(spread(list(order), _MOST_IMAGES))
    who = "the server" if file.who == "server" else f"client {file.who}"
    when = f", round {file.round}" if file.round else ""
    shown = f"{len(rows)} of {len(images)} images" if len(rows) < len(images) else f"{len(images)} images"
    zoom = -(-_SHOWN // max(images.shape[2:]))
    canvas = _grid(images[rows], columns=max(4, _ACROSS // ((images.shape[3] + _GAP) * zoom)))
    png = base64.b64encode(encode_png(canvas)).decode("ascii")
    yield Sheet(
        f"{file.kind} from {who}{when}",
        f"{file.file}: {shown}, by class. {scale}".strip(),
        f"data:image/png;base64,{png}",
        canvas.shape[1] * zoom,
        canvas.shape[0] * zoom,
    )


def _images(path: Path, kind: str) -> tuple[NDArray[np.uint8], NDArray[np.int64], str]:
    """Images, classes, and how the pixels are shown."""
    if kind == "dataset":
        content = load_dataset(path).content
        return content.images, content.labels, ""
    tensors: dict[str, NDArray[Any]] = dict(tensors_file.read(path, kind=kind).tensors)
    if kind == "surrogate":
        words = "Shown clipped to −1 … 1, black to white; the pixels sent go beyond."
        return _visible(to_bytes(tensors["images"].astype(np.float32))), tensors["labels"], words
    pixels = seen_pixels(tensors)
    low, high = float(pixels.min()), float(pixels.max())
    scaled = (pixels - low) / max(high - low, 1e-12) * 2 - 1
    classes = tensors["labels"].astype(np.float32).argmax(axis=1)
    return _visible(to_bytes(scaled)), classes, f"Black is {low:.2g}, white {high:.2g}."


def _visible(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Of three channels or more the first three are colours."""
    return images[:, :3] if images.shape[1] >= 3 else images[:, :1]


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
