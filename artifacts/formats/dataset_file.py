"""Artifacts that hold labelled images: Parquet as Hugging Face lays it out, read without trusting a byte of it.

Columns `image` (struct of `bytes`, a PNG, and `path`, always null) and `label` (int64), with the `huggingface`
schema metadata: the file opens in `datasets`, DuckDB and polars. Private data may have a third, `unit` (int64): whose a
row is, people counted from 0; the parameter `unit` says so, and a file with one is never anything but private. Written
plain (no dictionary, no compression: the PNGs are compressed already; no statistics; page checksums on), so that its
size bounds what a reader allocates and nothing about the rows is outside the rows.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from artifacts import limits
from artifacts.digests import ZEROS, canonical_json
from artifacts.errors import InputError
from artifacts.formats import parquet_layout, seal
from artifacts.formats.parquet_layout import ROWS_PER_GROUP
from artifacts.formats.tensors_file import damaged, unreadable
from artifacts.kinds import DATASET_PARAMS
from artifacts.metadata import KEY, Metadata, MetadataError, SealedMetadata, parse
from artifacts.publish import publish

_IMAGE = pa.struct([pa.field("bytes", pa.binary()), pa.field("path", pa.string())])
_COLUMNS = [pa.field("image", _IMAGE), pa.field("label", pa.int64())]
_UNIT = pa.field("unit", pa.int64())
PERSON = "person"
_BLOCK = 1 << 16
MAX_SIDE = 4096  # a reader allocates images of the size that a file claims


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
            if _payload_digest(images, labels, units) != self.payload_sha256:
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
        names = _check_params(metadata)
        _check_labels(labels, len(names))
        if (units is not None) != has_units(metadata):
            raise ValueError("the parameter `unit` and the column must go together")
    except ValueError as error:
        raise InputError(f"{path}: {error}.") from error
    images = pa.array(pngs, pa.binary())
    payload_sha256 = _payload_digest(pa.chunked_array([images]), labels, units)
    sink = io.BytesIO()
    with open_writer(sink, units=units is not None) as writer:
        write_rows(writer, images, labels, units)
        writer.add_key_value_metadata(unsealed_text(metadata, payload_sha256))
    data = sink.getvalue()
    position = _seal_position(data)
    sealed = seal.compute(data, position).encode()
    return publish(path, [data[:position], sealed, data[position + 64 :]], metadata, force=force)


def open_writer(sink: BinaryIO | io.RawIOBase, *, units: bool = False) -> pq.ParquetWriter:
    """A writer of the one layout that `parquet_layout` lets pass."""
    return pq.ParquetWriter(
        sink,
        _schema(units),
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
        store_schema=False,  # a second copy of the metadata would be in it, base64-encoded
    )


def _schema(units: bool) -> pa.Schema:
    return pa.schema([*_COLUMNS, _UNIT] if units else _COLUMNS)


def write_rows(
    writer: pq.ParquetWriter, images: pa.BinaryArray, labels: NDArray[np.int64],
    units: NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    """Write rows, in row groups of one size; who writes a file in pieces gives whole row groups, but for the last."""
    column = pa.StructArray.from_arrays([images, pa.nulls(len(images), pa.string())], fields=list(_IMAGE))
    columns = [column, pa.array(labels), *([] if units is None else [pa.array(units)])]
    table = pa.Table.from_arrays(columns, schema=_schema(units is not None))
    writer.write_table(table, row_group_size=ROWS_PER_GROUP)


def unsealed_text(metadata: Metadata, payload_sha256: str) -> dict[str, str]:
    """What is in the footer, with zeros where the seal will be."""
    text = canonical_json(metadata.to_json(payload_sha256=payload_sha256, seal_sha256=ZEROS))
    return {"huggingface": _huggingface(_check_params(metadata), units=has_units(metadata)), KEY: text}


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


def open_rows(
    source: pa.BufferReader | BinaryIO, size: int, metadata: Metadata, *, buffer_size: int = 0
) -> pq.ParquetFile:
    """Arrow's reader, for a file of `size` bytes whose layout was checked, if its images are not a bomb."""
    rows = pq.ParquetFile(source, page_checksum_verification=True, buffer_size=buffer_size, pre_buffer=False)
    if not rows.schema_arrow.remove_metadata().equals(_schema(has_units(metadata))):
        raise ValueError("its columns must be image {bytes, path}, label (int64) and, where it says so, unit (int64)")
    count = rows.metadata.num_rows
    if count * 8 > size:
        raise ValueError(f"it claims {count} rows, more than fit into {size} bytes")
    limits.inflated(size).check(count * math.prod(image_shape(metadata)), f"its {count:,} images take")
    return rows


