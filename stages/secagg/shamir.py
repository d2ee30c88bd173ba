"""Shamir's secret sharing (1979): any `threshold` shares give the secret, fewer say nothing about it.

A secret is a number below the Mersenne prime 2⁵²¹ − 1, the constant term of a random polynomial of degree t − 1; the
share at point x > 0 is its value there. Python's whole numbers do not take constant time: timing is not covered.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence

PRIME = 2**521 - 1
SHARE_BYTES = 66


def split(
    secret: int, threshold: int, points: Sequence[int], draw: Callable[[int], int] = secrets.randbelow
) -> list[int]:
    """The shares at `points`. `draw(n)` gives a uniform number below n; tests alone replace the system's."""
    if not 0 <= secret < PRIME:
        raise ValueError("a secret must be a number from 0 to 2⁵²¹ − 2")
    if not 1 <= threshold <= len(points):
        raise ValueError(f"the threshold must lie from 1 to {len(points)}, found {threshold}")
    _check_points(points)
    coefficients = [secret, *(draw(PRIME) for _ in range(threshold - 1))]
    shares = []
    for x in points:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * x + coefficient) % PRIME
        shares.append(value)
    return shares


def weights_at_zero(points: Sequence[int]) -> list[int]:
    """Lagrange: the secret is Σ weight·share. The weights depend on the points alone, and serve many secrets."""
    _check_points(points)
    weights = []
    for x in points:
        above, below = 1, 1
        for other in points:
            if other != x:
                above = above * other % PRIME
                below = below * (other - x) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights


def join(shares: Mapping[int, int]) -> int:
    """The secret from shares by point. With fewer than the threshold it is some other number, and nothing tells so."""
    points = list(shares)
    return sum(w * shares[x] for w, x in zip(weights_at_zero(points), points, strict=True)) % PRIME


def to_bytes(share: int) -> bytes:
    return share.to_bytes(SHARE_BYTES, "big")


def from_bytes(data: bytes) -> int:
    """A share as it is in a file; `ValueError` if it is none."""
    share = int.from_bytes(data, "big")
    if len(data) != SHARE_BYTES or share >= PRIME:
        raise ValueError("not a share")
    return share


def _check_points(points: Sequence[int]) -> None:
    if len(set(points)) != len(points) or not all(0 < x < PRIME for x in points):
        raise ValueError("the points of shares must differ and lie above 0")
