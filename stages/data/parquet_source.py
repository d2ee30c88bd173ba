"""Images from Parquet in the manner of Hugging Face: `image` struct{bytes, path}, `label` integer, a row an image.

One file is one dataset. In a folder, files whose names begin with `train` are the training split and those that
begin with `test` the test split, or with `validation` or `val` where there is no `test`; shards are read in the
order of their names. Class names come from the `huggingface` schema metadata where it has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts import limits
from artifacts.errors import InputError
from artifacts.metadata import Metadata, MetadataError, parse
from stages.data import foreign_parquet
from stages.data.attributes import Attribute, combinations
from stages.data.conform import Form, collect
from stages.data.images import LabelledImages, counted
from stages.data.png import read_image

_TEST_PREFIXES = ("test", "validation", "val")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns to read; `id` says which client a row belongs to, or the combination of some `attributes` does.

    `unit` says which person it belongs to.
    """

    image: str = "image"
    label: str = "label"
    id: str | None = None
    unit: str | None = None
    attributes: tuple[Attribute, ...] = ()

    def asked(self) -> dict[str, Any]:
        """As `parquet_tables.Asked` has it."""
        by = [attribute.column for attribute in self.attributes]
        return {"image": self.image, "label": self.label, "id": self.id, "unit": self.unit, "by": by}


@dataclass(frozen=True)
class _Split:
    """What was read of one split, before the splits agree on the classes."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...] | None
    ids: tuple[str, ...] | None
    units: NDArray[np.int64] | None
    origins: tuple[Metadata, ...]


def is_parquet(path: Path) -> bool:
    """Whether this is a Parquet file, or a folder that holds some."""
    return bool(_files(path)) if path.is_dir() else path.suffix == ".parquet"


# However deep its pixels are: whether that is asked for, the whole set says.
_ANY = Form(bits=16)


def load_parquet(
    path: Path, columns: Columns, form: Form
) -> tuple[LabelledImages, LabelledImages | None, tuple[Metadata, ...]]:
    """The training images; the test images, where the folder has some; and what files of ours among them say."""
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
        whole = [LabelledImages(split.images, split.labels, names, split.ids, split.units) for split in splits]
    except ValueError as error:
        raise InputError(f"{path}: {error}.") from error
    origins = tuple(metadata for split in splits for metadata in split.origins)
    return whole[0], whole[1] if test is not None else None, origins


def first_image(path: Path, column: str) -> NDArray[np.uint8]:
    """The first of the training images, without reading the others."""
    files, _ = _find(path)
    for file, found, data in foreign_parquet.frames("rows", files[:1], Columns(image=column).asked()):
        if found["sizes"]:
            where = f"{file}, column {column!r}, row {found['row']}"
            return _image(bytes(data[: found["sizes"][0]]), _ANY, where)
    raise InputError(f"{files[0]}: it holds no images.")


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
    asked = columns.asked()
    footers = [found for _, found, _ in foreign_parquet.frames("footers", files, asked)]
    names = footers[0]["names"]
    if any(found["names"] != names for found in footers):
        raise InputError(f"{files[0].parent}: {', '.join(f.name for f in files)} name different classes.")
    labels: list[int] = []
    ids: list[str] = []
    units: list[str] = []
    values: dict[str, list[Any]] = {name: [] for name in asked["by"]}

    def images() -> Iterator[NDArray[np.uint8]]:
        pixels, allowed = 0, limits.inflated(sum(file.stat().st_size for file in files))
        for file, found, data in foreign_parquet.frames("rows", files, asked):
            labels.extend(found["labels"])
            ids.extend(found["ids"])
            units.extend(found["units"])
            for name, more in found["values"].items():
                values[name] += more
            start = 0
            for row, size in enumerate(found["sizes"], start=found["row"]):
                image = _image(bytes(data[start : start + size]), form, f"{file}, column {columns.image!r}, row {row}")
                start, pixels = start + size, pixels + image.size
                allowed.check(pixels, "its images take")
                yield image

    try:
        stack = collect(images(), sum(found["rows"] for found in footers), form)
        owners = combinations(columns.attributes, values) if columns.attributes else tuple(ids)
    except ValueError as error:
        raise InputError(f"{files[0] if len(files) == 1 else files[0].parent}: {error}.") from error
    classes = None if names is None else tuple(names)
    origins = tuple(_origin(file, found["ours"]) for file, found in zip(files, footers, strict=True) if found["ours"])
    ids_of = owners if columns.id or columns.attributes else None
    people = counted(np.array(units)) if columns.unit else None
    return _Split(stack, np.array(labels, np.int64), classes, ids_of, people, origins)


def _origin(file: Path, text: str) -> Metadata:
    """What a dataset of fedsynth's says of itself: whoever takes it for mere images would lose what it cost."""
    try:
        return parse(text).metadata
    except MetadataError as error:
        raise InputError(f"{file} says that fedsynth made it, but {error}. Get the file again.") from error


def _image(data: bytes, form: Form, where: str) -> NDArray[np.uint8]:
    try:
        return read_image(data, bits=form.bits)
    except ValueError as error:
        raise InputError(f"{where}: {error}.") from error
