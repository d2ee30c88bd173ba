"""What left, and the privacy events that it names: from files, and for folders from their ledgers too.

A file is covered if it has events and discloses nothing without noise (privacy contract, rule 1). In a folder every
entry of the ledger counts: what was sent, replaced or taken away stays charged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifacts.errors import InputError
from artifacts.formats import describe
from artifacts.kinds import KINDS
from artifacts.ledgers import egress
from artifacts.places import TERMS, Place, RunFolder
from stages.charging.spending import understood
from stages.privacy.events import PrivacyEvent


@dataclass(frozen=True)
class Charged:
    """One file that left: its events, and why they do not cover it, if they do not."""

    who: str
    where: str
    round: int
    events: tuple[PrivacyEvent, ...]
    uncovered: str


@dataclass
class Charges:
    charged: list[Charged] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # What the server sent on as clients had sent it: theirs to answer for, unless the server itself claims an ε.
    passed_on: list[Charged] = field(default_factory=list)


def read_charges(targets: Sequence[Path]) -> Charges:
    """Read files, participants' folders and whole runs. An event that is not understood raises `InputError`."""
    found = Charges()
    for target in targets:
        if target.is_dir():
            _read_folder(target, found)
        else:
            _read_file(target, found)
    if any(file.who == "server" for file in found.charged):
        found.charged += found.passed_on
    return found


def _read_folder(target: Path, found: Charges) -> None:
    run = RunFolder(target)
    if run.clients.is_dir():
        for name in run.client_names():
            _read_place(run.client(name), found)
        if run.server.outbox.is_dir():
            _read_place(run.server, found)
    elif (target / "outbox").is_dir():
        _read_place(Place(target.absolute()), found)
    else:
        raise InputError(f"{target} is neither a run folder (clients/…) nor a participant's (outbox/).")


def _read_place(place: Place, found: Charges) -> None:
    """Every entry of the ledger, whether its file is still there or not, and every file that has no entry."""
    # Listed before the ledger is read: by then whatever is there has its entry, somebody being at work or not.
    files = sorted(place.outbox.iterdir()) if place.outbox.is_dir() else []
    entries = egress.read(place.ledger).entries
    for entry in entries:
        where = f"{place.base.name}/{entry.file}"
        if _is_free(entry.kind, entry.privacy, entry.disclosures):
            continue
        stated = entry.privacy, entry.disclosures
        _charge(where, place.base.name, entry.round, *stated, found, picked=entry.picked)
    entered = {entry.file for entry in entries}
    # At home only its owner's ledger is there: what came from others is counted as the files say.
    received = (place.root / TERMS).is_file() and not place.ledger.is_file()
    if received and files:
        found.notes.append(f"{place.base} was received: its ledger is where it came from, and the files are counted.")
    for path in files:
        if path.name not in entered:
            if not received:
                found.notes.append(f"{path} is not in the ledger: run fedsynth audit.")
            _read_file(path, found, named=False)


def _read_file(path: Path, found: Charges, *, named: bool = True) -> None:
    """`named` by the user, who is then answered that it costs nothing, if it does not."""
    metadata = describe(path).metadata
    if metadata.custody in ("public", "server"):
        found.notes.append(f"{path} is {metadata.custody}: it is no client's file, and is not charged.")
        return
    if metadata.custody == "private":
        found.notes.append(f"{path} is private: this is what it would cost if it left.")
    if _is_free(metadata.kind, metadata.privacy, metadata.disclosures):
        if named:
            found.notes.append(f"{path} is made from no private data, and costs nothing.")
        return
    who = metadata.client or "server"
    picked = egress.was_picked(metadata)
    _charge(str(path), who, metadata.round, metadata.privacy, metadata.disclosures, found, picked=picked)


def _is_free(kind: str, privacy: Sequence[Any], disclosures: Sequence[str]) -> bool:
    """Fresh keys and the like: they can hold nothing about anybody's data. An unknown kind is never free."""
    return kind in KINDS and not KINDS[kind].from_data and not privacy and not disclosures


def _charge(
    where: str,
    who: str,
    round: int | None,
    privacy: Iterable[Any],
    disclosures: Sequence[str],
    found: Charges,
    *,
    picked: bool = False,
) -> None:
    with understood(where):
        events = tuple(PrivacyEvent.from_json(fields) for fields in privacy)
    uncovered = ""
    if disclosures:
        uncovered = f"it discloses {', '.join(disclosures)} without noise"
    elif picked:
        uncovered = "someone who had seen private data chose that it leaves"
    elif not events:
        uncovered = "it has no privacy events"
    if who == "server" and not events:
        note = "What the server sent without events is made from what the clients sent, and is charged there."
        if note not in found.notes:
            found.notes.append(note)
        if disclosures:
            found.passed_on.append(Charged(who, where, round or 0, events, uncovered))
        return
    found.charged.append(Charged(who, where, round or 0, events, uncovered))
