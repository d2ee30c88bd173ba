"""Images from Parquet in the manner of Hugging Face: `image` struct{bytes, path}, `label` integer, a row an image.

One file is one dataset. In a folder, files whose names begin with `train` are the training split and those that
begin with `test` the test split, or with `validation` or `val` where there is no `test`; shards are read in the
order of their names. Class names come from the `huggingface` schema metadata where it has them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from stages.data.attributes import Attribute, combinations
from stages.data.conform import Form, collect
from stages.data.images import LabelledImages
from stages.data.png import read_image

MAX_CLASSES = 65_536
"""A label from here on is taken for damage: where a file has no class names, every number up to it becomes one."""

MAX_ID_LENGTH = 1024
_MAX_BATCH_ROWS = 256
_BATCH_BYTES = 64 * 2**20
_TEST_PREFIXES = ("test", "validation", "val")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns to read; `id` says whom a row belongs to, or the combination of some `attributes` does."""

    image: str = "image"
    label: str = "label"
    id: str | None = None
    attributes: tuple[Attribute, ...] = ()

    def named(self) -> dict[str, str]:
        """Each column with the option that names it."""
        named = {self.image: "--image-column", self.label: "--label-column"}
        if self.id is not None:
            named[self.id] = "--id-column"
        return named | {attribute.column: "--by" for attribute in self.attributes}


@dataclass(frozen=True)
class _Split:
    """What was read of one split, before the splits agree on the classes."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...] | None
    ids: tuple[str, ...] | None


def is_parquet(path: Path) -> bool:
    """Whether this is a Parquet file, or a folder that holds some."""
    return bool(_files(path)) if path.is_dir() else path.suffix == ".parquet"


def load_parquet(path: Path, columns: Columns, form: Form) -> tuple[LabelledImages, LabelledImages | None]:
    """The training images and, where the folder has them, the test images."""
    train_files, test_files = _find(path)
    train = _read(train_files, columns, form)
    # Nobody asks whom a test image belongs to, so the test files need not have the column.
    test = _read(test_files, Columns(image=columns.image, label=columns.label), form) if test_files else None
    if test is not None and test.class_names != train.class_names:
        raise InputError(f"{path}: the training and the test files name different classes.")
    splits = [train] if test is None else [train, test]
    names = train.class_names
    if names is None:
        names = tuple(str(label) for label in range(1 + max(int(split.labels.max()) for split in splits)))
    try:
        whole = [LabelledImages(split.images, split.labels, names, split.ids) for split in splits]
    except ValueError as error:
        raise InputError(f"{path}: {error}.") from error
    return whole[0], whole[1] if test is not None else None


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.parquet") if not file.name.startswith("."))


def _find(path: Path) -> tuple[list[Path], list[Path]]:
    if not path.is_dir():
        return [path], []
    files = _files(path)
    train = [file for file in files if file.name.startswith("train")]
    if not train:
        raise InputError(f"{path}: no file is named train*.parquet; rename the training files, or give one file.")
    by_prefix = ([file for file in files if file.name.startswith(prefix)] for prefix in _TEST_PREFIXES)
    return train, next(filter(None, by_prefix), [])


def _read(files: list[Path], columns: Columns, form: Form) -> _Split:
    footers = [_footer(file, columns) for file in files]
    names = footers[0][1]
    if any(other != names for _, other in footers):
        raise InputError(f"{files[0].parent}: {', '.join(f.name for f in files)} name different classes.")
    labels: list[NDArray[np.int64]] = []
    ids: list[str] = []
    values: dict[str, list[Any]] = {attribute.column: [] for attribute in columns.attributes}

    def images() -> Iterator[NDArray[np.uint8]]:
        for file in files:
            row = 0
            for batch in _batches(file, columns):
                labels.append(_labels(batch.column(columns.label), f"{file}, column {columns.label!r}"))
                if columns.id is not None:
                    ids.extend(_ids(batch.column(columns.id), f"{file}, column {columns.id!r}"))
                for name, found in values.items():
                    found.extend(_plain(batch.column(name), f"{file}, column {name!r}"))
                for value in batch.column(columns.image):
                    yield _image(value.as_py(), f"{file}, column {columns.image!r}, row {row}")
                    row += 1

    try:
        stack = collect(images(), sum(rows for rows, _ in footers), form)
        owners = combinations(columns.attributes, values) if columns.attributes else tuple(ids)
    except ValueError as error:
        raise InputError(f"{files[0] if len(files) == 1 else files[0].parent}: {error}.") from error
    return _Split(stack, np.concatenate(labels), names, owners if columns.id or columns.attributes else None)


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """The file with its page checksums verified as it is read; whatever Arrow says against it becomes our error."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file, page_checksum_verification=True) as source:
            yield source
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{file}: it cannot be read as Parquet, or is damaged ({reason}).") from error


