"""The audit of a run folder, or of one participant's: every file is read once, and every check says what it found.

A check that finds nothing says nothing. What a check cannot see is a note, never a silent pass.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from artifacts import keys, ledger, lineage
from artifacts.errors import FedsynthError, InputError, VerificationError
from artifacts.keys import Key
from artifacts.kinds import KINDS
from artifacts.ledger import Chain, Entry
from artifacts.metadata import MetadataError
from artifacts.places import Place, RunFolder
from stages.audit.ancestry import Ancestry
from stages.audit.findings import AuditReport, Sent
from stages.audit.outbound import Problem, Seen, check_seen, look_at
from stages.audit.secrets import Watch
from stages.audit.shelves import Given, Shelf
from stages.audit.spent import SpendBook, check_budget, epsilons
from stages.progress import Report, silent


def audit(
    target: Path,
    *,
    delta: float | None = None,
    received: Sequence[Path] = (),
    report: Report = silent,
) -> AuditReport:
    """Audit a whole run folder, or the folder of one participant.

    With `delta` the ε of what left is computed. `received` are folders with what a client was sent by the server: in a
    run folder the server's outbox is at hand, with one client's folder it is not.
    """
    run, result = RunFolder(target), AuditReport()
    whole = run.clients.is_dir()
    if whole:
        places = [*_client_places(run, result), run.server]
    elif (target / "outbox").is_dir():
        places = [Place(target.absolute())]
    else:
        raise InputError(f"{target} is neither a run folder (clients/…) nor a participant's (outbox/).")
    given = Given.read([*([run.public] if whole else []), *received]) if whole or received else None
    sent_down = _Outbox(run.server) if whole else None
    if given is not None and sent_down is not None:
        for seen in sent_down.seen:
            specs = seen.tensors.specs if seen.tensors is not None else ()
            given.remember(seen.path, seen.sha256, seen.metadata, specs)
    recorded: set[str] = set()
    for number, place in enumerate(places, start=1):
        outbox = sent_down if place.is_server and sent_down is not None else _Outbox(place)
        book = _audit_place(outbox, given, recorded, result)
        recorded |= {entry.sha256 for entry in book} | {seen.sha256 for seen in outbox.seen}
        report(number, len(places), place.base.name)
    if whole:
        _check_server_lineage(run, recorded, result)
    _note_anchors(target, result)
    if delta is not None:
        _add_epsilons(target, delta, result)
    return result


class _Outbox:
    """A participant's outbox, read when it is first asked for, with the participant's secrets in mind."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.unread: list[tuple[Path, Problem]] = []

    @functools.cached_property
    def shelf(self) -> Shelf:
        return Shelf.read(self.place.private)

    @functools.cached_property
    def key(self) -> Key | FedsynthError | None:
        if not self.place.key.exists():
            return None
        try:
            return keys.read(self.place.key)
        except FedsynthError as error:
            return error

    @functools.cached_property
    def seen(self) -> list[Seen]:
        secret = self.key if isinstance(self.key, Key) else None
        watch = Watch(secret, {kept.metadata.seed or 0 for kept in self.shelf.files.values()})
        found = []
        for path in sorted(self.place.outbox.iterdir()) if self.place.outbox.is_dir() else []:
            one = look_at(path, watch)
            if isinstance(one, Seen):
                found.append(one)
            else:
                self.unread.append((path, one))
        return found


def _client_places(run: RunFolder, result: AuditReport) -> list[Place]:
    places = []
    for name in run.client_names():
        try:
            places.append(run.client(name))
        except MetadataError as error:
            result.add("failure", "custody", run.clients / name, str(error))
    return places


