"""Artifacts that hold labelled images: Parquet as Hugging Face lays it out, read without trusting a byte of it.

Columns `image` (struct of `bytes`, a PNG, and `path`, always null) and `label` (int64), with the `huggingface`
schema metadata: the file opens in `datasets`, DuckDB and polars. Private data may have a third, `unit` (int64): whose a
row is, people counted from 0; the parameter `unit` says so, and a file with one is never anything but private. Written
plain (no dictionary, no compression: the PNGs are compressed already; no statistics; page checksums on), so that its
size bounds what a reader allocates and nothing about the rows is outside the rows.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from artifacts import limits
from artifacts.errors import InputError
from artifacts.formats import parquet_layout, seal
from artifacts.formats.dataset_rows import (
    check_labels,
    check_units,
    class_names_of,
    has_units,
    huggingface,
    open_rows,
    open_writer,
    payload_digest,
    refuse_other_labels,
    unsealed_text,
    write_rows,
)
from artifacts.formats.tensors_file import damaged, unreadable
from artifacts.metadata import KEY, Metadata, SealedMetadata, parse
from artifacts.publish import publish


@dataclass(frozen=True)
class SealedDataset:
    """A file that matches its seal and is laid out as ours are, in memory. No row was looked at."""

    path: Path
    metadata: Metadata
    payload_sha256: str
    sha256: str
    data: bytes

    def rows(self) -> DatasetArtifact:
        """Its rows, if they are as a dataset's rows are, and those of its digest."""
        try:
            # Read whole, it is decoded whole; who streams a dataset does not hold its pixels.
            table = open_rows(pa.BufferReader(self.data), len(self.data), self.metadata).read(use_threads=False)
            images = pc.struct_field(table["image"], "bytes")
            labels = check_labels(table["label"], self.metadata)
            units = check_units(table["unit"]) if has_units(self.metadata) else None
            if payload_digest(images, labels, units) != self.payload_sha256:
                raise ValueError("the rows do not match their digest")
        except OSError as error:
            raise explained(self.path, error) from error
        except (ValueError, pa.ArrowException) as error:
            raise damaged(self.path, error) from error
        sealed = self.path, self.metadata, self.payload_sha256, self.sha256, self.data
        return DatasetArtifact(*sealed, images, labels, units)


@dataclass(frozen=True)
class DatasetArtifact(SealedDataset):
    """A dataset that was read and found whole."""

    pngs: pa.ChunkedArray
    labels: NDArray[np.int64]
    units: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.labels)


def write(
    path: Path, pngs: Sequence[bytes], labels: NDArray[np.int64], metadata: Metadata, *,
    units: NDArray[np.int64] | None = None, force: bool = False,
) -> str:  # fmt: skip
    """Write labelled PNGs as one artifact and return the file's SHA-256. `units` says whose each row is."""
    try:
        names = class_names_of(metadata)
        refuse_other_labels(labels, len(names))
        if (units is not None) != has_units(metadata):
            raise ValueError("the parameter `unit` and the column must go together")
    except ValueError as error:
        raise InputError(f"{path}: {error}.") from error
    images = pa.array(pngs, pa.binary())
    payload_sha256 = payload_digest(pa.chunked_array([images]), labels, units)
    sink = io.BytesIO()
    with open_writer(sink, units=units is not None) as writer:
        write_rows(writer, images, labels, units)
        writer.add_key_value_metadata(unsealed_text(metadata, payload_sha256))
    data = sink.getvalue()
    position = _seal_position(data)
    sealed = seal.compute(data, position).encode()
    return publish(path, [data[:position], sealed, data[position + 64 :]], metadata, force=force)


def read(path: Path) -> DatasetArtifact:
    """Read a dataset whole, checking everything that it claims."""
    return read_sealed(path).rows()


def read_sealed(path: Path) -> SealedDataset:
    """The file in memory, checked but for its rows: for what must be settled before they are looked at."""
    try:
        data = limits.read_bytes(path, limits.FILE)
        # The seal and the layout come first: a damaged or hostile file is never handed to the Parquet parser.
        start, end = _footer(data[-8:], len(data))
        position = start + seal.find(memoryview(data)[start:end], escaped=False)
        sealed_sha256, sha256 = seal.compute_both(data, position)
        if sealed_sha256 != data[position : position + 64].decode("ascii", "replace"):
            raise ValueError("the file does not match its seal")
        sealed = _check_text(parquet_layout.check(data, start, end))
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise damaged(path, error) from error
    return SealedDataset(path, sealed.metadata, sealed.payload_sha256, sha256, data)


def read_metadata(path: Path) -> Metadata:
    """Read what the file says it is, from its footer. The file is whole; its rows are not looked at."""
    return survey(path)[1]


def survey(path: Path) -> tuple[str, Metadata]:
    """The digest of the file and what it says of itself, in constant memory and one pass."""
    try:
        with limits.open_file(path) as handle:
            sealed, sha256 = check_seal(handle)
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise damaged(path, error) from error
    return sha256, sealed.metadata


def explained(path: Path, error: OSError) -> InputError:
    """Arrow reports a wrong checksum by an OSError; the operating system's own have a number."""
    return unreadable(path, error) if error.errno is not None else damaged(path, error)


def check_seal(handle: BinaryIO, look: Callable[[bytes], None] | None = None) -> tuple[SealedMetadata, str]:
    """What an open file says it is, if it matches its seal, and its digest; in constant memory.

    `look` is shown the file up to its seal, piece by piece: for who needs more of it than the digest.
    """
    start, end, position = find_footer(handle)
    handle.seek(start)
    sealed = _check_text(parquet_layout.read_text(handle.read(end - start)))
    seal_sha256, sha256 = seal.compute_stream(handle, position, look)
    if seal_sha256 != sealed.seal_sha256:
        raise ValueError("the file does not match its seal")
    return sealed, sha256


def find_footer(handle: BinaryIO) -> tuple[int, int, int]:
    """Where the footer of an open file begins, where it ends, and where the digits of the seal are in it."""
    size = handle.seek(0, io.SEEK_END)
    handle.seek(max(0, size - 8))
    start, end = _footer(handle.read(8), size)
    handle.seek(start)
    return start, end, start + seal.find(handle.read(end - start), escaped=False)


def _footer(tail: bytes, size: int) -> tuple[int, int]:
    """Where the footer of a Parquet file of `size` bytes begins and ends, from its last eight bytes."""
    if size < 12 or tail[-4:] != b"PAR1":
        raise ValueError("it does not end as a Parquet file does, so it is no dataset, or was cut short")
    length = int.from_bytes(tail[-8:-4], "little")
    if length > size - 12:
        raise ValueError(f"its footer claims {length} bytes, but the file has only {size}")
    limits.FOOTER.check(length, "its footer has")
    return size - 8 - length, size - 8


def _seal_position(data: bytes) -> int:
    start, end = _footer(data[-8:], len(data))
    return start + seal.find(memoryview(data)[start:end], escaped=False)


def _check_text(text: dict[str, str]) -> SealedMetadata:
    sealed = parse(text[KEY])
    if sealed.metadata.kind != "dataset":
        raise ValueError(f"it is a {sealed.metadata.kind}, but a dataset is needed")
    if text["huggingface"] != huggingface(class_names_of(sealed.metadata), units=has_units(sealed.metadata)):
        raise ValueError("its 'huggingface' metadata do not fit its own")
    return sealed
