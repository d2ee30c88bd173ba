"""Datasets too large for memory: the file of `dataset_file`, read and written a batch at a time.

The layout, the seal, the digest and the checks are those of `dataset_file`; nothing is defined twice. In memory
are a batch of images, and of each row its label (2 bytes) and the length of its image (4 bytes).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from artifacts import limits
from artifacts.errors import InputError
from artifacts.formats import dataset_file, parquet_layout, seal
from artifacts.formats.dataset_file import PayloadDigest
from artifacts.formats.parquet_layout import ROWS_PER_GROUP
from artifacts.formats.tensors_file import damaged
from artifacts.metadata import Metadata

_BATCH_BYTES = 1 << 20
_READ_AHEAD = 1 << 16
_NO_ROWS: NDArray[np.int64] = np.zeros(0, np.int64)

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

    def images(self) -> Iterator[pa.BinaryArray]:
        """The images in their order, in batches. That they are those of the digest is known at the end."""
        with _explained(self.path), self.path.open("rb") as handle:
            if _identity(handle.fileno()) != self.identity:
                raise InputError(f"{self.path} changed while it was read. Let nobody write to it and run again.")
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
        if _identity(self._descriptor) != self.found.identity:
            raise InputError(f"{self.found.path} changed while it was read. Let nobody write to it and run again.")


def _offsets(data: _FileBytes, start: int, end: int, lengths: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Where the image of each row begins."""
    offsets = np.empty(len(lengths), np.int64)
    first = 0
    for count, stop in parquet_layout.image_pages(data, start, end):
        taken = lengths[first : first + count].astype(np.int64) + 4
        offsets[first : first + count] = stop - np.cumsum(taken[::-1])[::-1] + 4
        first += count
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
    """The same for who goes through its `images` anyway: that they are those of the digest is checked there."""
    with _explained(path), limits.open_file(path) as handle:
        identity = _identity(handle.fileno())
        # The seal and the layout come first: a damaged or hostile file is never handed to the Parquet parser.
        sealed, digest = dataset_file.check_seal(handle)
        start, end, _ = dataset_file.find_footer(handle)
        bytes_of = _FileBytes(handle, end + 8)
        parquet_layout.check(bytes_of, start, end)
        writer = parquet_layout.writer_of(bytes_of[start:end])
        labels, lengths, units = _survey(handle, end + 8, sealed.metadata)
    sealed_as = path, sealed.metadata, sealed.payload_sha256, digest, end + 8
    return DatasetStream(*sealed_as, labels, lengths, identity, sealed.seal_sha256, writer, units)


def stage(
    temporary: Path,
    labels: NDArray[Any],
    lengths: NDArray[Any],
    groups: Iterable[pa.BinaryArray],
    metadata: Metadata,
) -> None:
    """Write the very bytes that `dataset_file.write` would, whole and synced, for `publish_staged` to put in place.

    `groups` are the images, `ROWS_PER_GROUP` at a time but for the last; labels and lengths are those of all rows.
    """
    digest = PayloadDigest(labels, lengths)
    first = 0
    with temporary.open("w+b") as handle, dataset_file.open_writer(handle) as writer:
        for images in groups:
            digest.add(images)
            dataset_file.write_rows(writer, images, labels[first : first + len(images)].astype(np.int64))
            first += len(images)
        if not len(labels):
            dataset_file.write_rows(writer, pa.array([], pa.binary()), _NO_ROWS)
        writer.add_key_value_metadata(dataset_file.unsealed_text(metadata, digest.hexdigest()))
    if first != len(labels):
        raise ValueError(f"{first} images for {len(labels)} labels")
    with temporary.open("r+b") as handle:
        _, _, position = dataset_file.find_footer(handle)
        digits, _ = seal.compute_stream(handle, position)
        handle.seek(position)
        handle.write(digits.encode())
        handle.flush()
        os.fsync(handle.fileno())


