"""`receipt`: the head of a client's ledger goes to the server, is countersigned, and comes back (contract, rule 25).

A receipt shows that its client took part. Where clients are sampled in secret, that would undo the sampling (rule 4):
there the server gives none, and the ledgers stay unanchored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from artifacts.errors import IncompleteError, InputError, UsageError, VerificationError
from artifacts.formats import Format, envelope_file
from artifacts.formats.envelope_file import Head, head_of
from artifacts.identity import keys
from artifacts.identity.dsse import Envelope
from artifacts.identity.keys import Key
from artifacts.identity.roster import Roster, read_roster, signing_key, verify_key
from artifacts.identity.statements import on_ledger
from artifacts.ledgers import egress, merkle, receipt_log, spend
from artifacts.ledgers.egress import Chain
from artifacts.ledgers.receipt_log import log_of
from artifacts.ledgers.receipts import (
    Receipts,
    check_asked,
    check_head,
    check_one_history,
    check_receipt,
    read_receipts,
    receipts_of,
)
from artifacts.ledgers.tree_heads import TreeHead, grown, tree_of
from artifacts.places import SERVER, Place, client_of
from artifacts.publish import prepare
from artifacts.writing import atomic
from stages.charging.spending import key_of
from stages.execution.progress import Summary


def ask(
    out: Path, *, roster: Path, round: int, key: Path | None = None, client: str | None = None, force: bool = False
) -> Summary:
    """Write the head of the client's ledger, signed, into its outbox: what it was before this very file entered it."""
    prepare(out, "outbound")
    known, name, secret = read_roster(roster), client_of(out, client), keys.read(key_of(out, key))
    signer = _signer(known, name, secret)
    place = Place.of(out)
    assert place is not None  # it is in an outbox
    head, seq = _before(egress.read(place.ledger), out.name)
    if not seq:
        raise InputError(f"{place.ledger} has no entries: nothing has left that a receipt could be for.")
    said = Head(known.federation, name, round, seq, head, secret.simulation, "")
    spent = spend.commitment(spend.beside(key_of(out, key)), secret, said.occasion)
    asked = on_ledger(
        head, seq, spend=spent, federation=known.federation, client=name, round=round, simulation=secret.simulation
    )
    written = envelope_file.write(out, (asked.signed(signer),), force=force)
    return {"out": str(out), "sha256": written.sha256, "client": name, "round": round, "seq": seq, "head": head}


def give(heads: Sequence[Path], out: Path, *, roster: Path, key: Path | None = None, force: bool = False) -> Summary:
    """Countersign the heads of a round and write them into the server's outbox, to go down with the next model.

    All of them are entered in the server's log. The head of its tree, signed, is the last line of the file.
    """
    prepare(out, "downlink")
    if not heads:
        raise UsageError("receipt give needs at least one head.")
    known, secret = read_roster(roster), keys.read(key_of(out, key))
    _refuse_secret_sampling(out)
    signer = _signer(known, SERVER, secret)
    asked: dict[str, Envelope] = {}
    earlier = read_receipts(sorted(out.absolute().parent.glob(f"receipt*{Format.ENVELOPES}")))
    for path in heads:
        (envelope,) = envelope_file.read(path, kind="head").envelopes
        said = check_asked(envelope, known, path)
        if said.client in asked:
            raise InputError(f"{path}: another head of client {said.client!r} was given. Each has one a round.")
        _check_round(said, asked, path)
        _check_longer(said, earlier, path)
        asked[said.client] = envelope
    log = log_of(Place(out.absolute().parent.parent))
    _check_log(log, earlier)
    leaves, placed = receipt_log.enter(log, asked)
    tree = grown(leaves, placed, federation=known.federation, round=said.round)
    lines = (*(asked[name] for name in sorted(asked)), tree)
    written = envelope_file.write(out, tuple(line.signed(signer) for line in lines), force=force)
    return {"out": str(out), "sha256": written.sha256, "round": written.metadata.round, "clients": sorted(asked)}


def keep(receipts: Path, out: Path, *, roster: Path, client: str | None = None, force: bool = False) -> Summary:
    """Take the client's own receipt out of the server's file, check it against the ledger, and keep it."""
    prepare(out, "private")
    known, name = read_roster(roster), client_of(out, client)
    place = Place.of(out)
    if place is None:
        raise UsageError(f"{out}: a receipt is kept in the client's private/, beside its key.")
    found = envelope_file.read(receipts, kind="receipt")
    for envelope in found.heads:
        if head_of(envelope).client == name:
            said = check_receipt(envelope, known, receipts)
            check_head(said, egress.read(place.ledger), receipts)
            kept = [path for path in receipts_of(place) if path.absolute() != out.absolute()]
            check_one_history([found, *read_receipts(kept).read], known)
            lines = [envelope.line(), found.envelopes[-1].line()]
            atomic.write(out, lines, force=force, custody="private")
            return {"out": str(out), "client": name, "round": said.round, "seq": said.seq, "head": said.head}
    raise InputError(f"{receipts} has no receipt for client {name!r}. Send its head to the server.")


