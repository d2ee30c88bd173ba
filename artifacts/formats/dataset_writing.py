"""Datasets too large for memory, written a row group at a time: into a file, or into a digest of what would be one."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from artifacts.formats import dataset_rows, seal
from artifacts.formats.dataset_rows import PayloadDigest
from artifacts.formats.dataset_stream import DatasetStream
from artifacts.formats.parquet_layout import ROWS_PER_GROUP
from artifacts.metadata import Metadata

_NO_ROWS: NDArray[np.int64] = np.zeros(0, np.int64)


def stage(
    temporary: Path,
    labels: NDArray[Any],
    lengths: NDArray[Any],
    groups: Iterable[pa.BinaryArray],
    metadata: Metadata,
) -> str:
    """Write the very bytes that `dataset_file.write` would, whole and synced, for `publish_staged` to put in place.

    `groups` are the images, `ROWS_PER_GROUP` at a time but for the last; labels and lengths are those of all rows.
    Returns the file's SHA-256, which is computed as it is written.
    """
    digest = PayloadDigest(labels, lengths)
    first = 0
    with temporary.open("wb") as handle:
        sink = _Hashed(handle)
        with dataset_rows.open_writer(sink) as writer:
            for images in groups:
                digest.add(images)
                dataset_rows.write_rows(writer, images, labels[first : first + len(images)].astype(np.int64))
                first += len(images)
            if not len(labels):
                dataset_rows.write_rows(writer, pa.array([], pa.binary()), _NO_ROWS)
            writer.add_key_value_metadata(dataset_rows.unsealed_text(metadata, digest.hexdigest()))
            sink.keep()
        if first != len(labels):
            raise ValueError(f"{first} images for {len(labels)} labels")
        position, digits = seal.find(sink.kept, escaped=False), sink.state.hexdigest().encode()
        handle.seek(sink.size - len(sink.kept) + position)
        handle.write(digits)
        handle.flush()
        os.fsync(handle.fileno())
    sink.before.update(sink.kept[:position] + digits + sink.kept[position + len(digits) :])
    return sink.before.hexdigest()


class Rewriting:
    """A dataset written again from its rows, into nothing but a digest: what a reader accepts is what a writer writes.

    Its seal is the digest of the file with zeros in the seal's place, which is how every file is written first.
    """

    def __init__(self, found: DatasetStream) -> None:
        self._found, self._sink = found, _Hashed()
        self._writer = dataset_rows.open_writer(self._sink)
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
            dataset_rows.unsealed_text(self._found.metadata, self._found.payload_sha256)
        )
        self._writer.close()
        return self._sink.state.hexdigest() == self._found.seal_sha256

    def _write(self, count: int) -> None:
        whole = pa.concat_arrays(self._held) if self._held else pa.array([], pa.binary())
        labels = self._found.labels[self._rows : self._rows + count].astype(np.int64)
        dataset_rows.write_rows(self._writer, whole[:count], labels)
        self._held = [whole[count:]] if len(whole) > count else []
        self._rows += count


class _Hashed(io.RawIOBase):
    """What is written, hashed on its way into a file, or into nothing."""

    def __init__(self, into: BinaryIO | None = None) -> None:
        self.state, self.size = hashlib.sha256(), 0
        self.before, self.kept = self.state.copy(), b""
        self._into, self._keeps = into, False

    def keep(self) -> None:
        """Hold what is written from here on: the footer, into which the seal comes. `before` is the state so far."""
        self.before, self._keeps = self.state.copy(), True

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any, /) -> int:
        self.state.update(data)
        self.size += len(data)
        self.kept += bytes(data) if self._keeps else b""
        if self._into is not None:
            self._into.write(data)
        return len(data)
