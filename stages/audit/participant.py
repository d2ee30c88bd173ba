"""One participant: its ledger, its files, where they come from and what they cost."""

from __future__ import annotations

import functools
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from artifacts.errors import InputError, VerificationError
from artifacts.identity.keys import Key
from artifacts.identity.roster import Roster
from artifacts.kinds import KINDS
from artifacts.ledgers import egress
from artifacts.ledgers.egress import Chain, Entry
from artifacts.ledgers.receipts import Receipts
from artifacts.places import Place
from stages.audit.ancestry import Ancestry
from stages.audit.budget import SpendBook, check_budget
from stages.audit.claims import is_bound, other_federation, other_noise
from stages.audit.findings import AuditReport, Sent
from stages.audit.layout import check_file, check_place, chosen_names, left_by_writers, others, strange_entry
from stages.audit.noise import ShownNoise
from stages.audit.obstacles import in_words, obstacle
from stages.audit.outbound import Problem, Seen, check_seen
from stages.audit.pictures import Fingerprints, copied, of_private, published
from stages.audit.replay import Federation, ReplayOptions, replay_files
from stages.audit.secure_rounds import STAGE, SecureRounds
from stages.audit.signatures import (
    check_anchor,
    check_envelopes,
    check_identity,
    check_log,
    check_remembered,
    check_spent,
)
from stages.audit.snapshot import Snapshot
from stages.audit.subjects import Subject
from stages.audit.surrounding_files import Given, Kept, Shelf
from stages.hyperparameters import PluginRecord
from stages.plugins import missing, plugins_of
from stages.words import counted, parameter_words

_FEW = 0.01  # of a public set: train and test of well-known sources have that many pictures in common


@dataclass(frozen=True)
class Common:
    """What every participant's files are held against."""

    given: Given | None
    roster: Roster | None
    receipts: Receipts
    replay: ReplayOptions | None
    remembered: Path | None = None

    @functools.cached_property
    def rounds(self) -> SecureRounds:
        return SecureRounds(self.given, self.roster)


@dataclass
class Audited:
    """What was found with one participant: the digests that it recorded or has, and the files replaced meanwhile."""

    number: int
    name: str
    result: AuditReport = field(default_factory=AuditReport)
    recorded: set[str] = field(default_factory=set)
    replaced: set[str] = field(default_factory=set)
    # For a replay of the server's files, and for secure aggregation: what was sent to it, and seeds that are known.
    sent: list[Kept] = field(default_factory=list)
    seeds: tuple[int, ...] = ()


def audit_one(
    number: int,
    snapshot: Snapshot,
    common: Common,
    recorded: Set[str] = frozenset(),
    federation: Federation | None = None,
) -> Audited:
    """`recorded` and `federation`: what the clients did, if this is the server."""
    subject = snapshot.subject
    part = Audited(number, subject.name)
    result = part.result
    try:
        book = _audit_place(snapshot, common, recorded, result)
        part.recorded = {entry.sha256 for entry in book} | {seen.sha256 for seen in snapshot.seen}
        mine = snapshot.key if isinstance(snapshot.key, Key) else None
        check_envelopes(snapshot.seen, common.roster, book if snapshot.has_records else None, mine, result)
        if mine is not None and common.roster is not None:
            check_identity(subject.name, mine, common.roster, result)
        if not subject.is_server and snapshot.has_records:
            check_anchor(subject.place, common.roster, common.receipts, result.sent[-1], result)
            if mine is not None:
                check_spent(subject.place, mine, snapshot.seen, common.receipts, result)
                check_remembered(subject.place, mine, common.remembered, result)
        if subject.is_server and snapshot.has_records:
            check_log(subject.place, common.receipts, result)
        kept = (one for one in snapshot.seen if common.replay is not None or one.metadata.stage == STAGE)
        part.sent = [Kept(one.path, one.sha256, one.metadata) for one in kept]
        if common.replay is not None:
            part.seeds = snapshot.seeds
            if subject.role != "received":
                replay_files(snapshot, federation or Federation(given=common.given), common.replay, result)
    except Exception as error:
        add_error(error, "outbox", subject.base, result)
    part.replaced = {str(path) for path in snapshot.replaced}
    return part


def could_not(why: str) -> str:
    return f"it could not be looked at: {why}"


