"""What may happen to the clients' rows once a scheme has divided them: some are mixed, some are held out.

Both keep a disjoint cover: every row still belongs to one client, and no client loses its last one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from stages.data.schemes import Rows


def mix(parts: Sequence[Rows], fraction: float, rng: Generator) -> list[Rows]:
    """Pool a fraction p of every client's rows, shuffle them, and deal each client as many as it gave.

    Fedssyn, A.3.1: `n_i·p` rows drawn at random from each client go into one dataset, which is shuffled and dealt out
    so that each client has `n_i·p` shuffled rows and `n_i·(1−p)` of its own (Fig. 1c). There all n_i are equal; here
    sizes stay as the scheme drew them. Real rows change hands, so this is for simulations alone.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"the fraction to mix must be from 0 to 1, found {fraction}")
    shuffled = [rng.permutation(rows) for rows in parts]
    given = [_share(len(rows), fraction) for rows in parts]
    pool = rng.permutation(np.concatenate([rows[:count] for rows, count in zip(shuffled, given, strict=True)]))
    dealt = np.split(pool, np.cumsum(given)[:-1])
    own = (rows[count:] for rows, count in zip(shuffled, given, strict=True))
    return [np.sort(np.concatenate(both)).astype(np.int64) for both in zip(own, dealt, strict=True)]


def hold_out(rows: Rows, fraction: float, rng: Generator) -> tuple[Rows, Rows]:
    """Rows to train on and rows to hold out, at random. One at least is trained on; of very few none is held out."""
    if not 0 <= fraction < 1:
        raise ValueError(f"the fraction to hold out must be 0 or more and below 1, found {fraction}")
    count = min(_share(len(rows), fraction), len(rows) - 1)
    kept, held_out = np.split(rng.permutation(rows), [len(rows) - count])
    return np.sort(kept), np.sort(held_out)


def _share(count: int, fraction: float) -> int:
    """The nearest whole number, halves upwards: for a tenth, five rows are the fewest of which one is taken."""
    return int(count * fraction + 0.5)
