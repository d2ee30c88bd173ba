"""Datasets too large for memory: the file of `dataset_file`, read a batch at a time; `dataset_writing` writes them.

The layout, the seal, the digest and the checks are those of `dataset_file`; nothing is defined twice. In memory
are a batch of images, and of each row its label (2 bytes) and the length of its image (4 bytes).
"""

from __future__ import annotations

import contextlib
import math
import os
import struct
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from artifacts import limits
from artifacts.errors import InputError
from artifacts.formats import dataset_file, dataset_rows, parquet_layout
from artifacts.formats.dataset_rows import PayloadDigest
from artifacts.formats.parquet_layout import ROWS_PER_GROUP
from artifacts.formats.tensors_file import damaged
from artifacts.metadata import Metadata

_BATCH_BYTES = 1 << 20
_READ_AHEAD = 1 << 16
_LENGTH = struct.Struct("<I")
# What the operating system says of a file that was replaced or written to.
_Identity = tuple[int, int, int, int]


@dataclass(frozen=True)
class DatasetStream:
    """A dataset that was found whole, with its images still on the disk."""

    path: Path
    metadata: Metadata
    payload_sha256: str
    sha256: str
    size: int
    labels: NDArray[np.uint16]
    lengths: NDArray[np.uint32]
    identity: _Identity
    seal_sha256: str
    writer: str  # the version of Arrow
    units: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def check(self, descriptor: int) -> None:
        """`InputError` if somebody wrote into the open file since it was scanned."""
        if _identity(descriptor) != self.identity:
            raise InputError(f"{self.path} changed while it was read. Let nobody write to it and run again.")

    def images(self) -> Iterator[pa.BinaryArray]:
        """The images in their order, in batches. That they are those of the digest is known at the end."""
        with _explained(self.path), self.path.open("rb") as handle:
            self.check(handle.fileno())
            yield from _images(handle, self)


class ImageReader:
    """Single images of a dataset that was scanned, in any order, from its file, which stays open. 8 bytes a row."""

    def __init__(self, found: DatasetStream) -> None:
        self.found = found
        with _explained(found.path), found.path.open("rb") as handle:
            self._descriptor = os.dup(handle.fileno())
            weakref.finalize(self, os.close, self._descriptor)
            self.check()
            start, end, _ = dataset_file.find_footer(handle)
            self._offsets = _offsets(_FileBytes(handle, found.size), start, end, found.lengths)

    def __getitem__(self, row: int) -> bytes:
        length = int(self.found.lengths[row])
        return os.pread(self._descriptor, length, int(self._offsets[row]))

    def check(self) -> None:
        """`InputError` if somebody wrote into the file since it was scanned."""
        self.found.check(self._descriptor)