def add_error(error: Exception, check: str, where: Path, result: AuditReport) -> None:
    why = obstacle(error)
    if why is not None:
        result.add("unknown", check, where, could_not(why))
    else:
        result.add("failure", check, where, in_words(error))


def _audit_place(snapshot: Snapshot, common: Common, recorded: Set[str], result: AuditReport) -> list[Entry]:
    """One participant: its ledger, its files, where they come from and what they cost. Returns its entries."""
    subject, place, given = snapshot.subject, snapshot.place, common.given
    sent = Sent(subject.name, subject.role)
    result.sent.append(sent)
    if not subject.outbox.is_dir():
        result.add("note", "outbox", place.base, "it has no outbox: nothing left")
        return []
    seen = snapshot.seen
    secret = _key(snapshot, result)
    book = _read_ledger(place, result) if snapshot.has_records else None
    _say_what_is_missing(snapshot, given, result)
    # A check is as good as what it is made with.
    blind = {"ledger", "lineage"} if book is None else set()
    if snapshot.obstacles or (given is not None and given.obstacles):
        blind.add("lineage")
    for check, path, why in snapshot.obstacles:
        result.add("unknown", check, path, could_not(why))

    def fail(check: str, where: Path, what: str) -> None:
        result.add("unknown" if check in blind else "failure", check, where, what)

    entries: dict[str, list[Entry]] = {}
    own = book.entries if book is not None else []
    for entry in own:
        entries.setdefault(entry.file, []).append(entry)
    sent.entries = len(own)
    for path, (check, what) in snapshot.unread:
        fail(check, path, what)
    _check_layout(snapshot, own, result)
    if snapshot.has_records:
        for path in snapshot.files.keys() - {one.path for one in seen}:
            if path.name not in entries:
                fail("ledger", path, "in the outbox, but not in the ledger")
        _note_what_is_gone(snapshot, own, sent, result)
    ancestry = Ancestry(
        secret,
        snapshot.shelf if secret is not None else Shelf(),
        given if subject.role == "own" or not subject.is_server else None,
        {entry.sha256: frozenset(entry.disclosures) for entry in own} if book is not None else None,
        recorded if subject.is_server else set(),
    )
    spending = SpendBook.read(place) if secret is not None else SpendBook(place.key)
    if spending.problem is not None:
        add_error(spending.problem, "chain", spending.path, result)
    shown = None
    if secret is not None and not subject.is_server and spending.problem is None:
        brought = given.events if given is not None else set()
        shown = ShownNoise.read(spending.path, secret, ancestry.shelf, brought)
    sent.without_noise |= any(entry.picked for entry in own)
    private, home = _private_pictures(snapshot, secret), place.key
    if secret is not None and given is not None and not subject.is_server:
        _check_published(snapshot, given, result)
    plugins: set[PluginRecord] = set()
    for one in seen:
        _count(one, sent)
        mine = entries.get(one.path.name, []) if snapshot.has_records else None
        try:
            for check, what in _problems(one, mine, subject, given, spending, ancestry):
                fail(check, one.path, what)
            for what in shown.check(one) if shown is not None else ():
                fail("events", one.path, what)
            if common.roster is not None:
                came = shown.inherited if shown is not None else frozenset()
                if (wrong := other_federation(one.metadata, common.roster.federation, came)) is not None:
                    fail("events", one.path, wrong)
            if secret is not None and secret.simulation > one.metadata.simulation and not subject.is_server:
                fail("params", one.path, "it does not say that it is a simulation's, whose key its client has")
            if private is not None and (found := copied(one.prints, private, one.metadata)) is not None:
                fail("images", one.path, found)
            plugins |= set(plugins_of(one.metadata.params))
            if (plugin := missing(one.metadata.params)) is not None:
                result.needs(
                    "params", one.path, f"the plug-in {plugin.name}, sha256:{plugin.sha256[:12]}…, by --plugin"
                )
            if (needed := common.rounds.needs(one)) is not None:
                result.needs("tensors", one.path, needed)
            for check, what in common.rounds.check(one, secret, home):
                fail(check, one.path, what)
        except Exception as error:
            add_error(error, "params", one.path, result)
    for record in sorted(plugins, key=str):
        what = f"files were made with the plug-in {record}: what they may say is what that declares"
        result.add("note", "params", subject.base, what)
    if given is not None and not subject.is_server and (names := _names_of_ones_own(seen, given)) is not None:
        result.add("note", "params", subject.outbox, f"no public data has these names of classes: {names}")
    for kept, what in ancestry.within():
        if snapshot.was_there(kept):
            fail("lineage", kept.path, what)
    for kept in ancestry.shelf.files.values():
        if (wrong := other_noise(kept.metadata, given)) is not None and snapshot.was_there(kept):
            fail("events", kept.path, wrong)
    if common.roster is not None and (loose := [one for one in seen if not is_bound(one.metadata)]):
        what = f"noise of {counted(len(loose), 'file')} is bound to no federation: made before there was a roster"
        result.add("note", "events", subject.base, what)
    for path, what in ancestry.shelf.unread:
        result.add("note", "lineage", path, what)
    try:
        inherited = shown.inherited if shown is not None else None
        for what in check_budget(place, spending, own, sent, inherited) if secret is not None else ():
            result.add("failure", "budget", place.base, what)
    except Exception as error:
        add_error(error, "budget", place.base, result)
    if shared := snapshot.shared():
        what = f"other users of this machine can read {shared[0].name} ({len(shared)} in all). Run: chmod -R go= "
        result.add("note", "secrets", place.private, f"{what}{place.private}")
    return own


