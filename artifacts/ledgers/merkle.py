"""The Merkle tree of RFC 6962 (Sec. 2.1): its root, and proofs that it holds a leaf or goes on from a smaller one.

Free of files and signatures. Leaves are given as their hashes: `leaf_hash` of what they stand for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

EMPTY = hashlib.sha256(b"").digest()


def leaf_hash(data: bytes) -> bytes:
    return hashlib.sha256(b"\0" + data).digest()


def root(leaves: Sequence[bytes]) -> bytes:
    """MTH of these leaf hashes; that of no leaves is the hash of nothing."""
    if len(leaves) < 2:
        return leaves[0] if leaves else EMPTY
    k = _split(len(leaves))
    return _node(root(leaves[:k]), root(leaves[k:]))


def inclusion(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """PATH(m, D[n]): the nodes that lead from the leaf to the root, the nearest first."""
    if not 0 <= index < len(leaves):
        raise ValueError(f"there is no leaf {index} among {len(leaves)}")
    if len(leaves) == 1:
        return []
    k = _split(len(leaves))
    if index < k:
        return [*inclusion(leaves[:k], index), root(leaves[k:])]
    return [*inclusion(leaves[k:], index - k), root(leaves[:k])]


def consistency(leaves: Sequence[bytes], size: int) -> list[bytes]:
    """PROOF(m, D[n]): what shows that the tree of the first `size` leaves is the beginning of this one."""
    if not 0 <= size <= len(leaves):
        raise ValueError(f"a tree of {len(leaves)} leaves does not go on from one of {size}")
    return _subproof(leaves, size, whole=True) if size else []


def _subproof(leaves: Sequence[bytes], size: int, *, whole: bool) -> list[bytes]:
    if size == len(leaves):
        return [] if whole else [root(leaves)]
    k = _split(len(leaves))
    if size <= k:
        return [*_subproof(leaves[:k], size, whole=whole), root(leaves[k:])]
    return [*_subproof(leaves[k:], size - k, whole=False), root(leaves[:k])]


def includes(leaf: bytes, index: int, size: int, proof: Sequence[bytes], expected: bytes) -> bool:
    """Whether the tree of `size` leaves with this root has the leaf at this place."""
    if not 0 <= index < size or len(leaf) != len(EMPTY):
        return False
    try:
        return _climb(leaf, index, size, list(proof)) == expected
    except IndexError:
        return False


def _climb(leaf: bytes, index: int, size: int, proof: list[bytes]) -> bytes | None:
    """The root that a proof leads to; None if it is too long."""
    if size == 1:
        return leaf if not proof else None
    k, sibling = _split(size), proof.pop()
    inner = _climb(leaf, index, k, proof) if index < k else _climb(leaf, index - k, size - k, proof)
    if inner is None:
        return None
    return _node(inner, sibling) if index < k else _node(sibling, inner)


def goes_on(size: int, earlier: bytes, new_size: int, later: bytes, proof: Sequence[bytes]) -> bool:
    """Whether the tree with the root `later` begins with the one with the root `earlier`.

    Every tree goes on from the empty one; RFC 6962 has no proof of that, and none is needed.
    """
    if not 0 <= size <= new_size:
        return False
    if size == 0:
        return earlier == EMPTY and not proof and (new_size > 0 or later == EMPTY)
    try:
        return _both(size, new_size, list(proof), earlier, whole=True) == (earlier, later)
    except (IndexError, ValueError):
        return False


def _both(size: int, new_size: int, proof: list[bytes], earlier: bytes, *, whole: bool) -> tuple[bytes, bytes]:
    """The two roots that a proof leads to, taken apart as `_subproof` made it; `ValueError` if it is too long."""
    if size == new_size:
        node = earlier if whole else proof.pop()
        if proof:
            raise ValueError("more nodes than it needs")
        return node, node
    k, sibling = _split(new_size), proof.pop()
    if size <= k:
        old, new = _both(size, k, proof, earlier, whole=whole)
        return old, _node(new, sibling)
    old, new = _both(size - k, new_size - k, proof, earlier, whole=False)
    return _node(sibling, old), _node(sibling, new)


def _split(size: int) -> int:
    """The largest power of two below the size."""
    return 1 << ((size - 1).bit_length() - 1)


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()