def _audit_place(outbox: _Outbox, given: Given | None, recorded: set[str], result: AuditReport) -> list[Entry]:
    """One participant: its ledger, its files, where they come from and what they cost. Returns its entries."""
    place = outbox.place
    sent = Sent(place.base.name)
    result.sent.append(sent)
    if not place.outbox.is_dir():
        result.add("note", "outbox", place.base, "it has no outbox: nothing left")
        return []
    book = _read_ledger(place, result)
    sent.entries = len(book.entries)
    entries: dict[str, list[Entry]] = {}
    for entry in book.entries:
        entries.setdefault(entry.file, []).append(entry)
    seen = outbox.seen
    for path, (check, what) in outbox.unread:
        result.add("failure", check, path, what)
        if path.name not in entries:
            result.add("failure", "ledger", path, "in the outbox, but not in the ledger")
    present = {one.path.name for one in seen} | {path.name for path, _ in outbox.unread}
    for name in entries.keys() - present:
        result.add("note", "ledger", place.outbox / name, "recorded, but not here: sent or unfinished")
    secret = _key(outbox, result)
    shelf = outbox.shelf if secret is not None else Shelf()
    own = {entry.sha256 for entry in book.entries}
    ancestry = Ancestry(secret, shelf, given, own, recorded if place.is_server else set())
    spending = SpendBook.read(place) if secret is not None else SpendBook(place.key)
    if spending.problem is not None:
        result.add("failure", "chain", spending.path, spending.problem)
    for one in seen:
        _count(one, sent)
        client = None if place.is_server else place.base.name
        problems = list(check_seen(one, entries.get(one.path.name, []), client, given))
        problems += spending.check(one.metadata)
        if not problems:
            problems = [("lineage", what) for what in ancestry.check(one)]
        for check, what in problems:
            result.add("failure", check, one.path, what)
    for kept, what in ancestry.within():
        result.add("failure", "lineage", kept.path, what)
    for path, what in shelf.unread:
        result.add("note", "lineage", path, what)
    if secret is not None:
        for what in check_budget(place, spending, book.entries, sent):
            result.add("failure", "budget", place.base, what)
    return book.entries


def _read_ledger(place: Place, result: AuditReport) -> Chain:
    try:
        book = ledger.read(place.ledger)
    except VerificationError as error:
        result.add("failure", "chain", place.ledger, str(error))
        return Chain([], "")
    if book.unfinished_tail:
        result.add("note", "chain", place.ledger, "its last line was never finished")
    return book


def _key(outbox: _Outbox, result: AuditReport) -> Key | None:
    if isinstance(outbox.key, Key):
        return outbox.key
    if outbox.key is None:
        result.add("note", "lineage", outbox.place.base, "no key here: commitments stay closed")
    else:
        result.add("failure", "secrets", outbox.place.key, str(outbox.key))
    return None


def _count(seen: Seen, sent: Sent) -> None:
    metadata = seen.metadata
    sent.count(metadata.kind, metadata.round, seen.size)
    sent.disclosures |= set(metadata.disclosures)
    sent.without_noise |= KINDS[metadata.kind].from_data and (bool(metadata.disclosures) or not metadata.privacy)
    sent.simulation |= metadata.simulation


def _check_server_lineage(run: RunFolder, recorded: set[str], result: AuditReport) -> None:
    """Each aggregate was made from messages that clients recorded."""
    for path in sorted(run.server.private.glob("*.lineage.json")):
        try:
            references = lineage.read_record(path)
        except FedsynthError as error:
            result.add("failure", "lineage", path, str(error))
            continue
        for reference in references:
            if reference.sha256 not in recorded:
                result.add("failure", "lineage", path, f"made from a {reference.kind} that no client recorded")


def _note_anchors(target: Path, result: AuditReport) -> None:
    if not result.anchored:
        result.add("note", "anchor", target, "no receipts: a ledger rewritten as a whole would not be noticed")


def _add_epsilons(target: Path, delta: float, result: AuditReport) -> None:
    try:
        found = epsilons(target, delta)
    except FedsynthError as error:
        result.add("failure", "events", target, str(error))
        return
    for sent in result.sent:
        sent.epsilon = found.get(sent.name)