def _names_of_ones_own(seen: Sequence[Seen], given: Given) -> str | None:
    """What classes are called in the first set, where no public data calls them anything: it could be any text."""
    sets = (one.metadata for one in seen if one.metadata.kind == "dataset" and not given.class_names)
    return next((", ".join(map(str, about.params["class_names"])) for about in sets), None)


def _check_layout(snapshot: Snapshot, entries: list[Entry], result: AuditReport) -> None:
    """Names, links, modes and attributes, and what is beside the outbox."""
    for path in snapshot.files:
        for check, what in check_file(path):
            result.add("failure", check, path, what)
    for one in snapshot.seen:
        for what in one.remarks:
            result.add("note", "digest", one.path, what)
    if snapshot.has_records:
        for check, path, what in check_place(snapshot.place, snapshot.subject.outbox):
            result.add("failure", check, path, what)
        if left := left_by_writers(snapshot.place.base):
            what = f"{left[0]}: of a writer that is at work or was killed; nobody looked into it"
            result.add("note", "outbox", snapshot.place.base, what)
    elif snapshot.subject.role == "received" and (beside := others(snapshot.place.base)):
        what = f"{counted(len(beside), 'file')} beside what was received, which nobody looked into: {beside[0].name}"
        result.add("note", "custody", snapshot.place.base, what)
    if names := chosen_names(snapshot.seen, entries, is_server=snapshot.subject.is_server):
        what = f"{counted(len(names), 'name')} that somebody chose, which can say anything: {names[0]}"
        result.add("note", "outbox", snapshot.subject.outbox, what)


def _private_pictures(snapshot: Snapshot, secret: Key | None) -> Fingerprints | None:
    """Of the client's data, where that is at hand and pictures left."""
    if secret is None or snapshot.subject.is_server or not any(one.prints is not None for one in snapshot.seen):
        return None
    return of_private(snapshot.shelf)


def _check_published(snapshot: Snapshot, given: Given, result: AuditReport) -> None:
    """Private pictures among the public ones: a few may be duplicates of a source, many were put there."""
    try:
        for path, found, of in published(snapshot.shelf, given.public_sets):
            what = (
                f"{found} of its {of} pictures are private ones of {snapshot.subject.name}. This line is itself private"
            )
            result.add("failure" if found > of * _FEW else "note", "images", path, what)
    except Exception as error:
        add_error(error, "images", snapshot.place.private, result)


def _say_what_is_missing(snapshot: Snapshot, given: Given | None, result: AuditReport) -> None:
    """Which checks are not made for want of something, so that none of them is taken for a pass."""
    subject = snapshot.subject
    if subject.role == "received":
        what = f"received from {subject.name}, whose ledger, key and private files are not here: audit them there"
        result.add("note", "ledger", subject.base, what)
        return
    if subject.role == "alone":
        for check in ("chain", "ledger", "anchor"):
            result.needs(check, subject.base, f"the ledger of {subject.name}")
        for check in ("secrets", "lineage"):
            result.needs(check, subject.base, f"the key and the private files of {subject.name}")
        for check in ("events", "budget") if any(one.metadata.privacy for one in snapshot.seen) else ("budget",):
            result.needs(check, subject.base, f"the spend ledger of {subject.name}")
    named = any(reference.sha256 for one in snapshot.seen for reference in one.metadata.inputs if one.envelopes is None)
    if given is None and named:
        others = "what the clients sent" if subject.is_server else "what the server sent (--received)"
        for check in ("lineage",) if subject.is_server else ("tensors", "lineage"):
            result.needs(check, subject.base, others)


