"""Anybody's Parquet, by Arrow's parser: the columns of a file and their ranges, and the rows that a source needs.

Hostile bytes can end the process that hands them to Arrow, or swell it. So this runs in a process of its own with
limits (`foreign_parquet`), unless the file is one of ours and its layout was checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as is_

from artifacts import limits
from artifacts.errors import InputError
from artifacts.formats.plain_data import parse_json
from artifacts.metadata import KEY

MAX_ID_LENGTH = 1024
_DESCRIBED_ROWS = 4096
_MAX_BATCH_ROWS = 256
_BATCH_BYTES = 16 * 2**20
_READ_AHEAD = 1 << 16
_SHOWN = 200  # of a plain file's metadata texts, which may be of any length


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Which columns are needed: of the image and its label, and of the client and the person a row belongs to."""

    image: str
    label: str
    id: str | None
    unit: str | None
    by: list[str]

    def named(self) -> dict[str, str]:
        """Each column with the option that names it."""
        named = {self.image: "--image-column", self.label: "--label-column"}
        if self.id is not None:
            named[self.id] = "--id-column"
        if self.unit is not None:
            named.setdefault(self.unit, "--unit-column")
        return named | dict.fromkeys(self.by, "--by")


@contextmanager
def _opened(file: Path) -> Iterator[pq.ParquetFile]:
    """The file with its page checksums verified as it is read, unless its footer says that it is a bomb."""
    with (
        limits.open_file(file) as handle,
        pq.ParquetFile(
            handle, page_checksum_verification=True, pre_buffer=False, buffer_size=_READ_AHEAD,
            thrift_string_size_limit=limits.FOOTER.most,
        ) as source,
    ):  # fmt: skip
        about = source.metadata
        chunks = [about.row_group(g).column(c) for g in range(about.num_row_groups) for c in range(about.num_columns)]
        allowed = limits.inflated(file.stat().st_size, "bytes")
        allowed.check(sum(chunk.total_uncompressed_size for chunk in chunks), "unpacked it has")
        # A repeated value takes no room in the file: a row counts for a byte of each column at least.
        allowed.check(about.num_rows * about.num_columns, "its rows take at least")
        yield source


def describe(file: Path) -> dict[str, Any]:
    """The metadata texts, the number of rows, the columns, and whether the file says that it is one of ours."""
    with _opened(file) as source:
        about = source.metadata
        columns = [
            {"name": field.name, "type": str(field.type), "bytes": 0, "min": None, "max": None, "nulls": 0}
            for field in source.schema_arrow
        ]
        _add_sizes(about, columns)
        for batch in source.iter_batches(_DESCRIBED_ROWS, use_threads=False):
            for column, values in zip(columns, batch.columns, strict=True):
                _widen(column, values)
    texts = about.metadata or {}
    shown = {k.decode(errors="replace"): v.decode(errors="replace")[:_SHOWN] for k, v in texts.items()}
    return {"metadata": shown, "rows": about.num_rows, "columns": columns, "ours": KEY.encode() in texts}


def _add_sizes(about: Any, columns: list[dict[str, Any]]) -> None:
    """Bytes on the disk. A struct's parts are under its name."""
    by_name = {column["name"]: column for column in columns}
    for group in range(about.num_row_groups):
        for number in range(about.num_columns):
            chunk = about.row_group(group).column(number)
            owner = by_name.get(chunk.path_in_schema.split(".")[0])
            if owner is not None:
                owner["bytes"] += chunk.total_compressed_size


def _widen(column: dict[str, Any], values: Any) -> None:
    """The range so far: of numbers and times as they are, of texts and pictures by their length."""
    column["nulls"] += values.null_count
    if is_.is_struct(values.type) and "bytes" in {field.name for field in values.type}:
        values = pc.struct_field(values, "bytes")
    if is_.is_binary(values.type) or is_.is_string(values.type) or is_.is_large_string(values.type):
        values, column["range_of"] = pc.binary_length(values), "length"
    elif not (is_.is_primitive(values.type) or is_.is_boolean(values.type)):
        return
    found = pc.min_max(values)
    low, high = (_plain_value(found[name].as_py()) for name in ("min", "max"))
    if low is not None:
        column["min"] = low if column["min"] is None else min(column["min"], low)
        column["max"] = high if column["max"] is None else max(column["max"], high)


def _plain_value(value: Any) -> Any:
    """Something that JSON has: times become texts, which are ordered as they are."""
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _holds_images(kind: Any) -> bool:
    return is_.is_struct(kind) and kind.get_field_index("bytes") >= 0 and _is_binary(kind.field("bytes").type)


