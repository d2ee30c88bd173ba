"""`receipt prove`: what an auditor with one signed tree head needs to check a file, or a later tree head, by it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from artifacts.errors import IncompleteError, InputError, UsageError, VerificationError
from artifacts.formats import Format, any_file, envelope_file
from artifacts.formats.envelope_file import Head, head_of
from artifacts.identity.dsse import Envelope
from artifacts.identity.roster import Roster, read_roster
from artifacts.ledgers import egress, merkle, proofs, receipt_log
from artifacts.ledgers.proofs import Consistency, Inclusion
from artifacts.ledgers.receipts import check_head, check_receipt, check_tree, read_receipts, receipts_of
from artifacts.ledgers.tree_heads import TreeHead
from artifacts.places import SERVER, Place
from artifacts.publish import prepare
from stages.execution.progress import Summary

_NO_LOG = "the server's log is not at hand: give it, or a copy of it, as --log."


def prove(file: Path, out: Path, *, head: Path, roster: Path, log: Path | None = None, force: bool = False) -> Summary:
    """Write the proof that a file which left is in the log of the tree head in `head`, a file of receipts.

    If `file` is a file of receipts itself: that its log goes on from that of `head`. `log` is the server's log of
    receipts, or a copy; in a run folder and in the server's home it is found.
    """
    prepare(out, "private")
    known = read_roster(roster)
    held = check_tree(envelope_file.read(head, kind="receipt"), known)
    leaves = _leaves(log, head, held)
    if _is_receipts(file):
        later = check_tree(envelope_file.read(file, kind="receipt"), known)
        proof: Inclusion | Consistency = _consistency(out, held, later, leaves)
    else:
        proof = _inclusion(file, out, head, held, leaves, known)
    proofs.write(proof, force=force)
    summary: Summary = {"out": str(out), "file": str(file), "held": {"size": held.size, "root": held.root}}
    if isinstance(proof, Inclusion):
        return summary | {"what": "inclusion", "entries": len(proof.entries), "nodes": len(proof.nodes)}
    return summary | {"what": "consistency", "size": proof.new_size, "nodes": len(proof.nodes)}


def verify_by(proof: Path, file: Path, *, head: Path, roster: Roster) -> Summary:
    """Check a file, or a later file of receipts, by a proof and the tree head in `head`. Raises where it does not."""
    held, found = check_tree(envelope_file.read(head, kind="receipt"), roster), proofs.read(proof)
    log = {"size": held.size, "root": held.root}
    if isinstance(found, Consistency):
        later = check_tree(envelope_file.read(file, kind="receipt"), roster)
        found.check(held, later)
        return {"signed_by": SERVER, "log": log, "goes_on": {"size": later.size, "root": later.root}}
    scanned = any_file.scan(file)
    found.check(scanned.sha256, scanned.metadata.client, held, roster)
    said = check_receipt(found.receipt, roster, proof)
    entry = found.entries[0]
    where = {"client": said.client, "file": entry.file, "seq": entry.seq, "kind": entry.kind, "round": entry.round}
    return {"signed_by": f"{said.client}, {SERVER}", "log": log, "recorded": where}


def _is_receipts(file: Path) -> bool:
    return file.name.endswith(Format.ENVELOPES) and envelope_file.read(file).metadata.kind == "receipt"


def _leaves(log: Path | None, head: Path, held: TreeHead) -> list[bytes] | None:
    """Of the server's log, which must be the one that the tree head is of; None if it is not at hand."""
    place = Place.of(head)
    path = log or (receipt_log.log_of(place) if place is not None and place.is_server else None)
    if path is None or (log is None and not path.exists()):
        return None
    if not path.exists():
        raise InputError(f"no log of receipts at {path}.")
    leaves = receipt_log.read_leaves(path)
    if len(leaves) < held.size or merkle.root(leaves[: held.size]).hex() != held.root:
        raise VerificationError(
            f"{path} is not the log that the tree head of {head} is of: nothing can be proved by it."
        )
    return leaves


def _consistency(out: Path, held: TreeHead, later: TreeHead, leaves: list[bytes] | None) -> Consistency:
    if later.size < held.size:
        raise UsageError(
            f"the log has {held.size} heads in the tree head that is held, and {later.size} in the other: the held one "
            "is the later. Give them the other way round."
        )
    if leaves is None:
        raise IncompleteError(_NO_LOG)
    if len(leaves) < later.size or merkle.root(leaves[: later.size]).hex() != later.root:
        raise VerificationError("the log is not the one that the later tree head is of: the server keeps two.")
    return Consistency(out, held.size, later.size, merkle.consistency(leaves[: later.size], held.size))


def _inclusion(
    file: Path, out: Path, head: Path, held: TreeHead, leaves: list[bytes] | None, roster: Roster
) -> Inclusion:
    place = Place.of(file)
    if place is None or place.is_server:
        raise UsageError(f"{file} is in no client's outbox: what it is recorded in cannot be found.")
    book, sha256 = egress.read(place.ledger), any_file.scan(file).sha256
    entry = next((e for e in book.entries if (e.file, e.sha256) == (file.name, sha256)), None)
    if entry is None:
        raise VerificationError(f"{place.ledger} has no entry for {file.name} with these bytes.")
    given = sorted(_receipts(place, head, roster), key=lambda one: one.said.seq)
    enough = [one for one in given if one.said.seq >= entry.seq]
    for one in enough:
        check_head(one.said, book, one.path)
        nodes = one.nodes_in(held, leaves)
        if nodes is not None:
            entries = book.entries[entry.seq - 1 : one.said.seq]
            return Inclusion(out, entries, one.envelope, one.index, held.size, nodes)
    if not enough:
        raise IncompleteError(f"no receipt at hand covers entry {entry.seq} of {place.ledger}, which is {file.name}.")
    if all(one.index >= held.size for one in enough):
        raise IncompleteError(
            f"{file.name} was countersigned after the tree head of {head}, which has {held.size} heads: take a later "
            "one."
        )
    raise IncompleteError(_NO_LOG)


@dataclass(frozen=True)
class _Given:
    """A receipt of the client, and the tree that it came with."""

    path: Path
    envelope: Envelope
    said: Head
    tree: TreeHead

    @property
    def index(self) -> int:
        return int(self.tree.inclusion[self.said.client]["index"])

    def nodes_in(self, held: TreeHead, leaves: list[bytes] | None) -> list[bytes] | None:
        """The proof that it is in the tree that is held, if that has it and the means are there."""
        if self.index >= held.size:
            return None
        if leaves is not None:
            if leaves[self.index] != merkle.leaf_hash(self.envelope.payload):
                raise VerificationError(f"{self.path}: the server's log has another head in its place.")
            return merkle.inclusion(leaves[: held.size], self.index)
        if (self.tree.size, self.tree.root) != (held.size, held.root):
            return None
        return [bytes.fromhex(node) for node in self.tree.inclusion[self.said.client]["proof"]]


def _receipts(place: Place, head: Path, roster: Roster) -> Iterator[_Given]:
    """What the client kept, and what is beside the tree head that is held."""
    beside = sorted(head.absolute().parent.glob(f"receipt*{Format.ENVELOPES}"))
    for found in read_receipts([*receipts_of(place), *beside]).read:
        tree = check_tree(found, roster)
        for envelope in found.heads:
            if head_of(envelope).client == place.base.name:
                yield _Given(found.path, envelope, check_receipt(envelope, roster, found.path), tree)