def _footer(file: Path, columns: Columns) -> tuple[int, tuple[str, ...] | None]:
    """The number of rows and the class names, once the columns that are needed are there and of the right type."""
    import pyarrow.types as is_

    with _opened(file) as source:
        schema, num_rows = source.schema_arrow, source.metadata.num_rows
    named = columns.named()
    for name, option in named.items():
        # The index is −1 for a column that is missing and for one that is there twice.
        if schema.get_field_index(name) < 0:
            raise InputError(
                f"{file}: no one column {name!r} among {', '.join(schema.names)}; give the right {option}."
            )
    image = schema.field(columns.image).type
    if not (is_.is_struct(image) and image.get_field_index("bytes") >= 0 and _is_binary(image.field("bytes").type)):
        raise InputError(f"{file}: column {columns.image!r} must be struct<bytes: binary, …>, found {image}.")
    label = schema.field(columns.label).type
    if not is_.is_integer(label):
        raise InputError(f"{file}: column {columns.label!r} must hold whole numbers, found {label}.")
    for name in (name for name, option in named.items() if option in ("--id-column", "--by")):
        owner = schema.field(name).type
        plain = owner.value_type if is_.is_dictionary(owner) else owner
        fits = is_.is_integer(plain) or is_.is_string(plain) or is_.is_large_string(plain)
        measured = named[name] == "--by" and (is_.is_floating(plain) or is_.is_boolean(plain))
        if not (fits or measured):
            wanted = "text or numbers" if named[name] == "--by" else "text or whole numbers"
            raise InputError(f"{file}: column {name!r} must hold {wanted}, found {owner}.")
    return num_rows, _class_names(schema.metadata or {}, columns.label, file)


def _is_binary(kind: Any) -> bool:
    import pyarrow.types as is_

    return bool(is_.is_binary(kind) or is_.is_large_binary(kind))


def _class_names(metadata: dict[bytes, bytes], label: str, file: Path) -> tuple[str, ...] | None:
    """`info.features.<label>.names` of the `huggingface` metadata; None where there is no such entry."""
    try:
        found: Any = json.loads(metadata.get(b"huggingface", b"{}"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: its `huggingface` metadata is not JSON.") from error
    for key in ("info", "features", label, "names"):
        found = found.get(key) if isinstance(found, dict) else None
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise InputError(f"{file}: the class names in its `huggingface` metadata are not a list of names.")
    return tuple(found)


def _batches(file: Path, columns: Columns) -> Iterator[Any]:
    """Record batches of the columns asked for, so small that one value repeated in every row fits into memory.

    A dictionary page lets a kilobyte on disk stand for one large value in each of thousands of rows. The footer
    says how large the pages of a column are, and no value is larger than those.
    """
    wanted = [f"{columns.image}.bytes", *(name for name in columns.named() if name != columns.image)]
    with _opened(file) as source:
        meta = source.metadata
        chunks = [meta.row_group(g).column(c) for g in range(meta.num_row_groups) for c in range(meta.num_columns)]
        largest = max((chunk.total_uncompressed_size for chunk in chunks), default=0)
        rows = min(max(_BATCH_BYTES // max(largest, 1), 1), _MAX_BATCH_ROWS)
        yield from source.iter_batches(batch_size=rows, columns=wanted)


def _image(value: Any, where: str) -> NDArray[np.uint8]:
    if value is None or value["bytes"] is None:
        raise InputError(f"{where}: no image bytes; images must stand in the file itself, not beside it.")
    try:
        return read_image(value["bytes"])
    except ValueError as error:
        raise InputError(f"{where}: {error}.") from error


def _labels(column: Any, where: str) -> NDArray[np.int64]:
    if column.null_count:
        raise InputError(f"{where}: {column.null_count} rows have no label.")
    labels: NDArray[np.integer[Any]] = column.to_numpy()
    if labels.min() < 0 or labels.max() >= MAX_CLASSES:
        raise InputError(f"{where}: labels must be 0 to {MAX_CLASSES - 1}, found {labels.min()} to {labels.max()}.")
    return labels.astype(np.int64)


def _ids(column: Any, where: str) -> list[str]:
    return [str(value) for value in _plain(column, where, what="id")]


def _plain(column: Any, where: str, what: str = "value") -> list[Any]:
    """Text and numbers as Python has them, none missing, none of a length that no name has."""
    if column.null_count:
        raise InputError(f"{where}: {column.null_count} rows have no {what}.")
    values: list[Any] = column.to_pylist()
    if max(len(str(value)) for value in values) > MAX_ID_LENGTH:
        raise InputError(f"{where}: one {what} is longer than {MAX_ID_LENGTH} characters.")
    return values
