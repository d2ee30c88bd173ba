"""What a format of `export` declares: its name, what it needs to be given, and the function that writes it.

A declaration is a module in `stages/export/formats/`, and is found because it is there. Importing one is cheap, because
`--help` reads all of them; what reads files is imported when it is called.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from stages.export.facts import Facts

# Beside the files, what only a person can say. The command has an option for each.
Asked = Literal["delta", "date", "license", "publisher", "url", "project", "person", "key"]


@dataclass(frozen=True)
class Said:
    """What was said on the command line; None where nothing was."""

    delta: float | None = None
    date: str | None = None
    license: str | None = None
    publisher: str | None = None
    url: str | None = None
    project: str | None = None
    person: str | None = None
    key: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Document:
    """One format.

    `make` returns the files by their names inside OUT, or, where `endings` are declared, the one file that OUT is,
    under the name "". `needs` are options without which it makes no sense, with the reason; `takes` may be given.
    `subjects` says whether PATH is a folder that `audit` audits, one file, or either.
    """

    name: str
    place: int
    text: str
    make: Callable[[Facts], Mapping[str, bytes]]
    subjects: tuple[Literal["folder", "file"], ...]
    endings: tuple[str, ...] = ()
    needs: Mapping[Asked, str] = field(default_factory=dict)
    takes: tuple[Asked, ...] = ()


@cache
def documents() -> dict[str, Document]:
    """All of them by name, in the order of the help."""
    package = importlib.import_module("stages.export.formats")
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    found = [importlib.import_module(f"{package.__name__}.{name}").DOCUMENT for name in names]
    return {one.name: one for one in sorted(found, key=lambda one: one.place)}
