"""The rows of a dataset and what its footer says of them: columns, classes, units, digest. Files: `dataset_file`."""

from __future__ import annotations

import hashlib
import io
import json
import math
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from artifacts import limits
from artifacts.digests import ZEROS, canonical_json
from artifacts.formats.parquet_layout import ROWS_PER_GROUP
from artifacts.kinds import DATASET_PARAMS
from artifacts.metadata import KEY, Metadata, MetadataError

_IMAGE = pa.struct([pa.field("bytes", pa.binary()), pa.field("path", pa.string())])
_COLUMNS = [pa.field("image", _IMAGE), pa.field("label", pa.int64())]
_UNIT = pa.field("unit", pa.int64())
PERSON = "person"
_BLOCK = 1 << 16
MAX_SIDE = 4096  # a reader allocates images of the size that a file claims


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
    return {"huggingface": huggingface(class_names_of(metadata), units=has_units(metadata)), KEY: text}


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
    refuse_other_labels(labels, len(class_names_of(metadata)))
    return labels


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


def payload_digest(images: pa.ChunkedArray, labels: NDArray[np.int64], units: NDArray[np.int64] | None = None) -> str:
    digest = PayloadDigest(labels, pc.binary_length(images).to_numpy(), units)
    for chunk in images.chunks:
        digest.add(chunk)
    return digest.hexdigest()


def class_names_of(metadata: Metadata) -> list[str]:
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


def refuse_other_labels(labels: NDArray[np.int64], num_classes: int) -> None:
    if len(labels) and (labels.min() < 0 or labels.max() >= num_classes):
        bad = labels[(labels < 0) | (labels >= num_classes)][0]
        raise ValueError(f"label {bad} is out of range: there are {num_classes} classes, counted from 0")


def huggingface(class_names: list[str], *, units: bool = False) -> str:
    features = {
        "image": {"_type": "Image"},
        "label": {"names": class_names, "_type": "ClassLabel"},
        **({"unit": {"dtype": "int64", "_type": "Value"}} if units else {}),
    }
    return json.dumps({"info": {"features": features}})