def _note_what_is_gone(snapshot: Snapshot, own: list[Entry], sent: Sent, result: AuditReport) -> None:
    """What is recorded but not here has left all the same, and counts: replaced by another, sent, or never finished."""
    here = {(one.path.name, one.sha256) for one in snapshot.seen}
    names = {path.name for path in snapshot.files.keys() - snapshot.gone}
    for entry in {(entry.file, entry.sha256): entry for entry in own}.values():
        if (entry.file, entry.sha256) in here or any(path.name == entry.file for path, _ in snapshot.unread):
            continue
        if (wrong := strange_entry(entry)) is not None:
            result.add("failure", "ledger", snapshot.place.ledger, f"entry {entry.seq}, whose file is gone: {wrong}")
            continue
        sent.count(entry.kind, entry.round, entry.bytes)
        sent.disclosures |= set(entry.disclosures)
        sent.without_noise |= KINDS[entry.kind].from_data and (bool(entry.disclosures) or not entry.privacy)
        what = "recorded, but not here: sent or unfinished"
        if entry.file in names:
            what = f"entry {entry.seq} of the ledger is another file under this name, since replaced: it counts as left"
        result.add("note", "ledger", snapshot.subject.outbox / entry.file, what)


def _problems(
    one: Seen,
    entries: list[Entry] | None,
    subject: Subject,
    given: Given | None,
    spending: SpendBook,
    ancestry: Ancestry,
) -> list[Problem]:
    problems = list(check_seen(one, entries, None if subject.is_server else subject.name, given))
    problems += spending.check(one.metadata)
    if (wrong := other_noise(one.metadata, given)) is not None:
        problems.append(("events", wrong))
    return problems or [("lineage", what) for what in ancestry.check(one)]


def _read_ledger(place: Place, result: AuditReport) -> Chain | None:
    """The ledger; an empty one where it is broken, None where it could not be read."""
    try:
        book = egress.read(place.ledger)
        if place.ledger.exists() and place.ledger.stat().st_mode & 0o022:
            result.add("failure", "chain", place.ledger, f"others can write to it. Run: chmod 600 {place.ledger}")
    except (VerificationError, InputError) as error:
        add_error(error, "chain", place.ledger, result)
        return Chain([], "") if isinstance(error, VerificationError) else None
    if book.unfinished_tail:
        result.add("note", "chain", place.ledger, "its last line was never finished")
    return book


def _key(snapshot: Snapshot, result: AuditReport) -> Key | None:
    if isinstance(snapshot.key, Key):
        return snapshot.key
    if snapshot.key is None and not snapshot.obstacles:
        if snapshot.has_records:
            metadata = [one.metadata for one in snapshot.seen]
            committed = any(reference.commitment for about in metadata for reference in about.inputs)
            # A server without a key adds no noise of its own: the events of its models are those of the messages.
            claimed = not snapshot.subject.is_server and any(about.privacy for about in metadata)
            for check, asked in (("secrets", committed), ("lineage", committed), ("events", claimed)):
                if asked:
                    result.needs(check, snapshot.place.base, f"the key of {snapshot.subject.name}")
    elif snapshot.key is not None:
        result.add("failure", "secrets", snapshot.place.key, str(snapshot.key))
    return None


def _count(seen: Seen, sent: Sent) -> None:
    metadata = seen.metadata
    sent.count(metadata.kind, metadata.round, seen.size)
    sent.disclosures |= set(metadata.disclosures)
    sent.without_noise |= KINDS[metadata.kind].from_data and (bool(metadata.disclosures) or not metadata.privacy)
    sent.simulation |= metadata.simulation
    if KINDS[metadata.kind].from_data:
        settings = {name: value for name, value in metadata.params.items() if name != "signature"}
        sent.made.add((metadata.kind, parameter_words(settings)))
