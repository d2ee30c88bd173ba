"""Images from Parquet in the manner of Hugging Face: `image` struct{bytes, path}, `label` integer, a row an image.

One file is one dataset. In a folder, files whose names begin with `train` are the training split and those that
begin with `test` the test split, or with `validation` or `val` where there is no `test`; shards are read in the
order of their names. Class names come from the `huggingface` schema metadata where it has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts import limits
from artifacts.errors import InputError
from artifacts.metadata import Metadata, MetadataError, parse
from stages.data import foreign_parquet
from stages.data.attributes import Attribute, combinations
from stages.data.bad_files import refusal
from stages.data.conform import CountError, Form, collect
from stages.data.images import LabelledImages, counted
from stages.data.png import read_image

_NOTHING: Mapping[int, tuple[str, str]] = MappingProxyType({})
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
    left_out: tuple[Path, ...]


def is_parquet(path: Path) -> bool:
    """Whether this is a Parquet file, or a folder that holds some."""
    return bool(_files(path)) if path.is_dir() else path.suffix == ".parquet"


# However deep its pixels are: whether that is asked for, the whole set says.
_ANY = Form(bits=16)


def load_parquet(
    path: Path, columns: Columns, form: Form
) -> tuple[LabelledImages, LabelledImages | None, tuple[Metadata, ...], tuple[Path, ...]]:
    """The training images; the test images, where the folder has some; what files of ours say; rows left out."""
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
    left_out = tuple(where for split in splits for where in split.left_out)
    return whole[0], whole[1] if test is not None else None, origins, left_out


def first_image(path: Path, column: str) -> NDArray[np.uint8]:
    """The first of the training images, without reading the others."""
    files, _ = _find(path)
    for file, found, data in foreign_parquet.frames("rows", files[:1], Columns(image=column).asked()):
        if found["sizes"]:
            try:
                return _decoded(bytes(data[: found["sizes"][0]]), _ANY)
            except ValueError as error:
                raise InputError(f"{file}, column {column!r}, row {found['row']}: {error}.") from error
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


def _read(files: list[Path], columns: Columns, form: Form, without: Mapping[int, tuple[str, str]] = _NOTHING) -> _Split:
    """One split; `without` these rows, by number among all, once they were found to be bad and may be left out."""
    asked = columns.asked()
    footers = [found for _, found, _ in foreign_parquet.frames("footers", files, asked)]
    names = footers[0]["names"]
    if any(found["names"] != names for found in footers):
        raise InputError(f"{files[0].parent}: {', '.join(f.name for f in files)} name different classes.")
    labels: list[int] = []
    ids: list[str] = []
    units: list[str] = []
    values: dict[str, list[Any]] = {name: [] for name in asked["by"]}
    bad: dict[int, tuple[str, str]] = {}  # by number among all rows: where, and why

    def images() -> Iterator[NDArray[np.uint8]]:
        pixels, number, allowed = 0, -1, limits.inflated(sum(file.stat().st_size for file in files))
        for file, found, data in foreign_parquet.frames("rows", files, asked):
            labels.extend(found["labels"])
            ids.extend(found["ids"])
            units.extend(found["units"])
            for name, more in found["values"].items():
                values[name] += more
            start = 0
            for row, size in enumerate(found["sizes"], start=found["row"]):
                raw, start, number = bytes(data[start : start + size]), start + size, number + 1
                if number in without:
                    continue
                try:
                    image = _decoded(raw, form)
                except ValueError as error:
                    bad[number] = (f"{file.name}, row {row}", str(error))
                    continue
                pixels += image.size
                allowed.check(pixels, "its images take")
                yield image

    source = files[0] if len(files) == 1 else files[0].parent
    try:
        stack = collect(images(), sum(found["rows"] for found in footers) - len(without), form)
        owners = combinations(columns.attributes, values) if columns.attributes else tuple(ids)
    except ValueError as error:
        if not bad:
            raise InputError(f"{source}: {error}.") from error
        if form.skip_bad:
            return _read(files, columns, form, bad)
        also = "" if isinstance(error, CountError) else f"Beside that {error}. "
        remedy = f"{also}Mend or remove what is named, or leave it out: ingest --skip-bad."
        raise refusal(source, dict(bad.values()), what="rows", remedy=remedy) from error
    kept = [number for number in range(len(labels)) if number not in without]
    labels = [labels[number] for number in kept]
    owners = tuple(owners[number] for number in kept) if owners else ()
    classes = None if names is None else tuple(names)
    origins = tuple(_origin(file, found["ours"]) for file, found in zip(files, footers, strict=True) if found["ours"])
    ids_of = owners if columns.id or columns.attributes else None
    people = counted(np.array([units[number] for number in kept])) if columns.unit else None
    left_out = tuple(Path(where) for where, _ in without.values())
    return _Split(stack, np.array(labels, np.int64), classes, ids_of, people, origins, left_out)


def _origin(file: Path, text: str) -> Metadata:
    """What a dataset of fedsynth's says of itself: anyone who takes it for mere images would lose what it cost."""
    try:
        return parse(text).metadata
    except MetadataError as error:
        raise InputError(f"{file} says that fedsynth made it, but {error}. Get the file again.") from error


def _decoded(data: bytes, form: Form) -> NDArray[np.uint8]:
    if not data:
        raise ValueError("no image bytes; images must be in the file itself, not beside it")
    return read_image(data, bits=form.bits)