class Rewriting:
    """A dataset written again from its rows, into nothing but a digest: what a reader accepts is what a writer writes.

    Its seal is the digest of the file with zeros in the seal's place, which is how every file is written first.
    """

    def __init__(self, found: DatasetStream) -> None:
        self._found, self._sink = found, _Hashed()
        self._writer = dataset_file.open_writer(self._sink)
        self._held: list[pa.BinaryArray] = []
        self._rows = 0

    def add(self, images: pa.BinaryArray) -> None:
        """The next rows, in any number."""
        self._held.append(images)
        while sum(map(len, self._held)) >= ROWS_PER_GROUP:
            self._write(ROWS_PER_GROUP)

    def is_same(self) -> bool:
        """At the end: whether the file is, byte for byte, what is written here."""
        if self._held or not self._rows:
            self._write(sum(map(len, self._held)))
        self._writer.add_key_value_metadata(
            dataset_file.unsealed_text(self._found.metadata, self._found.payload_sha256)
        )
        self._writer.close()
        return self._sink.state.hexdigest() == self._found.seal_sha256

    def _write(self, count: int) -> None:
        whole = pa.concat_arrays(self._held) if self._held else pa.array([], pa.binary())
        labels = self._found.labels[self._rows : self._rows + count].astype(np.int64)
        dataset_file.write_rows(self._writer, whole[:count], labels)
        self._held = [whole[count:]] if len(whole) > count else []
        self._rows += count


class _Hashed(io.RawIOBase):
    """Where nothing is kept of what is written but its digest."""

    def __init__(self) -> None:
        self.state, self._size = hashlib.sha256(), 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any, /) -> int:
        self.state.update(data)
        self._size += len(data)
        return len(data)


class _FileBytes:
    """An open file as bytes that are read when they are asked for."""

    def __init__(self, handle: BinaryIO, size: int) -> None:
        self._descriptor, self._size = handle.fileno(), size

    def __getitem__(self, piece: slice, /) -> bytes:
        start, stop, _ = piece.indices(self._size)
        return os.pread(self._descriptor, max(0, stop - start), start)


def _survey(
    handle: BinaryIO, size: int, metadata: Metadata
) -> tuple[NDArray[np.uint16], NDArray[np.uint32], NDArray[np.int64] | None]:
    """The label of each row, the length of its image, and whose it is if the file says so; each row was checked."""
    rows = dataset_file.open_rows(handle, size, metadata, buffer_size=_READ_AHEAD)
    labels = np.empty(rows.metadata.num_rows, np.uint16)
    lengths = np.empty(len(labels), np.uint32)
    units = []
    first = 0
    for batch in rows.iter_batches(_batch_rows(metadata), use_threads=False):
        images, found = dataset_file.check_rows(pa.Table.from_batches([batch]), metadata)
        labels[first : first + len(batch)] = found
        lengths[first : first + len(batch)] = pc.binary_length(images).to_numpy()
        units += [batch["unit"]] if dataset_file.has_units(metadata) else []
        first += len(batch)
    if first != len(labels):
        raise ValueError(f"it claims {len(labels)} rows and holds {first}")
    if not dataset_file.has_units(metadata):
        return labels, lengths, None
    return labels, lengths, dataset_file.check_units(pa.chunked_array(units, pa.int64()))


def _images(handle: BinaryIO, found: DatasetStream) -> Iterator[pa.BinaryArray]:
    """The images in batches; a `ValueError` at the end if they are not those of the digest."""
    digest = PayloadDigest(found.labels, found.lengths, found.units)
    rows = dataset_file.open_rows(handle, found.size, found.metadata, buffer_size=_READ_AHEAD)
    for batch in rows.iter_batches(_batch_rows(found.metadata), columns=["image.bytes"], use_threads=False):
        images = pc.struct_field(batch["image"], "bytes")
        digest.add(images)
        yield images
    if digest.hexdigest() != found.payload_sha256:
        raise ValueError("the rows do not match their digest")


def _batch_rows(metadata: Metadata) -> int:
    """So many that their pixels, and so their PNGs, take about a megabyte."""
    return min(ROWS_PER_GROUP, max(1, _BATCH_BYTES // math.prod(dataset_file.image_shape(metadata))))


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