def compare(files: Sequence[Path], *, roster: Path) -> Summary:
    """Hold the tree heads of receipts against each other, those that two clients have, or more of them.

    A contradiction raises `VerificationError`; heads that no proof joins raise `IncompleteError`.
    """
    known = read_roster(roster)
    paths = [one for path in files for one in (_receipts_in(path) if path.is_dir() else [path])]
    found = [envelope_file.read(path, kind="receipt") for path in paths]
    trees = check_one_history(found, known)
    parts = _joined(trees)
    if len(parts) > 1:
        sizes = " and ".join(str(min(part)) for part in parts[:2])
        raise IncompleteError(
            f"nothing contradicts, but no proof joins the logs of {sizes} heads: compare receipts of the same round, "
            "or of all rounds between."
        )
    last = max(trees, key=lambda tree: tree.size)
    return {"files": len(found), "federation": known.federation, "size": last.size, "root": last.root, "agree": True}


def _receipts_in(folder: Path) -> list[Path]:
    found = sorted(folder.glob(f"receipt*{Format.ENVELOPES}"))
    if not found:
        raise InputError(f"{folder} holds no receipts.")
    return found


def _joined(trees: Sequence[TreeHead]) -> list[set[int]]:
    """The sizes of the log, those together that proofs join. The empty log joins nothing: all go on from it."""
    parts: list[set[int]] = []
    for tree in trees:
        part = {tree.size, tree.previous_size} - {0}
        alone = [other for other in parts if not other & part]
        parts = [*alone, part.union(*(other for other in parts if other & part))]
    return parts


def _before(book: Chain, file: str) -> tuple[str, int]:
    """The head before the file entered the ledger, and the number of entries that it covers.

    If it is there already, that was an interrupted run: the same head again, so that the same bytes come out.
    """
    own = next((entry for entry in book.entries if entry.file == file), None)
    return (book.head, len(book.entries)) if own is None else (own.previous, own.seq - 1)


def _signer(roster: Roster, name: str, key: Key) -> bytes:
    """The signing key, if it is the one that the others know."""
    signer = signing_key(key, "envelopes")
    if roster.of(name, "envelopes") != verify_key(signer):
        raise VerificationError(f"{roster.path} has no identity of {name!r}, or another than its key makes.")
    return signer


def _check_longer(said: Head, given: Receipts, path: Path) -> None:
    """A ledger only grows: a head with fewer entries than one that was countersigned, or another of as many, is not."""
    for earlier, envelope in given.lines.get(said.client, ()):
        before = head_of(envelope)
        if said.seq < before.seq or (said.seq == before.seq and said.head != before.head):
            raise VerificationError(
                f"{path}: the ledger of {said.client!r} has {said.seq} entries here, where {earlier.name} has "
                f"{before.seq} and another head: it was cut or rewritten. It is not countersigned; ask the client."
            )


def _check_log(log: Path, given: Receipts) -> None:
    """A log that lost what was countersigned would begin a second history."""
    leaves = receipt_log.read_leaves(log)
    for found in given.read:
        tree = tree_of(found.envelopes[-1])
        if len(leaves) < tree.size or merkle.root(leaves[: tree.size]).hex() != tree.root:
            raise VerificationError(f"{log} is not the log that {found.path} is of. Put it back; nothing was signed.")


def _check_round(said: Head, asked: Mapping[str, Envelope], path: Path) -> None:
    other = next((head_of(envelope) for envelope in asked.values()), said)
    if said.round != other.round:
        raise InputError(f"{path} is of round {said.round}, the head of {other.client!r} of {other.round}. Give one's.")


def _refuse_secret_sampling(out: Path) -> None:
    place = Place.of(out)
    assert place is not None  # it is in an outbox
    for entry in egress.read(place.ledger).entries:
        if any(_is_secret(event) for event in entry.privacy):
            raise InputError(
                f"refused: {entry.file} claims privacy by secret sampling of clients, and receipts would show who took "
                "part. Ledgers stay unanchored there."
            )


def _is_secret(event: Any) -> bool:
    return isinstance(event, dict) and event.get("unit") == "client" and event.get("sampling") != "none"
