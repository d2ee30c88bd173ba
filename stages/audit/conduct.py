"""The audit of a run folder, or of one participant's: every file is read once, and every check says what it found.

A check that finds nothing says nothing. What a check cannot see is a note, never a silent pass.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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
from stages.audit.replay import Replay
from stages.audit.secrets import Watch
from stages.audit.shelves import Given, Shelf, files_of
from stages.audit.signed import check_anchor, check_envelopes, find_roster, receipts_in
from stages.audit.spent import SpendBook, check_budget, epsilons
from stages.progress import Report, silent

if TYPE_CHECKING:
    from stages.torch_setup import Device


def audit(
    target: Path,
    *,
    delta: float | None = None,
    received: Sequence[Path] = (),
    replay: ReplayOptions | None = None,
    report: Report = silent,
) -> AuditReport:
    """Audit a whole run folder, or the folder of one participant.

    With `delta` the ε of what left is computed. `received` are folders with what a client was sent by the server, and
    with the roster: in a run folder they are at hand, with one client's folder they are not. With `replay` files are
    computed again as well.
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
    folders = [*([run.public, run.server.outbox] if whole else []), *received]
    roster, receipts = find_roster(folders, result), receipts_in(folders)
    recorded: set[str] = set()
    for number, place in enumerate(places, start=1):
        outbox = sent_down if place.is_server and sent_down is not None else _Outbox(place)
        book = _audit_place(outbox, given, recorded, result)
        recorded |= {entry.sha256 for entry in book} | {seen.sha256 for seen in outbox.seen}
        for seen, what in check_envelopes(outbox.seen, roster):
            result.add("failure", "envelopes", seen.path, what)
        if not place.is_server:
            check_anchor(place, roster, receipts, result.sent[-1], result)
            if replay is not None:
                _replay(outbox, given, replay, result)
        report(number, len(places), place.base.name)
    if sent_down is not None:
        _check_server_lineage(sent_down, recorded, result)
    _note_anchors(target, result)
    if delta is not None:
        _add_epsilons(target, delta, result)
    return result


@dataclass(frozen=True)
class ReplayOptions:
    """How much of each client is computed again (all, if `sample` is None), and what counts as the same."""

    sample: int | None = None
    tolerance: float | None = None
    seeds: tuple[int, ...] = ()
    device: Device = "auto"


def _replay(outbox: _Outbox, given: Given | None, options: ReplayOptions, result: AuditReport) -> None:
    counts = result.replayed = result.replayed or {}
    if not isinstance(outbox.key, Key):
        result.add("note", "replay", outbox.place.base, "without the client's key nothing can be computed again")
        return
    known = tuple(kept.metadata.seed for kept in outbox.shelf.files.values() if kept.metadata.seed is not None)
    again = Replay(
        outbox.place, outbox.key, outbox.shelf, given, outbox.seen, options.tolerance, (*options.seeds, *known),
        options.device,
    )  # fmt: skip
    for done in again.run(options.sample):
        counts[done.state] = counts.get(done.state, 0) + 1
        if done.state != "identical":
            result.add("failure" if done.state == "different" else "note", "replay", done.path, done.what)


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
        for path, regular in files_of(self.place.outbox):
            one = look_at(path, watch) if regular else ("outbox", "not a regular file")
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
    sent.without_noise |= any(entry.picked for entry in book.entries)
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


def _check_server_lineage(server: _Outbox, recorded: set[str], result: AuditReport) -> None:
    """Each aggregate was made from what clients recorded, or from what the server made of that, as a secure sum."""
    for path in sorted(server.place.private.glob("*.lineage.json")):
        try:
            references = lineage.read_record(path)
        except FedsynthError as error:
            result.add("failure", "lineage", path, str(error))
            continue
        for reference in references:
            between = server.shelf.files.get(reference.sha256 or "")
            sources = between.metadata.inputs if between is not None else [reference]
            for source in sources:
                if source.role != "model" and source.sha256 not in recorded:
                    result.add("failure", "lineage", path, f"made from a {source.kind} that no client recorded")


def _note_anchors(target: Path, result: AuditReport) -> None:
    if not result.partly_anchored:
        result.add("note", "anchor", target, "no receipts: a ledger rewritten as a whole would not be noticed")


def _add_epsilons(target: Path, delta: float, result: AuditReport) -> None:
    try:
        found = epsilons(target, delta)
    except FedsynthError as error:
        result.add("failure", "events", target, str(error))
        return
    for sent in result.sent:
        sent.epsilon = found.get(sent.name)
