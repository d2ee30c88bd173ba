"""Signatures: envelopes that are on the file they say, and receipts that the server gave for the ledger."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from artifacts.errors import FedsynthError, VerificationError
from artifacts.formats import Format
from artifacts.formats.envelope_file import EnvelopeArtifact, head_of
from artifacts.identity.attestation import check_signed, check_true
from artifacts.identity.dsse import Envelope
from artifacts.identity.keys import Key
from artifacts.identity.roster import PURPOSES, Roster, public_half, read_roster, signing_key, verify_key
from artifacts.ledgers import merkle, receipt_log, remembered, spend
from artifacts.ledgers.egress import Entry
from artifacts.ledgers.receipts import (
    NO_RECEIPTS,
    Receipts,
    anchor,
    check_asked,
    check_receipt,
    check_tree,
    read_receipts,
    receipts_of,
)
from artifacts.ledgers.tree_heads import tree_of
from artifacts.places import Place
from stages.audit.findings import AuditReport, Level, Sent
from stages.audit.obstacles import in_words, obstacle
from stages.audit.outbound import Seen

ROSTER = "roster.json"


def find_roster(folders: Sequence[Path], result: AuditReport) -> Roster | None:
    """The roster among what everybody was given. One that cannot be read, or a second, other one, is a failure."""
    first: Roster | None = None
    for path in (folder / ROSTER for folder in folders):
        try:
            if not path.is_file():
                continue
            found = read_roster(path)
            first = first or found
            if found.fingerprint != first.fingerprint:
                result.add("failure", "envelopes", path, f"it is another roster than {first.path}: which one counts?")
        except (FedsynthError, OSError) as error:
            if (why := obstacle(error)) is not None:
                result.add("unknown", "envelopes", path, f"it could not be looked at: {why}")
            else:
                result.add("failure", "envelopes", path, str(error))
    return first


def check_trust(roster: Roster | None, trust: str | None, target: Path, result: AuditReport) -> None:
    """Whose keys are in the roster, nobody can tell from the evidence: `trust` is a fingerprint from elsewhere."""
    if roster is None:
        if trust is not None:
            result.needs("envelopes", target, "the roster that is trusted")
        return
    result.fingerprint, result.trusted = roster.fingerprint, trust == roster.fingerprint
    if trust is not None and not result.trusted:
        what = f"its fingerprint is {roster.fingerprint}, not the one that is trusted"
        result.add("failure", "envelopes", roster.path, what)
    elif trust is None:
        what = f"identity not checked: compare its fingerprint {roster.fingerprint} and give it as --trust"
        result.add("note", "envelopes", roster.path, what)
    if roster.has_expired:
        what = f"it expired on {roster.expires}: no file says when it was signed; what was after that does not count"
        result.add("note", "envelopes", roster.path, what)


def check_envelopes(
    seen: Sequence[Seen], roster: Roster | None, entries: Sequence[Entry] | None, key: Key | None, result: AuditReport
) -> None:
    """Every envelope in an outbox is on the file beside it that it names, is true of it, and signed by its owner.

    Heads and receipts are signed by whom they must be; what receipts say of a ledger, `check_anchor` compares with it.
    `entries` are those of the ledger, None where that is not here. With the `key` at hand signatures are made again.
    """
    files = {one.path.name: one for one in seen}
    for one in seen:
        if one.envelopes is None:
            asked = roster is not None and roster.signing is not None and roster.signing.asks_for(one.metadata)
            if asked and f"{one.path.name}{Format.ENVELOPES}" not in files:
                result.add("failure", "envelopes", one.path, "it is not signed, which the roster asks for")
            continue
        if roster is None:
            result.needs("envelopes", one.path, "the roster")
        is_on_file = one.metadata.kind == "envelope"
        problems = (
            functools.partial(_check_one, files, entries) if is_on_file else functools.partial(_check_heads, entries)
        )
        if key is not None and not all(map(functools.partial(_is_made_by, key), one.envelopes.envelopes)):
            what = "its signature is not the one that the key makes of it: bits may be in it"
            result.add("failure", "envelopes", one.path, what)
        try:
            for level, what in problems(one, roster):
                result.add(level, "envelopes", one.path, what)
        except Exception as error:
            result.add("failure", "envelopes", one.path, in_words(error))


def check_identity(name: str, key: Key, roster: Roster, result: AuditReport) -> None:
    """An identity is made from the key: of another one nobody could say which signatures it makes, or who has it."""
    for purpose in PURPOSES:
        if roster.of(name, purpose) not in (None, public_half(key, purpose)):
            what = f"its key of {name} for {purpose} is not the one that the key of {name} gives"
            result.add("failure", "envelopes", roster.path, what)


def _is_made_by(key: Key, envelope: Envelope) -> bool:
    """Ed25519 draws nothing: of one statement a key makes one signature. What others signed is not asked here."""
    secret = signing_key(key, "envelopes")
    mine = verify_key(secret).hex()
    return envelope.signatures.get(mine) in (None, Envelope(envelope.payload, {}).signed(secret).signatures[mine])


def _check_one(
    files: Mapping[str, Seen], entries: Sequence[Entry] | None, one: Seen, roster: Roster | None
) -> Iterator[tuple[Level, str]]:
    assert one.envelopes is not None
    claim = one.envelopes.envelopes[1].statement
    name = str(claim["subject"][0]["name"])
    if one.path.name != f"{name}{Format.ENVELOPES}":
        yield "failure", f"it is the envelope of {name!r}, which is named {name}{Format.ENVELOPES}"
        return
    file = files.get(name)
    if file is None:
        yield from _check_gone(one, claim, entries)
        return
    if roster is not None:
        check_signed(one.envelopes, file, roster)
    else:
        check_true(one.envelopes, file, _federation(one.envelopes))
    # Whether someone who had seen private data let the file leave is the one thing that the file itself cannot say.
    said, mine = claim["predicate"]["picked"], _recorded(entries or (), name, file.sha256)
    if mine and said not in {entry.picked for entry in mine}:
        yield "failure", f"it says {said} of 'picked', where the ledger says {not said}"


def _recorded(entries: Sequence[Entry], name: str, sha256: str | None) -> list[Entry]:
    return [entry for entry in entries if (entry.file, entry.sha256) == (name, sha256)]


def _check_gone(one: Seen, claim: Mapping[str, Any], entries: Sequence[Entry] | None) -> Iterator[tuple[Level, str]]:
    """The file that an envelope is on is not beside it: as far as the ledger goes, its claim is compared with that."""
    (about,) = one.metadata.inputs
    if entries is None:
        yield "unchecked", "the files that envelopes are on"
        return
    name, said = claim["subject"][0]["name"], claim["predicate"]
    mine = _recorded(entries, name, about.sha256)
    if not mine:
        yield "failure", f"it is on {name!r}, with bytes that the ledger does not record"
    elif all(_claimed(entry) != tuple(said[of] for of in _CLAIMS) for entry in mine):
        yield "failure", f"it says something else of {name!r} than the ledger"
    else:
        yield "unchecked", "the files that envelopes are on"


_CLAIMS = ("kind", "round", "disclosures", "picked")


def _claimed(entry: Entry) -> tuple[str | int | list[str] | None, ...]:
    return entry.kind, entry.round, entry.disclosures, entry.picked


def _check_heads(entries: Sequence[Entry] | None, one: Seen, roster: Roster | None) -> Iterator[tuple[Level, str]]:
    assert one.envelopes is not None
    check = check_receipt if one.metadata.kind == "receipt" else check_asked
    if one.metadata.kind == "head" and entries is not None:
        for said in map(head_of, one.envelopes.heads):
            # Its own entry follows those that it counts, so that there is always one that names what came before.
            if not 0 <= said.seq < len(entries) or entries[said.seq].previous != said.head:
                yield "failure", f"the ledger did not have the head that it states after {said.seq} entries"
            elif said.round not in {entry.round or 0 for entry in entries[: said.seq]}:  # 0: before the first round
                yield "note", f"it names round {said.round}, of which the ledger has nothing: a number somebody chose"
    if roster is None:
        return
    for line in one.envelopes.heads:
        try:
            check(line, roster, one.path)
            if one.metadata.kind == "receipt":
                check_tree(one.envelopes, roster)
        except Exception as error:
            yield "failure", in_words(error)
            return


def _federation(envelope: EnvelopeArtifact) -> str:
    return str(envelope.envelopes[1].statement["predicate"]["federation"])


def check_anchor(place: Place, roster: Roster | None, given: Receipts, sent: Sent, result: AuditReport) -> None:
    """What the receipts, the client's own and those that the server gave, prove of the ledger."""
    if not receipts_of(place) and not given.files:
        return
    try:
        found = anchor(place, roster, given)
    except FedsynthError as error:
        if (why := obstacle(error)) is not None:
            result.add("unknown", "anchor", place.ledger, f"it could not be looked at: {why}")
        return  # the chain itself is broken, which is reported already
    if found.state == "mismatch":
        result.add("failure", "anchor", place.ledger, found.text)
        return
    sent.anchored, sent.unanchored = found.seq, found.open
    result.add("note", "anchor", place.ledger, found.text)


