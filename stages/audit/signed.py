"""Signatures: envelopes that are on the file they say, and receipts that the server gave for the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from artifacts.attestation import check_signed, check_true
from artifacts.envelope_file import SUFFIX, EnvelopeArtifact
from artifacts.errors import FedsynthError
from artifacts.places import Place
from artifacts.receipts import Receipts, anchor, check_asked, check_receipt, read_receipts, receipts_of
from artifacts.roster import Roster, read_roster
from stages.audit.findings import AuditReport, Sent
from stages.audit.outbound import Seen

ROSTER = "roster.json"


def find_roster(folders: Sequence[Path], result: AuditReport) -> Roster | None:
    """The roster among what everybody was given. One that cannot be read proves nothing, and is a failure."""
    for path in (folder / ROSTER for folder in folders):
        if path.is_file():
            try:
                return read_roster(path)
            except FedsynthError as error:
                result.add("failure", "envelopes", path, str(error))
    return None


def check_envelopes(seen: Sequence[Seen], roster: Roster | None) -> Iterator[tuple[Seen, str]]:
    """Every envelope in an outbox is true of a file beside it, and signed by the one whose file that is.

    Heads and receipts are signed by whom they must be; what they say of a ledger, `check_anchor` holds against it.
    """
    files = {one.sha256: one for one in seen}
    for one in seen:
        if one.envelopes is None:
            continue
        if one.metadata.kind != "envelope":
            yield from ((one, what) for what in _check_heads(one.envelopes, roster))
            continue
        (about,) = one.metadata.inputs
        file = files.get(str(about.sha256))
        if file is None:
            continue  # sent and gone, as the ledger tells; that it was ever recorded, the lineage says
        try:
            if roster is not None:
                check_signed(one.envelopes, file, roster)
            else:
                check_true(one.envelopes, file, _federation(one.envelopes))
        except FedsynthError as error:
            yield one, str(error)


def _check_heads(found: EnvelopeArtifact, roster: Roster | None) -> Iterator[str]:
    check = check_receipt if found.metadata.kind == "receipt" else check_asked
    if roster is None:
        return
    try:
        for line in found.envelopes:
            check(line, roster, found.path)
    except FedsynthError as error:
        yield str(error)


def _federation(envelope: EnvelopeArtifact) -> str:
    return str(envelope.envelopes[1].statement["predicate"]["federation"])


def check_anchor(place: Place, roster: Roster | None, given: Receipts, sent: Sent, result: AuditReport) -> None:
    """What the receipts, the client's own and those that the server gave, prove of the ledger."""
    if not receipts_of(place) and not given.files:
        return
    try:
        found = anchor(place, roster, given)
    except FedsynthError:
        return  # the chain itself is broken, which is told already
    if found.state == "mismatch":
        result.add("failure", "anchor", place.ledger, found.text)
        return
    sent.anchored, sent.unanchored = found.seq, found.open
    result.add("note", "anchor", place.ledger, found.text)


def receipts_in(folders: Sequence[Path]) -> Receipts:
    """Read once, for all clients."""
    found = (path for folder in folders if folder.is_dir() for path in sorted(folder.glob(f"receipt*{SUFFIX}")))
    return read_receipts(found)
