"""Images from a folder of class folders: `FOLDER/<class>/<image>`, or that under `FOLDER/train` and `FOLDER/test`.

Classes are the names of the folders, sorted. Whatever is hidden (`.DS_Store`, `.git`) is passed over; everything
else must be an image inside a class folder: a file that is skipped in silence is a row that is missing in silence.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifacts import limits
from artifacts.errors import InputError
from stages.data.conform import Form, collect
from stages.data.images import LabelledImages
from stages.data.png import read_image

_TEST_FOLDERS = ("test", "validation", "val")
_NAMED = 20  # of the files that cannot be used


def load_folder(folder: Path, form: Form) -> tuple[LabelledImages, LabelledImages | None, tuple[Path, ...]]:
    """The training images; the test images, where there is a folder of them beside the training folder; left out."""
    left_out: list[Path] = []
    outermost = folder.resolve()
    names = {entry.name for entry in _visible(folder, outermost)}
    if "train" not in names:
        classes = _class_folders(folder, outermost, left_out if form.skip_bad else None)
        return _read(folder, classes, classes, outermost, form, left_out), None, tuple(left_out)
    strange = sorted(names - {"train", *_TEST_FOLDERS})
    if strange:
        raise InputError(f"{folder}: {strange[0]!r} is beside 'train'; only test, validation or val may be.")
    train_folder = folder / "train"
    classes = _class_folders(train_folder, outermost, left_out if form.skip_bad else None)
    train = _read(train_folder, classes, classes, outermost, form, left_out)
    test_name = next((name for name in _TEST_FOLDERS if name in names), None)
    if test_name is None:
        return train, None, tuple(left_out)
    test_folder = folder / test_name
    test_classes = _class_folders(test_folder, outermost, left_out if form.skip_bad else None)
    unknown = sorted(set(test_classes) - set(classes))
    if unknown:
        raise InputError(f"{test_folder}: class {unknown[0]!r} has no folder in {train_folder}.")
    return train, _read(test_folder, test_classes, classes, outermost, form, left_out), tuple(left_out)


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


def _class_folders(folder: Path, outermost: Path, left_out: list[Path] | None = None) -> list[str]:
    entries = _visible(folder, outermost)
    strays = [entry for entry in entries if not entry.is_dir()]
    if strays and left_out is None:
        raise InputError(f"{strays[0]}: a file outside the class folders; move it away or into one of them.")
    if left_out is not None:
        left_out += strays
        entries = [entry for entry in entries if entry not in strays]
    if not entries:
        raise InputError(f"{folder}: no class folders in it; expected {folder.name}/<class>/<image files>.")
    return [entry.name for entry in entries]


def _read(
    folder: Path, present: list[str], classes: list[str], outermost: Path, form: Form, left_out: list[Path]
) -> LabelledImages:
    """The images of these classes. All files that cannot be used are named at once, or go to `left_out` if they may."""
    number = {name: index for index, name in enumerate(classes)}
    files = {file: number[name] for name in present for file in _visible(folder / name, outermost)}
    bad: dict[Path, str] = {}
    stack = None
    try:
        stack = collect(_images(files, form, bad), len(files), form)
    except ValueError as error:
        if not bad:
            raise InputError(f"{folder}: {error}.") from error
    if bad and not form.skip_bad:
        raise InputError(_in_words(folder, bad))
    if bad:
        left_out += bad
        files = {file: label for file, label in files.items() if file not in bad}
        try:
            stack = collect(_images(files, form, bad), len(files), form)
        except ValueError as error:
            raise InputError(f"{folder}, without {len(bad)} files that cannot be used: {error}.") from error
    assert stack is not None
    return LabelledImages(stack, np.array(list(files.values()), dtype=np.int64), tuple(classes))


def _images(files: Iterable[Path], form: Form, bad: dict[Path, str]) -> Iterator[NDArray[np.uint8]]:
    for file in files:
        # A folder cannot be read, and a pipe would be waited for without end.
        if not file.is_file():
            bad[file] = "only image files may be in a class folder"
            continue
        try:
            yield read_image(limits.read_bytes(file, limits.FILE), bits=form.bits)
        except (ValueError, OSError) as error:
            bad[file] = str(error)


def _in_words(folder: Path, bad: dict[Path, str]) -> str:
    if len(bad) == 1:
        return "".join(f"{file}: {why}." for file, why in bad.items())
    named = [f"{file.relative_to(folder)} ({why})" for file, why in list(bad.items())[:_NAMED]]
    others = f"; and {len(bad) - _NAMED} others" if len(bad) > _NAMED else ""
    return f"{folder}: {len(bad)} files cannot be used: {'; '.join(named)}{others}."


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
