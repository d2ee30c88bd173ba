"""The columns of any Parquet file, and the range of their values, a batch at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from artifacts.errors import InputError
from artifacts.metadata import KEY

_ROWS = 4096
_SHOWN = 200  # of a plain file's metadata texts, which may be of any length


def read_columns(path: Path) -> tuple[dict[str, str], int, list[dict[str, Any]], bool]:
    """The metadata texts, the number of rows, the columns, and whether the file says that it is one of ours."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            about = file.metadata
            ours = KEY.encode() in (about.metadata or {})
            columns = [
                {"name": field.name, "type": str(field.type), "bytes": 0, "min": None, "max": None, "nulls": 0}
                for field in file.schema_arrow
            ]
            _add_sizes(about, columns)
            for batch in file.iter_batches(_ROWS, use_threads=False):
                for column, values in zip(columns, batch.columns, strict=True):
                    _widen(column, values)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is not a whole Parquet file: {error}.") from error
    texts = {k.decode(errors="replace"): v.decode(errors="replace")[:_SHOWN] for k, v in (about.metadata or {}).items()}
    return texts, about.num_rows, columns, ours


def _add_sizes(about: Any, columns: list[dict[str, Any]]) -> None:
    """Bytes on the disk. A struct's parts stand under its name."""
    by_name = {column["name"]: column for column in columns}
    for group in range(about.num_row_groups):
        for number in range(about.num_columns):
            chunk = about.row_group(group).column(number)
            owner = by_name.get(chunk.path_in_schema.split(".")[0])
            if owner is not None:
                owner["bytes"] += chunk.total_compressed_size


def _widen(column: dict[str, Any], values: Any) -> None:
    """The range so far: of numbers and times as they are, of texts and pictures by their length."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column["nulls"] += values.null_count
    if pa.types.is_struct(values.type) and "bytes" in {field.name for field in values.type}:
        values = pc.struct_field(values, "bytes")
    if pa.types.is_binary(values.type) or pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values, column["range_of"] = pc.binary_length(values), "length"
    elif not (pa.types.is_primitive(values.type) or pa.types.is_boolean(values.type)):
        return
    found = pc.min_max(values)
    low, high = (_plain(found[name].as_py()) for name in ("min", "max"))
    if low is not None:
        column["min"] = low if column["min"] is None else min(column["min"], low)
        column["max"] = high if column["max"] is None else max(column["max"], high)


def _plain(value: Any) -> Any:
    """Something that JSON has: times become texts, which are ordered as they are."""
    return value if value is None or isinstance(value, bool | int | float) else str(value)
