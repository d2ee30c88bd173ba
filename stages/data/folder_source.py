"""Images from a folder of class folders: `FOLDER/<class>/<image>`, or that under `FOLDER/train` and `FOLDER/test`.

Classes are the names of the folders, sorted. Whatever is hidden (`.DS_Store`, `.git`) is passed over; everything
else must be an image inside a class folder: a file that is skipped in silence is a row that is missing in silence.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifacts import limits
from artifacts.errors import InputError
from stages.data.bad_files import refusal
from stages.data.conform import CountError, Form, collect
from stages.data.images import LabelledImages
from stages.data.png import num_frames, read_image

_TEST_FOLDERS = ("test", "validation", "val")
_log = logging.getLogger("fedsynth")


def load_folder(folder: Path, form: Form) -> tuple[LabelledImages, LabelledImages | None, tuple[Path, ...]]:
    """The training images; the test images, where there is a folder of them beside the training folder; left out."""
    outermost = folder.resolve()
    names = {entry.name for entry in _visible(folder, outermost)}
    if "train" not in names:
        classes, strays = _class_folders(folder, outermost)
        images, left_out = _read(folder, classes, classes, strays, outermost, form)
        return images, None, left_out
    strange = sorted(names - {"train", *_TEST_FOLDERS})
    if strange:
        raise InputError(f"{folder}: {strange[0]!r} is beside 'train'; only test, validation or val may be.")
    train_folder = folder / "train"
    classes, strays = _class_folders(train_folder, outermost)
    train, left_out = _read(train_folder, classes, classes, strays, outermost, form)
    test_name = next((name for name in _TEST_FOLDERS if name in names), None)
    if test_name is None:
        return train, None, left_out
    test_folder = folder / test_name
    test_classes, strays = _class_folders(test_folder, outermost)
    unknown = sorted(set(test_classes) - set(classes))
    if unknown:
        raise InputError(f"{test_folder}: class {unknown[0]!r} has no folder in {train_folder}.")
    test, more = _read(test_folder, test_classes, classes, strays, outermost, form)
    return train, test, left_out + more


def first_image(folder: Path) -> NDArray[np.uint8]:
    """The first of the training images, without reading the others."""
    outermost = folder.resolve()
    inner = folder / "train" if (folder / "train").is_dir() else folder
    for name in _class_folders(inner, outermost)[0]:
        for file in _visible(inner / name, outermost):
            try:
                return read_image(limits.read_bytes(file, limits.FILE), bits=16)
            except (ValueError, OSError) as error:
                raise InputError(f"{file}: {error}.") from error
    raise InputError(f"{folder}: no image in it.")


def _class_folders(folder: Path, outermost: Path) -> tuple[list[str], list[Path]]:
    """The names of the classes; and files that are beside their folders."""
    entries = _visible(folder, outermost)
    strays = [entry for entry in entries if not entry.is_dir()]
    classes = [entry.name for entry in entries if entry not in strays]
    if not classes:
        raise InputError(f"{folder}: no class folders in it; expected {folder.name}/<class>/<image files>.")
    return classes, strays


def _read(
    folder: Path, present: list[str], classes: list[str], strays: list[Path], outermost: Path, form: Form
) -> tuple[LabelledImages, tuple[Path, ...]]:
    """The images of these classes. All files that cannot be used are named at once, or left out if they may be."""
    number = {name: index for index, name in enumerate(classes)}
    files = {file: number[name] for name in present for file in _visible(folder / name, outermost)}
    bad = dict.fromkeys(strays, "a file outside the class folders")
    stack, shapes = _collected(files, form, bad)
    if bad and not form.skip_bad:
        remedy = f"{shapes[0].upper()}{shapes[1:]}. " if shapes else ""
        named = {str(file.relative_to(folder)): why for file, why in bad.items()}
        raise refusal(
            folder, named, remedy=remedy + "Mend or remove what is named, or leave it out: ingest --skip-bad."
        )
    if bad:
        files = {file: label for file, label in files.items() if file not in bad}
        stack, shapes = _collected(files, form, {})
    if stack is None:
        without = f", without {len(bad)} files that cannot be used" if bad else ""
        raise InputError(f"{folder}{without}: {shapes}.")
    return LabelledImages(stack, np.array(list(files.values()), dtype=np.int64), tuple(classes)), tuple(bad)


def _collected(files: dict[Path, int], form: Form, bad: dict[Path, str]) -> tuple[NDArray[np.uint8] | None, str]:
    """All images in one array, or why there is none; files that cannot be read go to `bad`."""
    before = len(bad)
    several: list[Path] = []
    try:
        stack = collect(_images(files, form, bad, several), len(files), form)
    except CountError:
        return None, "it holds no images" if len(bad) == before else ""
    except ValueError as error:
        return None, str(error)
    if several:
        _log.warning(
            "warning: %s of %s files have several frames, of which the first is taken: %s%s.",
            f"{len(several):,}", f"{len(files):,}", several[0].name, ", …" if len(several) > 1 else "",
        )  # fmt: skip
    return stack, ""


def _images(
    files: Iterable[Path], form: Form, bad: dict[Path, str], several: list[Path]
) -> Iterator[NDArray[np.uint8]]:
    for file in files:
        # A folder cannot be read, and a pipe would be waited for without end.
        if not file.is_file():
            bad[file] = "only image files may be in a class folder"
            continue
        try:
            data = limits.read_bytes(file, limits.FILE)
            image = read_image(data, bits=form.bits)
        except (ValueError, OSError) as error:
            bad[file] = "an empty file" if not file.stat().st_size else str(error)
            continue
        if num_frames(data) > 1:
            several.append(file)
        yield image


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
