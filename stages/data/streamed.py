"""Images of datasets too large for memory: decoded from the files as they are asked for, and held no longer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.formats import dataset_rows
from artifacts.formats.dataset_stream import DatasetStream, ImageReader
from stages.data.png import decode_png
from stages.methods.image_rows import ImageArray


class StreamedImages:
    """Images uint8 [n, c, h, w] that are indexed as an array is, by row numbers or a slice, and then decoded.

    The parts are one behind the other; of a dataset that was decoded, its array. In memory are 16 bytes a row.
    """

    def __init__(self, parts: Sequence[ImageArray], rows: NDArray[np.int64] | None = None) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *map(len, parts)])
        self._rows = np.arange(self._starts[-1]) if rows is None else rows
        self.shape = (len(self._rows), *parts[0].shape[1:])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: NDArray[np.int64] | slice) -> NDArray[np.uint8]:
        chosen = self._rows[rows]
        images = np.empty((len(chosen), *self.shape[1:]), np.uint8)
        owners = np.searchsorted(self._starts, chosen, side="right") - 1
        for number, part in enumerate(self._parts):
            mine = owners == number
            images[mine] = part[chosen[mine] - self._starts[number]]
        return images

    def take(self, rows: NDArray[np.int64]) -> StreamedImages:
        """The given rows, in the given order. Nothing is decoded."""
        return StreamedImages(self._parts, self._rows[rows])


class EncodedImages:
    """The images of one file, by their row numbers."""

    def __init__(self, found: DatasetStream, *, blank: bool) -> None:
        self._reader, self._blank = ImageReader(found), blank
        self.shape = (len(found), *dataset_rows.image_shape(found.metadata))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        self._reader.check()
        images = np.empty((len(rows), *self.shape[1:]), np.uint8)
        for place, row in enumerate(rows.tolist()):
            image = decoded(self._reader[row], self.shape[1:], self._reader.found.path, row, blank=self._blank)
            images[place] = 0 if image is None else image
        return images


@dataclass(frozen=True, eq=False)
class StreamedRows:
    """What `LabelledImages` is of a dataset in memory."""

    images: StreamedImages
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    units: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.labels)


def streamed_rows(found: DatasetStream, *, blank: bool) -> StreamedRows:
    images = StreamedImages([EncodedImages(found, blank=blank)])
    names = tuple(found.metadata.params["class_names"])
    return StreamedRows(images, found.labels.astype(np.int64), names, found.units)


def decoded(png: bytes, shape: tuple[int, ...], path: Path, row: int, *, blank: bool) -> NDArray[np.uint8] | None:
    """The image of one row, which must have the shape that the file states; else None with `blank`, or an error."""
    try:
        image = decode_png(png, max_pixels=shape[1] * shape[2])
        if image.shape != shape:
            raise ValueError(f"an image of {image.shape}, but the file says {shape}")
    except ValueError as error:
        if blank:
            return None
        raise InputError(f"{path}, row {row}: {error}. Get the file again.") from error
    return image
