"""A CSV of labels beside a folder: which class each file is of, and, if a column says so, whose it is."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from artifacts import limits
from artifacts.errors import InputError

FILE_COLUMN = "file"
_NAMED = 20  # of the rows that cannot be used
_MOST_LABEL = 200


@dataclass(frozen=True)
class LabelledFile:
    path: Path
    label: str
    person: str | None


@dataclass(frozen=True)
class Labels:
    rows: list[LabelledFile]
    columns: tuple[str, ...]


def read_labels(table: Path, folder: Path, *, label_column: str, unit_column: str | None) -> Labels:
    """The rows of a CSV with a header: `file` (a path inside `folder`), the label, and the person where asked for.

    All rows that cannot be used are named at once.
    """
    try:
        text = limits.read_bytes(table, limits.RECORD).decode("utf-8-sig")
        lines = csv.DictReader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
        columns = tuple(lines.fieldnames or ())
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{table}: not a CSV file in UTF-8 that can be read ({error}).") from error
    for name in (FILE_COLUMN, label_column):
        if columns.count(name) != 1:
            option = "" if name == FILE_COLUMN else "; give the right --label-column"
            raise InputError(
                f"{table}: no one column {name!r} among {', '.join(columns) or 'nothing'}{option}. The first line has "
                f"the names {FILE_COLUMN},{label_column}."
            )
    rows: list[LabelledFile] = []
    bad: list[str] = []
    seen: set[Path] = set()
    in_table = unit_column is not None and unit_column in columns
    try:
        for number, line in enumerate(lines, start=2):
            name, label = (line.get(FILE_COLUMN) or "").strip(), (line.get(label_column) or "").strip()
            person = (line.get(unit_column or "") or "").strip() or None if in_table else None
            path = folder / name
            wrong = _wrong(name, label, path, folder, person, needs_person=in_table)
            if wrong is None and path in seen:
                wrong = "named twice"
            seen.add(path)
            if wrong is None:
                rows.append(LabelledFile(path, label, person))
            else:
                bad.append(f"line {number} ({name or 'no file'}: {wrong})")
    except csv.Error as error:
        raise InputError(f"{table}: not a CSV file that can be read ({error}).") from error
    if bad:
        others = f"; and {len(bad) - _NAMED} others" if len(bad) > _NAMED else ""
        raise InputError(f"{table}: {len(bad)} lines cannot be used: {'; '.join(bad[:_NAMED])}{others}.")
    if not rows:
        raise InputError(f"{table}: no line beside the header.")
    return Labels(rows, columns)


def _delimiter(text: str) -> str:
    """Spreadsheets of many countries write semicolons."""
    head = text.partition("\n")[0]
    return max(",;\t", key=head.count)


def _wrong(name: str, label: str, path: Path, folder: Path, person: str | None, *, needs_person: bool) -> str | None:
    if not name:
        return "no file is named"
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        return "a path that leads out of the folder"
    if not label or len(label) > _MOST_LABEL:
        return "no label" if not label else "a label that is too long"
    if needs_person and person is None:
        return "nobody is named whose it is"
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
        is_there = path.is_file()
    except (OSError, ValueError):
        return "no such file"
    return None if inside and is_there else "no such file" if not is_there else "a link that leads out of the folder"
