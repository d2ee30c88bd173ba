"""Whose files are audited: all of a run folder, the owner's of a home or of several, one participant's, an outbox."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from artifacts.errors import FedsynthError, InputError
from artifacts.formats import describe, format_named
from artifacts.formats.plain_data import read_mapping
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
    """`folders` hold what everybody was given: public files, what the server sent, the roster. `wrong`: misnamed.

    `copies` are outboxes as somebody else received them, with whose they are. `seed`: of the run, where one is stated.
    """

    clients: Sequence[Subject]
    server: Subject | None
    folders: Sequence[Path]
    wrong: Sequence[tuple[Path, str]] = ()
    copies: Sequence[tuple[str, Path]] = ()
    seed: int | None = None

    @property
    def all(self) -> list[Subject]:
        return [*self.clients, *([self.server] if self.server is not None else [])]


def find_subjects(target: Path, received: Sequence[Path]) -> Subjects:
    """Who is to be audited in this folder."""
    if not target.exists():
        raise InputError(f"{target}: no such folder. Check the path.")
    run = RunFolder(target)
    if run.clients.is_dir() or run.server.outbox.is_dir():  # a server to whom nobody has sent anything yet
        return _everybody(run, received)
    if homes := _homes(target):
        return _together(homes, received)
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
        f"{target} is neither a run folder or a home (clients/…), nor a folder of homes, nor a participant's "
        "(outbox/), nor an outbox itself."
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
    return Subjects(clients, server, folders, wrong, seed=_seed(run))


def _homes(target: Path) -> list[RunFolder]:
    return [RunFolder(path.parent) for path in sorted(target.glob(f"*/{TERMS}"))]


def _together(homes: Sequence[RunFolder], received: Sequence[Path]) -> Subjects:
    """The homes of a federation side by side: each participant as it is at home; what others have of it are copies."""
    owned: dict[str, Subject] = {}
    others: dict[str, Subject] = {}
    wrong: list[tuple[Path, str]] = []
    copies: list[tuple[str, Path]] = []
    terms = {run.root / TERMS: (run.root / TERMS).read_bytes() for run in homes}
    for run in homes:
        found = _everybody(run, ())
        wrong += found.wrong
        if terms[run.root / TERMS] != terms[homes[0].root / TERMS]:
            wrong.append((run.root / TERMS, f"these are other terms than those of {homes[0].root.name}"))
        for subject in found.all:
            if subject.role != "own":
                others.setdefault(subject.name, subject)
                copies.append((subject.name, subject.outbox))
            elif subject.name in owned:
                wrong.append((subject.base, f"{subject.name} has its records in another home as well"))
            else:
                owned[subject.name] = subject
    everybody = {**others, **owned}
    server = everybody.pop(SERVER, None)
    public = [run.public for run in homes]
    folders = [*public, *([server.outbox] if server is not None else []), *received]
    mine = [(name, folder) for name, folder in copies if name in owned]
    clients = [everybody[name] for name in sorted(everybody)]
    return Subjects(clients, server, folders, wrong, mine, _seed(homes[0]))


def _seed(run: RunFolder) -> int | None:
    """The seed of a federation is in its terms, that of a simulation in its recipe."""
    for path, section in ((run.root / TERMS, "federation"), (run.simulation / "recipe.yaml", None)):
        with contextlib.suppress(FedsynthError, OSError, AttributeError):
            said = read_mapping(path)
            seed = (said.get(section, {}) if section is not None else said).get("seed")
            if type(seed) is int:
                return seed
    return None


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