def _offsets(data: _FileBytes, start: int, end: int, lengths: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Where the image of each row begins."""
    offsets = np.empty(len(lengths), np.int64)
    row = 0
    for count, first, _ in parquet_layout.image_pages(data, start, end):
        taken = lengths[row : row + count].astype(np.int64) + 4
        offsets[row : row + count] = first + 4 + np.cumsum(taken) - taken
        row += count
    return offsets


def scan(path: Path, look: Callable[[pa.BinaryArray, Metadata], None] | None = None) -> DatasetStream:
    """Check everything that the file claims, as `dataset_file.read` does, and leave its images where they are.

    `look` is shown them all, a batch at a time.
    """
    found = begin(path)
    for images in found.images():
        if look is not None:
            look(images, found.metadata)
    return found


def begin(path: Path) -> DatasetStream:
    """The same for who goes through its `images` anyway: that they are those of the digest is checked there.

    The file is read once here, and once by `images`: its digest, and the lengths that the digest of the content begins
    with, must be known before the first image is used.
    """
    with _explained(path), limits.open_file(path) as handle:
        identity = _identity(handle.fileno())
        start, end, _ = dataset_file.find_footer(handle)
        bytes_of = _FileBytes(handle, end + 8)
        lengths, fault = _Lengths(), None
        try:
            parquet_layout.check(bytes_of, start, end)
            lengths = _Lengths(parquet_layout.image_pages(bytes_of, start, end))
        except ValueError as error:
            fault = error
        # The seal comes first, the layout second: a damaged or hostile file is never handed to the Parquet parser.
        sealed, digest = dataset_file.check_seal(handle, lengths.look)
        if fault is not None:
            raise fault
        writer = parquet_layout.writer_of(bytes_of[start:end])
        labels, units = _labels(handle, end + 8, sealed.metadata)
        columns = labels, lengths.found(len(labels))
    sealed_as = path, sealed.metadata, sealed.payload_sha256, digest, end + 8
    return DatasetStream(*sealed_as, *columns, identity, sealed.seal_sha256, writer, units)


class _FileBytes:
    """An open file as bytes that are read when they are asked for."""

    def __init__(self, handle: BinaryIO, size: int) -> None:
        self._descriptor, self._size = handle.fileno(), size

    def __getitem__(self, piece: slice, /) -> bytes:
        start, stop, _ = piece.indices(self._size)
        return os.pread(self._descriptor, max(0, stop - start), start)


class _Lengths:
    """The length of every image, from the bytes of a file as they pass: each is in front of its image.

    `pages` are those of `parquet_layout.image_pages`, all of which end before the bytes do.
    """

    def __init__(self, pages: Iterable[tuple[int, int, int]] = ()) -> None:
        self._wanted, self._found = self._positions(pages), array("I")
        self._next = next(self._wanted, None)
        self._passed, self._tail = 0, b""

    def look(self, piece: bytes) -> None:
        """The next bytes."""
        start, self._passed = self._passed, self._passed + len(piece)
        while self._next is not None and self._next + 4 <= self._passed:
            cut = self._next < start
            data, first = (self._tail + piece[:4], start - len(self._tail)) if cut else (piece, start)
            (length,) = _LENGTH.unpack_from(data, self._next - first)
            self._found.append(length)
            self._next = next(self._wanted, None)
        self._tail = (self._tail + piece[-3:])[-3:]

    def found(self, rows: int) -> NDArray[np.uint32]:
        """Of that many images, or a `ValueError`."""
        if len(self._found) != rows:
            raise ValueError("its images are longer than their pages, or shorter")
        return np.frombuffer(self._found, np.uint32)

    def _positions(self, pages: Iterable[tuple[int, int, int]]) -> Iterator[int]:
        """Where each length is; the one before it has been found by then."""
        for count, position, stop in pages:
            for _ in range(count):
                if position + 4 > stop:
                    return
                yield position
                position += 4 + self._found[-1]
            if position != stop:
                return


def _labels(handle: BinaryIO, size: int, metadata: Metadata) -> tuple[NDArray[np.uint16], NDArray[np.int64] | None]:
    """The label of each row, and whose it is if the file says so. No other column is read."""
    rows = dataset_rows.open_rows(handle, size, metadata, buffer_size=_READ_AHEAD)
    labels = np.empty(rows.metadata.num_rows, np.uint16)
    has_units = dataset_rows.has_units(metadata)
    units, first = [], 0
    for batch in rows.iter_batches(ROWS_PER_GROUP, columns=["label", "unit"][: 1 + has_units], use_threads=False):
        labels[first : first + len(batch)] = dataset_rows.check_labels(batch["label"], metadata)
        units += [batch["unit"]] if has_units else []
        first += len(batch)
    if first != len(labels):
        raise ValueError(f"it claims {len(labels)} rows and holds {first}")
    return labels, dataset_rows.check_units(pa.chunked_array(units, pa.int64())) if has_units else None


def _images(handle: BinaryIO, found: DatasetStream) -> Iterator[pa.BinaryArray]:
    """The images in batches; a `ValueError` at the end if they are not those of the digest."""
    digest = PayloadDigest(found.labels, found.lengths, found.units)
    rows = dataset_rows.open_rows(handle, found.size, found.metadata, buffer_size=_READ_AHEAD)
    for batch in rows.iter_batches(_batch_rows(found.metadata), columns=["image.bytes"], use_threads=False):
        images = pc.struct_field(batch["image"], "bytes")
        digest.add(images)
        yield images
    if digest.hexdigest() != found.payload_sha256:
        raise ValueError("the rows do not match their digest")


def _batch_rows(metadata: Metadata) -> int:
    """So many that their pixels, and so their PNGs, take about a megabyte."""
    return min(ROWS_PER_GROUP, max(1, _BATCH_BYTES // math.prod(dataset_rows.image_shape(metadata))))


def _identity(descriptor: int) -> _Identity:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What is wrong with a file that is read, in the words of `dataset_file.read`."""
    try:
        yield
    except OSError as error:
        raise dataset_file.explained(path, error) from error
    except (ValueError, pa.ArrowException) as error:
        raise damaged(path, error) from error
