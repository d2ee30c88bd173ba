"""Proofs as files, for an auditor who holds one signed tree head: that a file is in the log, that the log goes on.

A file is in the log by four steps: its digest is that of a ledger entry; the entries after it lead to a head of the
ledger; client and server signed that head; its statement is a leaf of the tree, by RFC 6962's inclusion proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from artifacts import limits
from artifacts.digests import canonical_json, is_sha256
from artifacts.errors import InputError, VerificationError
from artifacts.formats.envelope_file import head_of
from artifacts.formats.plain_data import parse_json
from artifacts.identity import dsse
from artifacts.identity.dsse import Envelope, EnvelopeError
from artifacts.identity.roster import Roster
from artifacts.ledgers import egress, merkle
from artifacts.ledgers.egress import Entry
from artifacts.ledgers.receipts import check_receipt
from artifacts.ledgers.tree_heads import TreeHead
from artifacts.limits import LimitError
from artifacts.writing import atomic

_SCHEMA = "fedsynth.proof/1"
_MOST_NODES = 64  # a proof of 2^64 leaves


@dataclass(frozen=True)
class Inclusion:
    """The entry of a file and those after it, up to the head that was countersigned; its place in the log."""

    path: Path
    entries: Sequence[Entry]
    receipt: Envelope
    index: int
    size: int
    nodes: Sequence[bytes]

    def check(self, sha256: str, client: str | None, tree: TreeHead, roster: Roster) -> None:
        """Refuse it unless the client entered a file with this digest, and the log of this tree head holds that."""
        said = check_receipt(self.receipt, roster, self.path)
        book = egress.excerpt([asdict(entry) for entry in self.entries])
        first, last = book.entries[0], book.entries[-1]
        if first.sha256 != sha256:
            raise VerificationError(f"{self.path} is a proof of another file: {first.file}, {first.sha256}.")
        if client is not None and client != said.client:
            raise VerificationError(f"{self.path}: the file is of {client!r}, and the ledger of {said.client!r}.")
        if (book.head, last.seq) != (said.head, said.seq):
            raise VerificationError(f"{self.path}: its entries do not lead to the head that was countersigned.")
        leaf, root = merkle.leaf_hash(self.receipt.payload), bytes.fromhex(tree.root)
        if self.size != tree.size or not merkle.includes(leaf, self.index, tree.size, self.nodes, root):
            raise VerificationError(
                f"{self.path} does not lead to this tree head, of {tree.size} heads. (The proof is for {self.size}: a "
                "proof is made for one tree head.)"
            )

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": _SCHEMA, "what": "inclusion", "entries": [asdict(entry) for entry in self.entries],
            "receipt": parse_json(self.receipt.line()), "index": self.index, "size": self.size,
            "nodes": [node.hex() for node in self.nodes],
        }  # fmt: skip


@dataclass(frozen=True)
class Consistency:
    """That the log of `new_size` heads goes on from that of `size`."""

    path: Path
    size: int
    new_size: int
    nodes: Sequence[bytes]

    def check(self, held: TreeHead, later: TreeHead) -> None:
        sizes = (self.size, self.new_size) == (held.size, later.size)
        roots = bytes.fromhex(held.root), bytes.fromhex(later.root)
        if not sizes or not merkle.goes_on(held.size, roots[0], later.size, roots[1], self.nodes):
            raise VerificationError(
                f"{self.path} does not show that the log of {later.size} heads goes on from the {held.size} of the "
                f"tree head that is held. (It is for {self.size} and {self.new_size}.) Ask the server for another; if "
                "it has none, it shows two histories."
            )

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": _SCHEMA, "what": "consistency", "size": self.size, "new_size": self.new_size,
            "nodes": [node.hex() for node in self.nodes],
        }  # fmt: skip


def write(proof: Inclusion | Consistency, *, force: bool) -> None:
    atomic.write(proof.path, [(canonical_json(proof.to_json()) + "\n").encode()], force=force, custody="private")


def read(path: Path) -> Inclusion | Consistency:
    """Read one, spelt as `write` spells it."""
    try:
        data = limits.read_bytes(path, limits.ENVELOPES)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}. Check the path.") from error
    except LimitError as error:
        raise InputError(f"{path} is not a proof: {error}.") from error
    try:
        found = _parse(path, parse_json(data, canonical=True))
        if (canonical_json(found.to_json()) + "\n").encode() != data:
            raise ValueError("not in canonical form")
    except (ValueError, TypeError, KeyError, VerificationError, EnvelopeError) as error:
        raise InputError(f"{path} is not a proof as fedsynth writes it: {error}. Get it again.") from error
    return found


def _parse(path: Path, fields: Any) -> Inclusion | Consistency:
    if not isinstance(fields, dict) or fields.get("schema") != _SCHEMA:
        raise ValueError("it has another schema")
    nodes = fields["nodes"]
    if not (isinstance(nodes, list) and len(nodes) <= _MOST_NODES and all(map(is_sha256, nodes))):
        raise ValueError("its nodes are not digests")
    numbers = [fields[name] for name in (("index", "size") if "index" in fields else ("size", "new_size"))]
    if any(type(number) is not int or number < 0 for number in numbers):
        raise ValueError("a size in it is not a whole number")
    raw = [bytes.fromhex(node) for node in nodes]
    if fields["what"] == "consistency":
        return Consistency(path, fields["size"], fields["new_size"], raw)
    if not isinstance(fields["entries"], list):
        raise ValueError("it has no entries")
    receipt = dsse.parse(canonical_json(fields["receipt"]).encode())
    head_of(receipt)
    return Inclusion(path, egress.excerpt(fields["entries"]).entries, receipt, fields["index"], fields["size"], raw)
