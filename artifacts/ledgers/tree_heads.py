"""Signed tree heads: the server's log of all heads that it countersigned, as a Merkle tree (RFC 6962).

Each leaf is the statement of a client on its ledger, whole. A tree head comes with proofs: that the heads beside it are
in the tree, and that the tree goes on from the one before. Who holds tree heads of one server can hold them against
each other: two that contradict show that it keeps two histories, and its own signatures prove it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from artifacts.digests import is_sha256
from artifacts.identity.dsse import Envelope, EnvelopeError
from artifacts.identity.statements import LOG, TREE, on_log
from artifacts.ledgers import merkle

_FIELDS = {"federation", "round", "size", "previous", "consistency", "inclusion"}
_MOST_NODES = 64  # a proof of 2^64 leaves


@dataclass(frozen=True)
class TreeHead:
    """After `size` heads the log had this root; with `previous_size` of them it had the previous one."""

    federation: str
    round: int
    size: int
    root: str
    previous_size: int
    previous_root: str
    consistency: Sequence[str]
    inclusion: Mapping[str, Mapping[str, Any]]  # by client: the place of its head, and the proof

    def check(self, heads: Sequence[Envelope]) -> None:
        """Refuse a tree head that does not hold these heads, or does not go on from the one before."""
        before, now = bytes.fromhex(self.previous_root), bytes.fromhex(self.root)
        if not merkle.goes_on(self.previous_size, before, self.size, now, _nodes(self.consistency)):
            raise EnvelopeError("its tree head does not go on from the one before")
        for envelope in heads:
            said = envelope.statement["predicate"]
            if (said["federation"], said["round"]) != (self.federation, self.round):
                raise EnvelopeError("its tree head is of another federation or round than its heads")
            at = self.inclusion.get(said["client"])
            leaf = merkle.leaf_hash(envelope.payload)
            if at is None or not merkle.includes(leaf, at["index"], self.size, _nodes(at["proof"]), now):
                raise EnvelopeError(f"its tree head does not show that the head of {said['client']!r} is in the log")

    def claims(self, heads: Sequence[Envelope]) -> dict[tuple[str, int], str]:
        """What the server signed about its log: roots by size, leaves by place."""
        leaves = {
            ("leaf", int(self.inclusion[line.statement["predicate"]["client"]]["index"])): merkle.leaf_hash(
                line.payload
            ).hex()
            for line in heads
        }
        return {("root", self.size): self.root, ("root", self.previous_size): self.previous_root, **leaves}


def tree_of(envelope: Envelope) -> TreeHead:
    """What a tree head says; `EnvelopeError` where it is none, or not spelt as we spell it."""
    statement = envelope.statement
    said, subject = statement["predicate"], statement["subject"][0]
    if statement["predicateType"] != TREE or said.keys() != _FIELDS or subject["name"] != LOG:
        raise EnvelopeError("its statement is not on the log of receipts")
    before, places = said["previous"], said["inclusion"]
    if not (
        isinstance(said["federation"], str)
        and all(type(said[name]) is int for name in ("round", "size"))
        and isinstance(before, dict)
        and before.keys() == {"size", "root"}
        and type(before["size"]) is int
        and is_sha256(before["root"])
        and 0 <= before["size"] < said["size"]
        and _is_proof(said["consistency"])
        and isinstance(places, dict)
        and all(map(_is_place, places.values()))
    ):
        raise EnvelopeError("its statement on the log of receipts has a malformed field")
    return TreeHead(
        said["federation"], said["round"], said["size"], subject["digest"]["sha256"], before["size"], before["root"],
        said["consistency"], places,
    )  # fmt: skip


def grown(leaves: Sequence[bytes], placed: Mapping[str, int], *, federation: str, round: int) -> Envelope:
    """The tree head after these heads, by client and place in the log, were entered; not signed yet.

    It follows from the log and the heads alone: made again after an interruption, it is the same.
    """
    size, before = max(placed.values()) + 1, min(placed.values())
    now = leaves[:size]
    proofs = {
        "previous": {"size": before, "root": merkle.root(leaves[:before]).hex()},
        "consistency": _texts(merkle.consistency(now, before)),
        "inclusion": {
            client: {"index": index, "proof": _texts(merkle.inclusion(now, index))} for client, index in placed.items()
        },
    }
    return on_log(merkle.root(now).hex(), size, federation=federation, round=round, proofs=proofs)


def _is_place(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"index", "proof"}
        and type(value["index"]) is int
        and _is_proof(value["proof"])
    )


def _is_proof(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= _MOST_NODES and all(map(is_sha256, value))


def _nodes(proof: Sequence[str]) -> list[bytes]:
    return [bytes.fromhex(text) for text in proof]


def _texts(proof: Sequence[bytes]) -> list[str]:
    return [node.hex() for node in proof]
