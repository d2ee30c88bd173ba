"""The server's log of the heads that it countersigned, in the order in which it did: the leaves of its Merkle tree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from artifacts.digests import is_sha256
from artifacts.identity.dsse import Envelope
from artifacts.ledgers import chain, merkle
from artifacts.places import Place

_FIELDS = {"seq", "previous", "leaf"}


def log_of(server: Place) -> Path:
    return server.private / "receipts.jsonl"


def enter(path: Path, heads: Mapping[str, Envelope]) -> tuple[list[bytes], dict[str, int]]:
    """Enter the clients' heads, those that are not there yet; all leaves, and the place of each head by client."""
    with chain.locked(path, _is_entry) as log:
        found = [fields["leaf"] for fields in log.read().entries]
        placed = {}
        for client in sorted(heads):
            leaf = merkle.leaf_hash(heads[client].payload).hex()
            if leaf not in found:
                log.append({"leaf": leaf})
                found.append(leaf)
            placed[client] = found.index(leaf)
    return [bytes.fromhex(leaf) for leaf in found], placed


def read_leaves(path: Path) -> list[bytes]:
    """In the order of the log; its chain is checked."""
    return [bytes.fromhex(fields["leaf"]) for fields in chain.read(path, _is_entry).entries]


def _is_entry(fields: dict[str, Any]) -> bool:
    return fields.keys() == _FIELDS and is_sha256(fields["leaf"])
