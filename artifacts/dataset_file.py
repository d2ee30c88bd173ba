"""Artifacts that hold labelled images: Parquet as Hugging Face lays it out, read without trusting a byte of it.

Columns `image` (struct of `bytes`, a PNG, and `path`, always null) and `label` (int64), with the `huggingface`
schema metadata: the file opens in `datasets`, DuckDB and polars. Written plain (no dictionary, no compression: the
PNGs are compressed already; no statistics; page checksums on), so that its size bounds what a reader allocates and
nothing about the rows stands outside the rows.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from artifacts import seal
from artifacts.digests import ZEROS, canonical_json, sha256_hex
from artifacts.errors import InputError
from artifacts.metadata import KEY, Metadata, MetadataError, SealedMetadata, parse
from artifacts.publish import publish
from artifacts.tensors_file import damaged, unreadable

_IMAGE = pa.struct([pa.field("bytes", pa.binary()), pa.field("path", pa.string())])
_COLUMNS = [pa.field("image", _IMAGE), pa.field("label", pa.int64())]
_ROWS_PER_GROUP = 1000
MAX_FOOTER = 64 * 1024 * 1024
PARAMS = {"num_classes", "channels", "height", "width", "class_names"}


@dataclass(frozen=True)
class DatasetArtifact:
    """A dataset that was read and found whole."""

    path: Path
    metadata: Metadata
    payload_sha256: str
    pngs: pa.ChunkedArray
    labels: NDArray[np.int64]
    data: bytes

    @cached_property
    def sha256(self) -> str:
        """The digest of the whole file, as `sha256sum` prints it."""
        return sha256_hex(self.data)

    def __len__(self) -> int:
        return len(self.labels)


def write(
    path: Path, pngs: Sequence[bytes], labels: NDArray[np.int64], metadata: Metadata, *, force: bool = False
) -> str:
    """Write labelled PNGs as one artifact and return the file's SHA-256."""
    names = _check_params(metadata)
    _check_labels(labels, len(names))
    images = pa.array(pngs, pa.binary())
    table_images = pa.StructArray.from_arrays([images, pa.nulls(len(pngs), pa.string())], fields=list(_IMAGE))
    payload_sha256 = _payload_digest(pa.chunked_array([images]), labels)

    text = canonical_json(metadata.to_json(payload_sha256=payload_sha256, seal_sha256=ZEROS))
    data = _render(table_images, labels, {"huggingface": _huggingface(names), KEY: text})
    position = _seal_position(data)
    sealed = seal.compute(data, position).encode()
    return publish(path, [data[:position], sealed, data[position + 64 :]], metadata, force=force)


def _render(images: pa.StructArray, labels: NDArray[np.int64], text: dict[str, str]) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        pa.schema(_COLUMNS),
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
        store_schema=False,  # a second copy of the metadata would stand in it, base64-encoded
    ) as writer:
        table = pa.Table.from_arrays([images, pa.array(labels)], schema=pa.schema(_COLUMNS))
        writer.write_table(table, row_group_size=_ROWS_PER_GROUP)
        writer.add_key_value_metadata(text)
    return sink.getvalue()


