"""Whose files are audited: all of a run folder, the owner's of a home, one participant's, or an outbox alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from artifacts.errors import FedsynthError, InputError
from artifacts.formats import describe, format_named
from artifacts.metadata import Metadata, MetadataError
from artifacts.places import SERVER, TERMS, Place, RunFolder

# «own»: ledger and private folder belong to it, and are missed where they are not. «received»: what another
# participant sent to the owner of a home, whose ledger and key stay elsewhere. «alone»: nothing but the files.
Role = Literal["own", "received", "alone"]


@dataclass(frozen=True)
class Subject:
    """One participant, and what of it is here."""

    name: str
    place: Place
    outbox: Path
    role: Role = "own"

    @property
    def is_server(self) -> bool:
        return self.name == SERVER

    @property
    def base(self) -> Path:
        return self.outbox if self.role == "alone" else self.place.base

    @classmethod
    def of(cls, place: Place, role: Role = "own") -> Subject:
        return cls(place.base.name, place, place.outbox, role)


@dataclass(frozen=True)
class Subjects:
    """`folders` hold what everybody was given: public files, what the server sent, the roster. `wrong`: misnamed."""

    clients: Sequence[Subject]
    server: Subject | None
    folders: Sequence[Path]
    wrong: Sequence[tuple[Path, str]] = ()
    terms: Path | None = None

    @property
    def all(self) -> list[Subject]:
        return [*self.clients, *([self.server] if self.server is not None else [])]


def find_subjects(target: Path, received: Sequence[Path]) -> Subjects:
    """Who is to be audited in this folder."""
    run = RunFolder(target)
    if run.clients.is_dir():
        return _everybody(run, received)
    if (target / "outbox").is_dir():
        place = Place(target.absolute())
        if not _has_records(place):
            return _alone(place.outbox, received)
        around = [] if received else _around(place)
        subject = Subject.of(place)
        server = subject if place.is_server else None
        return Subjects([] if place.is_server else [subject], server, [*around, *received])
    if target.is_dir() and any(format_named(path) for path in target.iterdir()):
        return _alone(target.absolute(), received)
    raise InputError(
        f"{target} is neither a run folder or a home (clients/…), nor a participant's (outbox/), nor an outbox itself."
    )


def _everybody(run: RunFolder, received: Sequence[Path]) -> Subjects:
    """In a home, a folder with the terms of a federation, what others sent is without their ledgers."""
    home = (run.root / TERMS).is_file()
    clients, wrong = [], []
    for name in run.client_names():
        try:
            place = run.client(name)
        except MetadataError as error:
            wrong.append((run.clients / name, str(error)))
            continue
        clients.append(Subject.of(place, "received" if home and not _has_records(place) else "own"))
    server = Subject.of(run.server, "received" if home and not _has_records(run.server) else "own")
    folders = [run.public, run.server.outbox, *received]
    return Subjects(clients, server, folders, wrong, run.root / TERMS if home else None)


def _has_records(place: Place) -> bool:
    return place.private.is_dir() or place.ledger.exists()


def _around(place: Place) -> list[Path]:
    """In the folder of a run or a home, what the server sent is beside the client's folder."""
    if place.base.parent.name != "clients":
        return []
    run = RunFolder(place.base.parent.parent)
    return [folder for folder in (run.public, run.server.outbox) if folder.is_dir()]


def _alone(outbox: Path, received: Sequence[Path]) -> Subjects:
    """Whose files they are, they say themselves: the first one does, and the others must say the same."""
    metadata = next(filter(None, map(_metadata, sorted(outbox.iterdir()))), None)
    name = SERVER if metadata is not None and metadata.custody == "downlink" else None
    name = name or (metadata.client if metadata is not None else None) or outbox.parent.name
    subject = Subject(name, Place(outbox.parent), outbox, "alone")
    return Subjects([] if subject.is_server else [subject], subject if subject.is_server else None, received)


def _metadata(path: Path) -> Metadata | None:
    if path.is_symlink() or not path.is_file() or format_named(path) is None:
        return None
    try:
        return describe(path).metadata
    except FedsynthError:
        return None
