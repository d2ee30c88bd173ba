"""Images from a folder of class folders: `FOLDER/<class>/<image>`, or that under `FOLDER/train` and `FOLDER/test`.

Classes are the names of the folders, sorted. Whatever is hidden (`.DS_Store`, `.git`) is passed over; everything
else must be an image inside a class folder: a file that is skipped in silence is a row that is missing in silence.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifacts import limits
from artifacts.errors import InputError
from stages.data.conform import Form, collect
from stages.data.images import LabelledImages
from stages.data.png import read_image

_TEST_FOLDERS = ("test", "validation", "val")


def load_folder(folder: Path, form: Form) -> tuple[LabelledImages, LabelledImages | None]:
    """The training images and, where there is a test folder beside the training folder, the test images."""
    outermost = folder.resolve()
    names = {entry.name for entry in _visible(folder, outermost)}
    if "train" not in names:
        classes = _class_folders(folder, outermost)
        return _read(folder, classes, classes, outermost, form), None
    strange = sorted(names - {"train", *_TEST_FOLDERS})
    if strange:
        raise InputError(f"{folder}: {strange[0]!r} is beside 'train'; only test, validation or val may be.")
    train_folder = folder / "train"
    classes = _class_folders(train_folder, outermost)
    train = _read(train_folder, classes, classes, outermost, form)
    test_name = next((name for name in _TEST_FOLDERS if name in names), None)
    if test_name is None:
        return train, None
    test_folder = folder / test_name
    test_classes = _class_folders(test_folder, outermost)
    unknown = sorted(set(test_classes) - set(classes))
    if unknown:
        raise InputError(f"{test_folder}: class {unknown[0]!r} has no folder in {train_folder}.")
    return train, _read(test_folder, test_classes, classes, outermost, form)


def first_image(folder: Path) -> NDArray[np.uint8]:
    """The first of the training images, without reading the others."""
    outermost = folder.resolve()
    inner = folder / "train" if (folder / "train").is_dir() else folder
    for name in _class_folders(inner, outermost):
        for file in _visible(inner / name, outermost):
            try:
                return read_image(limits.read_bytes(file, limits.FILE), bits=16)
            except (ValueError, OSError) as error:
                raise InputError(f"{file}: {error}.") from error
    raise InputError(f"{folder}: no image in it.")


def _class_folders(folder: Path, outermost: Path) -> list[str]:
    entries = _visible(folder, outermost)
    for entry in entries:
        if not entry.is_dir():
            raise InputError(f"{entry}: a file outside the class folders; move it away or into one of them.")
    if not entries:
        raise InputError(f"{folder}: no class folders in it; expected {folder.name}/<class>/<image files>.")
    return [entry.name for entry in entries]


def _read(folder: Path, present: list[str], classes: list[str], outermost: Path, form: Form) -> LabelledImages:
    number = {name: index for index, name in enumerate(classes)}
    files = [(file, number[name]) for name in present for file in _visible(folder / name, outermost)]

    def images() -> Iterator[NDArray[np.uint8]]:
        for file, _ in files:
            # A folder cannot be read, and a pipe would be waited for without end.
            if not file.is_file():
                raise InputError(f"{file}: only image files may be in a class folder.")
            try:
                yield read_image(limits.read_bytes(file, limits.FILE), bits=form.bits)
            except (ValueError, OSError) as error:
                raise InputError(f"{file}: {error}.") from error

    try:
        stack = collect(images(), len(files), form)
    except ValueError as error:
        raise InputError(f"{folder}: {error}.") from error
    return LabelledImages(stack, np.array([label for _, label in files], dtype=np.int64), tuple(classes))


def _visible(folder: Path, outermost: Path) -> list[Path]:
    """What is in a folder, by name, without hidden entries; nothing may lead out of the source."""
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}.") from error
    for entry in entries:
        if entry.is_symlink() and not Path(os.path.realpath(entry)).is_relative_to(outermost):
            raise InputError(f"{entry}: a link that leads out of {outermost}; put a copy in its place.")
    return entries
