"""Images and scans in a folder, their classes in a CSV beside it: `ingest FOLDER --labels labels.csv`.

A file is an image of any everyday format, a DICOM file, or a NIfTI volume. Rows of the result are in the order of a
keyed hash of person and file, so that neither the order of admission nor that of names is left in it; people become
numbers. The ids themselves, and the hashes, are written nowhere.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifacts import limits
from artifacts.errors import InputError, UsageError
from artifacts.identity.keys import Key
from stages.data.bad_files import refusal
from stages.data.conform import Form, collect
from stages.data.images import LabelledImages, counted
from stages.data.labels_file import LabelledFile, read_labels
from stages.data.medical import Scan, ScanReading, is_dicom, is_nifti, read_dicom, read_nifti
from stages.data.png import read_image

PATIENT = "PatientID"  # the column that DICOM files bring themselves


@dataclass(frozen=True)
class LabelledScans:
    """What was read; `left_out` could not be used; `text_not_said` scans are silent about text in their pixels."""

    content: LabelledImages
    left_out: tuple[Path, ...]
    text_not_said: int


@dataclass
class _Found:
    images: list[NDArray[np.uint8]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    people: list[str] = field(default_factory=list)
    bad: dict[Path, str] = field(default_factory=dict)
    text_not_said: int = 0
    volumes: bool = False


def load_labelled(
    folder: Path,
    table: Path,
    form: Form,
    *,
    scans: ScanReading,
    key: Key | None,
    label_column: str,
    unit_column: str | None,
) -> LabelledScans:
    """The images of all files that the table names. A file of the folder that it does not name is one that is bad.

    Without a key the images are public, and nobody's.
    """
    labels = read_labels(table, folder, label_column=label_column, unit_column=unit_column)
    from_header = unit_column == PATIENT and PATIENT not in labels.columns
    if unit_column is not None and not from_header and unit_column not in labels.columns:
        raise UsageError(
            f"--unit-column {unit_column}: {table} has the columns {', '.join(labels.columns)}; {PATIENT} is read from "
            "DICOM headers."
        )
    named = {row.path for row in labels.rows}
    found = _Found(bad=dict.fromkeys(_unnamed(folder, table, named), "no line of the CSV names it"))
    places = Hash(key.derive("people of scans") if key is not None else b"")
    for row in sorted(labels.rows, key=lambda row: places(f"{row.person or ''}\0{row.path.relative_to(folder)}")):
        _add(found, row, form, scans, from_header=from_header)
    if found.bad and not form.skip_bad:
        bad = {str(path.relative_to(folder)): why for path, why in found.bad.items()}
        raise refusal(folder, bad, remedy="Mend or remove what is named, or leave it out: --skip-bad.")
    try:
        stack = collect(iter(found.images), len(found.images), form)
    except ValueError as error:
        raise InputError(f"{folder}: {error}.") from error
    # What is in one file is one person's: without a column a volume is whose it is.
    with_people = key is not None and (unit_column is not None or found.volumes)
    hashed = np.array([places(person) for person in found.people])
    order = np.argsort(hashed, kind="stable") if with_people else np.arange(len(hashed))
    classes = sorted({row.label for row in labels.rows})
    numbers = np.array([classes.index(label) for label in found.labels], np.int64)[order]
    units = counted(hashed[order]) if with_people else None
    content = LabelledImages(stack[order], numbers, tuple(classes), units=units)
    return LabelledScans(content, tuple(found.bad), found.text_not_said)


@dataclass(frozen=True)
class Hash:
    """HMAC-SHA256 under a key that is derived for this alone: anyone who lacks the client's key cannot try ids."""

    secret: bytes = field(repr=False)

    def __call__(self, text: str) -> str:
        return hmac.new(self.secret, text.encode(), sha256).hexdigest()


def _add(found: _Found, row: LabelledFile, form: Form, scans: ScanReading, *, from_header: bool) -> None:
    try:
        scan = _read(row.path, form, scans)
        if scan.text == "yes" and not scans.blank:
            raise ValueError("text is burnt into its pixels (Burned In Annotation): --blank makes it black")
        if from_header and scan.person is None:
            raise ValueError(f"no {PATIENT} in its header")
    except (ValueError, OSError) as error:
        found.bad[row.path] = str(error)
        return
    person = scan.person if from_header else row.person or str(row.path)
    found.text_not_said += scan.text == "not said" and not scans.blank
    found.volumes |= len(scan.images) > 1
    found.images += [form.apply(image) for image in scan.images]
    found.labels += [row.label] * len(scan.images)
    found.people += [person or ""] * len(scan.images)


def _read(path: Path, form: Form, scans: ScanReading) -> Scan:
    data = limits.read_bytes(path, limits.FILE)
    if is_nifti(path):
        return read_nifti(path, data, scans)
    if is_dicom(data):
        return read_dicom(data, scans)
    return Scan([read_image(data, bits=form.bits)], None, "no")


def _unnamed(folder: Path, table: Path, named: set[Path]) -> Iterator[Path]:
    own = table.resolve()
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and path.is_file() and path not in named and path.resolve() != own and path.name != "DICOMDIR":
            yield path