def footer(file: Path, asked: Asked) -> dict[str, Any]:
    """The number of rows and the class names, once the columns that are needed are there and of the right type."""
    with _opened(file) as source:
        schema, num_rows = source.schema_arrow, source.metadata.num_rows
    named = asked.named()
    if schema.get_field_index(asked.image) < 0 and not any(_holds_images(field.type) for field in schema):
        raise InputError(
            f"{file}: no column holds images (its columns are {', '.join(schema.names)}), and fedsynth reads images "
            "only. Give a Parquet file with a column struct<bytes: binary, …>, or a folder with one folder of image "
            "files for each class."
        )
    for name, option in named.items():
        # The index is −1 for a column that is missing and for one that is there twice.
        if schema.get_field_index(name) < 0:
            raise InputError(
                f"{file}: no one column {name!r} among {', '.join(schema.names)}; give the right {option}."
            )
    image = schema.field(asked.image).type
    if not _holds_images(image):
        raise InputError(f"{file}: column {asked.image!r} must be struct<bytes: binary, …>, found {image}.")
    label = schema.field(asked.label).type
    if not is_.is_integer(label):
        raise InputError(f"{file}: column {asked.label!r} must hold whole numbers, found {label}.")
    for name in (name for name, option in named.items() if option in ("--id-column", "--unit-column", "--by")):
        owner = schema.field(name).type
        plain = owner.value_type if is_.is_dictionary(owner) else owner
        fits = is_.is_integer(plain) or is_.is_string(plain) or is_.is_large_string(plain)
        measured = named[name] == "--by" and (is_.is_floating(plain) or is_.is_boolean(plain))
        if not (fits or measured):
            wanted = "text or numbers" if named[name] == "--by" else "text or whole numbers"
            raise InputError(f"{file}: column {name!r} must hold {wanted}, found {owner}.")
    texts = schema.metadata or {}
    ours = texts[KEY.encode()].decode(errors="replace") if KEY.encode() in texts else None
    return {"rows": num_rows, "names": _class_names(texts, asked.label, file), "ours": ours}


def _is_binary(kind: Any) -> bool:
    return bool(is_.is_binary(kind) or is_.is_large_binary(kind))


def _class_names(metadata: dict[bytes, bytes], label: str, file: Path) -> list[str] | None:
    """`info.features.<label>.names` of the `huggingface` metadata; None where there is no such entry."""
    try:
        found: Any = parse_json(metadata.get(b"huggingface", b"{}"))
    except ValueError as error:
        raise InputError(f"{file}: its `huggingface` metadata is not JSON.") from error
    for key in ("info", "features", label, "names"):
        found = found.get(key) if isinstance(found, dict) else None
    if found is not None and not (isinstance(found, list) and all(isinstance(name, str) for name in found)):
        raise InputError(f"{file}: the class names in its `huggingface` metadata are not a list of names.")
    return found


def batches(file: Path, asked: Asked) -> Iterator[tuple[dict[str, Any], list[bytes]]]:
    """Labels, ids and values of some rows, and the bytes of their images.

    So few that one value repeated in every row fits into memory: a dictionary page lets a kilobyte on disk stand for
    one large value in each of thousands of rows. The footer says how large the pages of a column are, and no value is
    larger than those.
    """
    wanted = [f"{asked.image}.bytes", *(name for name in asked.named() if name != asked.image)]
    with _opened(file) as source:
        meta = source.metadata
        chunks = [meta.row_group(g).column(c) for g in range(meta.num_row_groups) for c in range(meta.num_columns)]
        largest = max((chunk.total_uncompressed_size for chunk in chunks), default=0)
        rows = min(max(_BATCH_BYTES // max(largest, 1), 1), _MAX_BATCH_ROWS)
        first = 0
        for batch in source.iter_batches(batch_size=rows, columns=wanted, use_threads=False):
            where = f"{file}, column"
            about = {
                "row": first,
                "labels": _labels(batch.column(asked.label), f"{where} {asked.label!r}"),
                "ids": [] if asked.id is None else _ids(batch.column(asked.id), f"{where} {asked.id!r}"),
                "units": [] if asked.unit is None else _ids(batch.column(asked.unit), f"{where} {asked.unit!r}"),
                "values": {name: _plain(batch.column(name), f"{where} {name!r}") for name in asked.by},
            }
            found = batch.column(asked.image).to_pylist()
            yield about, [(one and one["bytes"]) or b"" for one in found]
            first += len(found)


def _labels(column: Any, where: str) -> list[int]:
    if column.null_count:
        raise InputError(f"{where}: {column.null_count} rows have no label.")
    found = pc.min_max(column).as_py()
    if found["min"] is not None and not 0 <= found["min"] <= found["max"] < limits.CLASSES:
        raise InputError(f"{where}: labels must be 0 to {limits.CLASSES - 1}, found {found['min']} to {found['max']}.")
    labels: list[int] = column.to_pylist()
    return labels


def _ids(column: Any, where: str) -> list[str]:
    return [str(value) for value in _plain(column, where, what="id")]


def _plain(column: Any, where: str, what: str = "value") -> list[Any]:
    """Text and numbers as Python has them, none missing, none of a length that no name has."""
    if column.null_count:
        raise InputError(f"{where}: {column.null_count} rows have no {what}.")
    values: list[Any] = column.to_pylist()
    if max((len(str(value)) for value in values), default=0) > MAX_ID_LENGTH:
        raise InputError(f"{where}: one {what} is longer than {MAX_ID_LENGTH} characters.")
    return values


def reason(error: Exception) -> str:
    """What Arrow says against a file, in a line."""
    if isinstance(error, MemoryError | pa.ArrowMemoryError):
        most = limits.FOREIGN_MEMORY.most // 2**20
        return f"it takes more than {most} MiB to read ({limits.VARIABLE}=2 allows more)"
    return str(error).partition("\n")[0] or type(error).__name__