def read(path: Path) -> DatasetArtifact:
    """Read a dataset whole, checking everything that it claims."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        # The seal comes first: a damaged file is never handed to the Parquet parser.
        position = _seal_position(data)
        if seal.compute(data, position) != data[position : position + 64].decode("ascii", "replace"):
            raise ValueError("the file does not match its seal")
        sealed, table = _parse(data)
        images = pc.struct_field(table["image"], "bytes")
        if table["label"].null_count or images.null_count or table["image"].null_count:
            raise ValueError("a row has no image or no label")
        if pc.struct_field(table["image"], "path").null_count != len(table):
            raise ValueError("a row names a path; a dataset artifact never does")
        labels = table["label"].to_numpy().astype(np.int64, copy=False)
        _check_labels(labels, len(_check_params(sealed.metadata)))
        if _payload_digest(images, labels) != sealed.payload_sha256:
            raise ValueError("the rows do not match their digest")
    except (ValueError, MetadataError, pa.ArrowException, OSError) as error:
        raise damaged(path, error) from error
    return DatasetArtifact(path, sealed.metadata, sealed.payload_sha256, images, labels, data)


def read_metadata(path: Path) -> Metadata:
    """Read what the file says it is, from its footer. The rows are not checked."""
    try:
        with path.open("rb") as handle:
            size = handle.seek(0, io.SEEK_END)
            handle.seek(max(0, size - 8))
            _footer(handle.read(8), size)
            text = pq.read_metadata(handle).metadata or {}
        return parse(text.get(KEY.encode(), b"").decode()).metadata
    except FileNotFoundError as error:
        raise unreadable(path, error) from error
    except (ValueError, MetadataError, pa.ArrowException, OSError) as error:
        raise damaged(path, error) from error


def _footer(tail: bytes, size: int) -> tuple[int, int]:
    """Where the footer of a Parquet file of `size` bytes begins and ends, from its last eight bytes."""
    if size < 12 or tail[-4:] != b"PAR1":
        raise ValueError("it does not end as a Parquet file does")
    length = int.from_bytes(tail[-8:-4], "little")
    if length > min(size - 12, MAX_FOOTER):
        raise ValueError(f"its footer claims {length} bytes, but the file has only {size}")
    return size - 8 - length, size - 8


def _seal_position(data: bytes) -> int:
    start, end = _footer(data[-8:], len(data))
    return start + seal.find(memoryview(data)[start:end], escaped=False)


def _parse(data: bytes) -> tuple[SealedMetadata, pa.Table]:
    """Look at the footer first, and at the rows only if they are laid out as we write them."""
    source = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    footer, schema = source.metadata, source.schema_arrow
    text = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    if text.keys() != {KEY, "huggingface"}:
        raise ValueError(f"its metadata must be {KEY!r} and 'huggingface', found {sorted(text) or 'none'}")
    sealed = parse(text[KEY])
    if sealed.metadata.kind != "dataset":
        raise ValueError(f"it is a {sealed.metadata.kind}, but a dataset is needed")
    if text["huggingface"] != _huggingface(_check_params(sealed.metadata)):
        raise ValueError("its 'huggingface' metadata do not fit its own")
    if not schema.remove_metadata().equals(pa.schema(_COLUMNS)):
        raise ValueError("its columns must be image {bytes, path} and label (int64)")
    for group in range(footer.num_row_groups):
        for column in range(footer.num_columns):
            _check_column(footer.row_group(group).column(column), len(data))
    if footer.num_rows * 8 > len(data):
        raise ValueError(f"it claims {footer.num_rows} rows, more than fit into {len(data)} bytes")
    return sealed, source.read(use_threads=False)


def _check_column(column: Any, size: int) -> None:
    """Plain pages only: a dictionary or a compressed page could claim far more than the file's size."""
    plain = column.compression == "UNCOMPRESSED" and set(column.encodings) <= {"PLAIN", "RLE"}
    if not plain or column.total_uncompressed_size > size or column.has_dictionary_page:
        raise ValueError("its pages are not stored plain, as a dataset artifact's are")
    if column.is_stats_set:
        raise ValueError("it carries column statistics, which a dataset artifact never does")


def _payload_digest(images: pa.ChunkedArray, labels: NDArray[np.int64]) -> str:
    """SHA-256 of the column bytes: the labels, the lengths of the images, the images, each little-endian."""
    state = hashlib.sha256(labels.astype("<i8").tobytes())
    state.update(pc.binary_length(images).to_numpy().astype("<i8").tobytes())
    for chunk in images.chunks:
        _, offsets, values = chunk.buffers()
        if values is None or not len(chunk):
            continue
        bounds = np.frombuffer(offsets, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        state.update(memoryview(values)[int(bounds[0]) : int(bounds[-1])])
    return state.hexdigest()


def _check_params(metadata: Metadata) -> list[str]:
    """A dataset says its size and classes; returns the class names."""
    params = metadata.params
    if not params.keys() >= PARAMS:
        raise MetadataError(f"a dataset's params must state {', '.join(sorted(PARAMS))}")
    names = params["class_names"]
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise MetadataError("class_names is not a list of names")
    sizes = [params[k] for k in ("num_classes", "channels", "height", "width")]
    if not all(type(n) is int and n in range(1, 65537) for n in sizes) or len(names) != params["num_classes"]:
        raise MetadataError("num_classes, channels, height and width do not fit")
    return names


def _check_labels(labels: NDArray[np.int64], num_classes: int) -> None:
    if len(labels) and (labels.min() < 0 or labels.max() >= num_classes):
        bad = labels[(labels < 0) | (labels >= num_classes)][0]
        raise InputError(f"label {bad} is out of range: there are {num_classes} classes, counted from 0.")


def _huggingface(class_names: list[str]) -> str:
    features = {
        "image": {"_type": "Image"},
        "label": {"names": class_names, "_type": "ClassLabel"},
    }
    return json.dumps({"info": {"features": features}})