def check_spent(place: Place, key: Key, seen: Sequence[Seen], given: Receipts, result: AuditReport) -> None:
    """Heads commit to the spend ledger, which only grows: one that was put back or made anew is not what they say."""
    book, reached = spend.beside(place.key), 0
    try:
        files = [one.envelopes for one in seen if one.envelopes is not None and one.metadata.kind == "head"]
        heads = [(found.path, line) for found in files for line in found.heads]
        kept = read_receipts(receipts_of(place))
        heads += [*kept.lines.get(place.base.name, ()), *given.lines.get(place.base.name, ())]
        for path, said in sorted(((path, head_of(line)) for path, line in heads), key=lambda one: one[1].seq):
            entries = spend.committed_entries(book, key, said.occasion, said.spend)
            if entries is None or entries < reached:
                what = f"it is not the ledger that {path.name} commits to: it was put back, cut or made anew"
                result.add("failure", "anchor", book, what)
                return
            reached = entries
        if reached:
            result.add("note", "anchor", book, f"heads of the ledger commit to it, up to entry {reached}")
    except FedsynthError as error:
        if (why := obstacle(error)) is not None:
            result.add("unknown", "anchor", book, f"it could not be looked at: {why}")
        # else its chain is broken, which is reported already


def check_remembered(place: Place, key: Key, where: Path | None, result: AuditReport) -> None:
    """The spend ledger goes on from the last head that the client's machine remembers outside its folder.

    Elsewhere than it was an older one may be a copy that somebody keeps: it is not called put back unless the auditor
    was given what the machine of this client remembers.
    """
    book = spend.beside(place.key)
    try:
        if where is not None and not key.simulation and not remembered.known(key, where):
            result.needs("budget", book, f"what the machine of {place.base.name} remembers of it: {where} has nothing")
        if book.exists():
            spend.check_remembered(book, key, where)
    except remembered.PutBackError as error:
        if error.here or where is not None:
            result.add("failure", "budget", book, str(error))
        else:
            result.needs(
                "budget", book, f"the newest spend ledger of {place.base.name} ({error.entries_known} entries)"
            )
    except FedsynthError as error:
        if not isinstance(error, VerificationError):
            result.add("unknown", "budget", book, f"it could not be looked at: {error}")
        # else its chain is broken, which is said already


def check_log(server: Place, receipts: Receipts, result: AuditReport) -> None:
    """The server's own log has the trees whose heads it signed."""
    path = receipt_log.log_of(server)
    if not receipts.read:
        return
    try:
        leaves = receipt_log.read_leaves(path)
    except FedsynthError as error:
        level: Level = "unknown" if obstacle(error) is not None else "failure"
        result.add(level, "chain", path, in_words(error))
        return
    for found in receipts.read:
        tree = tree_of(found.envelopes[-1])
        if tree.size > len(leaves) or merkle.root(leaves[: tree.size]).hex() != tree.root:
            result.add("failure", "anchor", found.path, f"its tree head is not that of {path.name}, the server's log")


def receipts_in(folders: Sequence[Path], result: AuditReport) -> Receipts:
    """Read once, for all clients."""
    found = [
        path for folder in folders if folder.is_dir() for path in sorted(folder.glob(f"receipt*{Format.ENVELOPES}"))
    ]
    try:
        return read_receipts(found)
    except FedsynthError as error:
        result.add("unknown", "anchor", found[0].parent, str(error))
        return NO_RECEIPTS