def image_shape(metadata: Metadata) -> tuple[int, int, int]:
    """Channels, height and width of a dataset's images."""
    params = metadata.params
    return params["channels"], params["height"], params["width"]


def check_labels(column: pa.Array | pa.ChunkedArray, metadata: Metadata) -> NDArray[np.int64]:
    """Labels, each of which is a class. That no row lacks one, or its image, was seen in the layout."""
    labels: NDArray[np.int64] = column.to_numpy().astype(np.int64, copy=False)
    _check_labels(labels, len(_check_params(metadata)))
    return labels


def _check_text(text: dict[str, str]) -> SealedMetadata:
    sealed = parse(text[KEY])
    if sealed.metadata.kind != "dataset":
        raise ValueError(f"it is a {sealed.metadata.kind}, but a dataset is needed")
    if text["huggingface"] != _huggingface(_check_params(sealed.metadata), units=has_units(sealed.metadata)):
        raise ValueError("its 'huggingface' metadata do not fit its own")
    return sealed


class PayloadDigest:
    """SHA-256 of the column bytes: labels, units if there are any, lengths of the images, images; little-endian."""

    def __init__(self, labels: NDArray[Any], lengths: NDArray[Any], units: NDArray[Any] | None = None) -> None:
        self._state = hashlib.sha256()
        for column in (labels, *([] if units is None else [units]), lengths):
            for first in range(0, len(column), _BLOCK):  # so that 8 bytes a row are never in memory at once
                self._state.update(column[first : first + _BLOCK].astype("<i8").tobytes())

    def add(self, images: pa.BinaryArray) -> None:
        _, offsets, values = images.buffers()
        if values is None or not len(images):
            return
        bounds = np.frombuffer(offsets, np.int32)[images.offset : images.offset + len(images) + 1]
        self._state.update(memoryview(values)[int(bounds[0]) : int(bounds[-1])])

    def hexdigest(self) -> str:
        return self._state.hexdigest()


def _payload_digest(images: pa.ChunkedArray, labels: NDArray[np.int64], units: NDArray[np.int64] | None = None) -> str:
    digest = PayloadDigest(labels, pc.binary_length(images).to_numpy(), units)
    for chunk in images.chunks:
        digest.add(chunk)
    return digest.hexdigest()


def _check_params(metadata: Metadata) -> list[str]:
    """A dataset says its size and classes; returns the class names."""
    params = metadata.params
    if not params.keys() >= DATASET_PARAMS:
        raise MetadataError(f"a dataset's params must state {', '.join(sorted(DATASET_PARAMS))}")
    names = params["class_names"]
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise MetadataError("class_names is not a list of names")
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        raise MetadataError("a class name is not text") from None
    most = {"num_classes": limits.CLASSES, "channels": 4, "height": MAX_SIDE, "width": MAX_SIDE}
    whole = all(type(params[name]) is int and 1 <= params[name] <= largest for name, largest in most.items())
    if not whole or len(names) != params["num_classes"]:
        raise MetadataError("num_classes, channels, height and width do not fit")
    if "unit" in params and (params["unit"] != PERSON or metadata.custody != "private"):
        raise MetadataError("only private data says whose a row is, by the unit `person`")
    return names


def has_units(metadata: Metadata) -> bool:
    """Whether the dataset says whose each row is."""
    return "unit" in metadata.params


def check_units(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """People are counted in the order in which they first appear: the numbers say nothing but who is who."""
    units: NDArray[np.int64] = column.to_numpy().astype(np.int64, copy=False)
    _, firsts, numbers = np.unique(units, return_index=True, return_inverse=True)
    if not np.array_equal(np.argsort(np.argsort(firsts))[numbers], units):
        raise ValueError("its units are not counted from 0 in the order of their first rows")
    return units


def _check_labels(labels: NDArray[np.int64], num_classes: int) -> None:
    if len(labels) and (labels.min() < 0 or labels.max() >= num_classes):
        bad = labels[(labels < 0) | (labels >= num_classes)][0]
        raise ValueError(f"label {bad} is out of range: there are {num_classes} classes, counted from 0")


def _huggingface(class_names: list[str], *, units: bool = False) -> str:
    features = {
        "image": {"_type": "Image"},
        "label": {"names": class_names, "_type": "ClassLabel"},
        **({"unit": {"dtype": "int64", "_type": "Value"}} if units else {}),
    }
    return json.dumps({"info": {"features": features}})
