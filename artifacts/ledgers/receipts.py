"""Receipts: heads of a client's ledger that the server countersigned, and what they prove (privacy contract, rule 25).

A ledger that is rewritten as a whole, or cut at its end, is a good ledger to anyone who sees it alone. A receipt ends
that: both have signed that after so many entries the ledger had this head. What came before can be changed no more;
what came after the last receipt still can. With the receipts comes a tree head of the server's log of all heads: two
that contradict each other show a server that keeps two histories.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from artifacts.errors import FedsynthError, VerificationError
from artifacts.formats import Format, envelope_file
from artifacts.formats.envelope_file import EnvelopeArtifact, Head, head_of
from artifacts.identity.dsse import Envelope
from artifacts.identity.roster import Roster
from artifacts.ledgers import egress
from artifacts.ledgers.egress import Chain
from artifacts.ledgers.tree_heads import TreeHead, tree_of
from artifacts.places import Place


@dataclass(frozen=True)
class Anchor:
    """What the receipts prove of a client's ledger.

    `anchored`: entries 1 to `seq` of its `entries` are countersigned as they are; those after are not yet. `open` of
    these are more than heads on their way to be countersigned: with none the ledger is anchored as a whole, since each
    head is entered after the entries that it covers.
    `unanchored`: no receipt is at hand, or nothing to check it by; `seq` is 0.
    `mismatch`: a receipt contradicts the ledger, or is not the server's. The audit fails.
    """

    state: Literal["anchored", "unanchored", "mismatch"]
    seq: int
    entries: int
    open: int
    text: str


@dataclass(frozen=True)
class Receipts:
    """Files of receipts, each read once, however many clients are held against them. `wrong`: those not to be read."""

    files: int = 0
    lines: Mapping[str, Sequence[tuple[Path, Envelope]]] = field(default_factory=dict)
    wrong: str = ""
    read: Sequence[EnvelopeArtifact] = ()


def read_receipts(paths: Iterable[Path]) -> Receipts:
    """What is in the files, by client. Who signed it is asked later, by `anchor`.

    A file that is gone by now is left out; one that the operating system does not let us read raises `InputError`.
    """
    lines: dict[str, list[tuple[Path, Envelope]]] = {}
    read: list[EnvelopeArtifact] = []
    files, wrong = 0, ""
    for path in paths:
        files += 1
        try:
            found = envelope_file.read(path, kind="receipt")
            read.append(found)
            for envelope in found.heads:
                lines.setdefault(head_of(envelope).client, []).append((path, envelope))
        except FedsynthError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                continue
            if isinstance(error.__cause__, OSError):
                raise
            wrong = wrong or str(error)
    return Receipts(files, lines, wrong, read)


NO_RECEIPTS = Receipts()


def anchor(place: Place, roster: Roster | None, given: Receipts = NO_RECEIPTS) -> Anchor:
    """Hold the ledger of a client's folder against its receipts. Free of torch, linear in the ledger and the receipts.

    Those that the client kept in its private folder count, and those in `given`: an auditor gives what the server has
    in its outbox (`read_receipts`), because a client who rewrites its ledger would not keep what gives it away. The
    ledger's own chain is checked on the way; one that is broken raises `VerificationError`, as `egress.read` does.
    """
    own = read_receipts(receipts_of(place))
    # Read after the receipts: whatever was countersigned by then is in it.
    book, name = egress.read(place.ledger), place.base.name
    if place.is_server:
        return _unproved("unanchored", book, "nobody countersigns the server's ledger")
    if not own.files + given.files:
        return _unproved("unanchored", book, "no receipts: a ledger rewritten as a whole would not be noticed")
    if own.wrong or given.wrong:
        return _unproved("mismatch", book, own.wrong or given.wrong)
    if roster is None:
        return _unproved("unanchored", book, "there are receipts, but no roster to check them by")
    try:
        check_one_history([*own.read, *given.read], roster)
    except FedsynthError as error:
        return _unproved("mismatch", book, str(error))
    proved = 0
    for path, envelope in (*own.lines.get(name, ()), *given.lines.get(name, ())):
        try:
            said = check_receipt(envelope, roster, path)
            check_head(said, book, path)
        except FedsynthError as error:
            return _unproved("mismatch", book, str(error))
        proved = max(proved, said.seq)
    if not proved:
        return _unproved("unanchored", book, f"no receipt is for {name!r}")
    left = _open(book, proved)
    text = f"countersigned up to entry {proved}" + (f"; {left} after it not yet" if left else "")
    return Anchor("anchored", proved, len(book.entries), left, text)


def _unproved(state: Literal["unanchored", "mismatch"], book: Chain, text: str) -> Anchor:
    return Anchor(state, 0, len(book.entries), _open(book, 0), text)


def _open(book: Chain, seq: int) -> int:
    return sum(entry.kind != "head" for entry in book.entries[seq:])


def receipts_of(place: Place) -> list[Path]:
    """The receipts that a client kept."""
    return sorted(place.private.glob(f"receipt*{Format.ENVELOPES}"))


def check_receipt(envelope: Envelope, roster: Roster, where: Path) -> Head:
    """The head in it, if both the client and the server of this federation signed it."""
    said, known = head_of(envelope), roster.server
    client = roster.of(said.client, "envelopes")
    _check_federation(said, roster, where)
    if known is None:
        raise VerificationError(f"{where}: the roster {roster.path} has no server, so no receipt can be checked by it.")
    if client is None:
        raise VerificationError(f"{where}: client {said.client!r} is not in the roster {roster.path}.")
    if not envelope.is_signed_by(client, known["envelopes"]):
        raise VerificationError(
            f"{where}: the receipt of client {said.client!r} is not signed by it and the server of {roster.path}."
        )
    return said


def check_tree(found: EnvelopeArtifact, roster: Roster) -> TreeHead:
    """The tree head of receipts, if the server of this federation signed it. The reader checked its proofs."""
    tree, known = tree_of(found.envelopes[-1]), roster.server
    _check_federation(tree, roster, found.path)
    if known is None or not found.envelopes[-1].is_signed_by(known["envelopes"]):
        raise VerificationError(f"{found.path}: its tree head is not signed by the server of {roster.path}.")
    return tree


def check_one_history(files: Sequence[EnvelopeArtifact], roster: Roster) -> list[TreeHead]:
    """The tree heads of these receipts, if none of them contradicts another: else the server keeps two histories."""
    claimed: dict[tuple[str, int], tuple[str, Path]] = {}
    trees = []
    for found in files:
        tree = check_tree(found, roster)
        for (what, number), value in tree.claims(found.heads).items():
            before, path = claimed.setdefault((what, number), (value, found.path))
            if before != value:
                about = f"a log of {number} heads" if what == "root" else f"head {number} of the log"
                raise VerificationError(
                    f"{found.path} and {path} contradict each other about {about}, and the server signed both: it "
                    "shows two histories. Keep both files: with the roster they prove it to anybody."
                )
        trees.append(tree)
    return trees


def check_asked(envelope: Envelope, roster: Roster, where: Path) -> Head:
    """The head in it, if the client signed it and nobody else."""
    said = head_of(envelope)
    client = roster.of(said.client, "envelopes")
    _check_federation(said, roster, where)
    if client is None:
        raise VerificationError(f"{where}: client {said.client!r} is not in the roster {roster.path}. Leave it out.")
    if not envelope.is_signed_by(client):
        raise VerificationError(f"{where}: not signed by the key of client {said.client!r} in {roster.path}.")
    return said


def check_head(said: Head, book: Chain, where: Path) -> None:
    """The ledger had this head after so many entries, and still has."""
    if said.seq > len(book.entries):
        raise VerificationError(
            f"{where}: the ledger had {said.seq} entries when this was countersigned, and has {len(book.entries)} now: "
            "its end was cut off."
        )
    found = book.head if said.seq == len(book.entries) else book.entries[said.seq].previous
    if found != said.head:
        raise VerificationError(
            f"{where}: entry {said.seq} of the ledger or one before it is not what was countersigned: the ledger was "
            "rewritten."
        )


def _check_federation(said: Head | TreeHead, roster: Roster, where: Path) -> None:
    if said.federation != roster.federation:
        raise VerificationError(
            f"{where} is of the federation {said.federation!r}, but {roster.path} of {roster.federation!r}."
        )
