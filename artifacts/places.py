"""Where things are: the run folder, and what a path says about who may hold the file.

A client's folder holds `private/`, `outbox/` and `egress.jsonl`; the server's holds `outbox/` and, inside its
`private/`, its ledger. A file that leaves is written into an `outbox` folder, or waits in `pending` to be released into
it, nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from artifacts.errors import InputError, UsageError
from artifacts.metadata import MetadataError, check_client_name

OUTBOX, PENDING, PRIVATE, SERVER = "outbox", "pending", "private", "server"
PUBLIC, METRICS, SIMULATION = "public", "metrics", "simulation"
ROSTER = f"{PUBLIC}/roster.json"
TERMS = "federation.yaml"  # the terms of a federation: what makes a folder a home


@dataclass(frozen=True)
class Place:
    """The folder of one participant, found from the path of a file in its `outbox/`, `pending/` or `private/`."""

    base: Path

    @classmethod
    def of(cls, path: Path) -> Place | None:
        parent = path.absolute().parent
        return cls(parent.parent) if parent.name in (OUTBOX, PENDING, PRIVATE) else None

    @property
    def is_server(self) -> bool:
        return self.base.name == SERVER

    @property
    def outbox(self) -> Path:
        return self.base / OUTBOX

    @property
    def pending(self) -> Path:
        """What waits to be released into the outbox."""
        return self.base / PENDING

    @property
    def private(self) -> Path:
        return self.base / PRIVATE

    @property
    def key(self) -> Path:
        return self.private / ("server.key" if self.is_server else "client.key")

    @property
    def policy(self) -> Path:
        """Rules of what may leave. Where this file is, everything waits in `pending/` first."""
        return self.private / "policy.yaml"

    @property
    def root(self) -> Path:
        """The run folder or home that a participant's folder is in."""
        return self.base.parent if self.is_server else self.base.parent.parent

    @property
    def roster(self) -> Path:
        """Who is who in its federation, if somebody has put it there."""
        return self.root / ROSTER

    @property
    def ledger(self) -> Path:
        return (self.private if self.is_server else self.base) / "egress.jsonl"


def is_private_folder(folder: Path) -> bool:
    """Whether what is in it is nobody else's business: it, or the folder that it is in, is one of those."""
    known = {PRIVATE: True, PENDING: True, SIMULATION: True, OUTBOX: False, PUBLIC: False, METRICS: False}
    whole = folder.absolute()
    return known.get(whole.name, known.get(whole.parent.name, False))


def in_outbox(path: Path) -> bool:
    return path.absolute().parent.name == OUTBOX


def in_pending(path: Path) -> bool:
    return path.absolute().parent.name == PENDING


def pending_for(path: Path) -> Path:
    """Where a file that is meant for an outbox waits."""
    known = path if path.parent.name == OUTBOX else path.absolute()  # `-o FILE`, typed inside the outbox
    return known.parent.parent / PENDING / path.name


def is_leaving(path: Path) -> bool:
    """Whether a file written there leaves, at once or once it is released."""
    return in_outbox(path) or in_pending(path)


def deep_in_outbox(path: Path) -> bool:
    """Whether a path ends up below a participant's outbox without standing in it: in a sub-folder, or by a link."""
    if in_outbox(path):
        return False
    folders = path.absolute().parent.resolve()
    outboxes = [folder for folder in (folders, *folders.parents) if folder.name == OUTBOX]
    # Only a participant's: someone may keep all of their work in a folder that is called outbox.
    return any((outbox.parent / PRIVATE).is_dir() or (outbox.parent / "egress.jsonl").exists() for outbox in outboxes)


def client_of(path: Path, given: str | None) -> str:
    """The client's name: as given, or that of the folder whose `private/` or `outbox/` the file is in."""
    if given is None:
        place = Place.of(path)
        if place is None or place.is_server:
            raise UsageError(f"whose file is {path}? Give --client NAME, or write into NAME/private/ or NAME/outbox/.")
        given = place.base.name
    try:
        return check_client_name(given)
    except MetadataError as error:
        raise UsageError(f"{error}.") from None


@dataclass(frozen=True)
class RunFolder:
    """A whole federation on one machine."""

    root: Path

    @property
    def public(self) -> Path:
        return self.root / PUBLIC

    @property
    def clients(self) -> Path:
        return self.root / "clients"

    def require_clients(self) -> None:
        """`InputError` unless there is a folder of clients."""
        if not self.clients.is_dir():
            raise InputError(f"{self.root} is no run folder (clients/…), as `fedsynth run` makes it.")

    @property
    def metrics(self) -> Path:
        return self.root / METRICS

    @property
    def simulation(self) -> Path:
        """What only a simulation can know: the resolved recipe, who got how much of what."""
        return self.root / SIMULATION

    @property
    def server(self) -> Place:
        return Place(self.root / SERVER)

    def client(self, name: str) -> Place:
        return Place(self.clients / check_client_name(name))

    def client_names(self) -> list[str]:
        return sorted(p.name for p in self.clients.iterdir() if p.is_dir()) if self.clients.is_dir() else []
