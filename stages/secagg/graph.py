"""Who shares secrets and masks with whom, where not everybody does with everybody (Bell et al. 2020, Sec. 4).

Each client draws k others by itself, after the list of keys is fixed, so that no server can choose them. These hold the
shares of its secrets, any t of them are enough; and it has a pair mask with each of them and with each that drew it.
With n clients, of whom c side with the server and d drop out, k is the smallest, and t for it the largest, such that

  (1) n · P[H(c) ≥ t − g + 2] ≤ 2^−40    A client drew so few colluders that its secrets do not come out, and that it
                                         hides among g honest clients, even if the server chooses who drops.
  (2) n · P[H(d) > k − t] ≤ 2^−30        Of those it drew t stay: the sum can be uncovered.
  (3) Σ_s C(m, s) · a(m − s)^s · a(s)^(m − s) ≤ 2^−40, s = 1 … m/2
                                         The honest clients that stay, m = n − c − d of them, are one connected group:
                                         nothing but the sum of all comes out.

H(c) is how many of c are among k drawn from n − 1 (hypergeometric), a(j) = C(n − 1 − j, k)/C(n − 1, k) that one client
draws none of j, and g = 10. (1) and (2) are events of Bell et al., by the same union over clients, with their 40 and 30
bits. Their 2t > k + c is not needed, because all clients sign one survivor list, and two lists would need 2T ≤ n + c.
(3) counts with clients that drop by chance. A server that chose by the graph could part it; but every honest client
checks that t of those it drew stay, so that no part has fewer than g.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

SECRECY_BITS, SUCCESS_BITS = 40, 30
LEAST_GROUP = 10


@dataclass(frozen=True)
class Neighbourhood:
    """`neighbours` that a client draws (k), and how many of their shares give its secrets (t)."""

    neighbours: int
    threshold: int


@lru_cache(maxsize=64)
def neighbourhood(clients: int, colluders: int, dropouts: int) -> Neighbourhood | None:
    """The smallest that is sound; None where that is no less than everybody with everybody.

    `ValueError` where so many colluders could have two survivor lists signed.
    """
    if 2 * (clients - dropouts) <= clients + colluders:
        raise ValueError(
            f"with {colluders} of {clients} clients at the server's side the threshold must be above "
            f"{(clients + colluders) // 2}, found {clients - dropouts}"
        )
    for neighbours in range(LEAST_GROUP, clients - 1):
        stay = range(neighbours, 0, -1)
        most = next((t for t in stay if too_few_left(clients, dropouts, neighbours, t) <= -SUCCESS_BITS), 0)
        if (
            most >= LEAST_GROUP
            and too_many_colluders(clients, colluders, neighbours, most) <= -SECRECY_BITS
            and in_parts(clients, colluders + dropouts, neighbours) <= -SECRECY_BITS
        ):
            return Neighbourhood(neighbours, most)
    return None


def too_many_colluders(clients: int, colluders: int, neighbours: int, threshold: int) -> float:
    """log₂ of the bound (1)."""
    return _log2(clients * _tail(clients - 1, colluders, neighbours, threshold - LEAST_GROUP + 2))


def too_few_left(clients: int, dropouts: int, neighbours: int, threshold: int) -> float:
    """log₂ of the bound (2)."""
    return _log2(clients * _tail(clients - 1, dropouts, neighbours, neighbours - threshold + 1))


def in_parts(clients: int, gone: int, neighbours: int) -> float:
    """log₂ of the bound (3); `gone` are colluders and dropouts together."""
    left = clients - gone

    def misses(others: int) -> float:
        return _log2_choose(clients - 1 - others, neighbours) - _log2_choose(clients - 1, neighbours)

    terms = [
        _log2_choose(left, part) + part * misses(left - part) + (left - part) * misses(part)
        for part in range(1, left // 2 + 1)
    ]
    largest = max(terms, default=-math.inf)
    if largest == -math.inf:
        return -math.inf
    return largest + math.log2(sum(2.0 ** (term - largest) for term in terms))


def drawn(others: Sequence[str], neighbours: int) -> list[str]:
    """So many of the others, from the operating system's random numbers, in order."""
    return sorted(secrets.SystemRandom().sample(list(others), neighbours))


def _tail(population: int, marked: int, taken: int, least: int) -> float:
    """P[at least `least` of the marked ones are among those taken], exact but for the last division."""
    tails = _tails(population, marked, taken)
    return 1.0 if least <= 0 else tails[least] if least < len(tails) else 0.0


@lru_cache(maxsize=4)
def _tails(population: int, marked: int, taken: int) -> list[float]:
    ways = [math.comb(marked, hits) * math.comb(population - marked, taken - hits) for hits in range(taken + 1)]
    return [sums / math.comb(population, taken) for sums in reversed(list(accumulate(reversed(ways))))]


def _log2(value: float) -> float:
    return math.log2(value) if value > 0 else -math.inf


def _log2_choose(population: int, taken: int) -> float:
    if taken > population:
        return -math.inf
    return (math.lgamma(population + 1) - math.lgamma(taken + 1) - math.lgamma(population - taken + 1)) / math.log(2)
