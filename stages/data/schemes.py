"""How a simulation divides one dataset among clients: from rows to one list of rows for each client.

Every scheme returns a disjoint cover (each row belongs to exactly one client) in which no client is empty, and
raises `ValueError` where that cannot be had. The rows of a client are in ascending order. Names and meanings
follow the literature and flwr-datasets; where those leave rows out or clients empty, a docstring says what is done
instead.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from stages.data.images import LabelledImages
from stages.data.params import PartitionParams

Rows = NDArray[np.int64]
_GROUP = 10  # Lin et al. divide their clients in tens
_MOST_DRAWS = 20_000


def divide(data: LabelledImages, params: PartitionParams, rng: Generator) -> list[Rows]:
    """The rows of each client under the scheme that `params` names."""
    if params.scheme == "natural" or params.scheme == "attributes":
        if data.ids is None:
            raise ValueError("it needs a source that says whom each row belongs to: Parquet with such columns")
        return natural(data.ids, params.clients, rng)
    assert params.clients is not None  # PartitionParams allows that with the two above only
    match params.scheme:
        case "iid":
            return iid(len(data), params.clients, rng)
        case "dirichlet":
            assert params.alpha is not None  # here and below: PartitionParams fills in its default
            divided = dirichlet_of_equal_sizes if params.sizes == "equal" else dirichlet
            return divided(data.labels, params.clients, params.alpha, rng)
        case "classes":
            assert params.classes_per_client is not None
            return classes(data.labels, params.clients, params.classes_per_client, rng)
        case "shards":
            assert params.shards_per_client is not None
            return shards(data.labels, params.clients, params.shards_per_client, rng)
        case "linear":
            return linear(len(data), params.clients, rng)
        case "square":
            return square(len(data), params.clients, rng)
        case "exponential":
            return exponential(len(data), params.clients, rng)


def iid(num_rows: int, num_clients: int, rng: Generator) -> list[Rows]:
    """Rows at random, sizes equal up to one."""
    _check_enough(num_rows, num_clients)
    return _sorted(np.array_split(rng.permutation(num_rows), num_clients))


def dirichlet(labels: Rows, num_clients: int, alpha: float, rng: Generator) -> list[Rows]:
    """Each class is spread over the clients in proportions drawn from Dir(α, …, α); sizes stay as drawn.

    Small α gives each class to few clients, large α approaches `iid`. Hsu et al. 2019 (arXiv:1909.06335), in the
    form of Yurochkin et al. 2019 and Li et al. 2022, which draws one vector for each class. A client that was left
    empty takes one random row from the client that is largest at that moment, and nothing else is touched.
    """
    if not alpha > 0:
        raise ValueError(f"alpha must be above 0, found {alpha}")
    _check_enough(len(labels), num_clients)
    parts: list[list[Rows]] = [[] for _ in range(num_clients)]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(num_clients, alpha))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
        # In a fresh order for each class, or the same clients would gain by the rounding every time.
        for client, piece in zip(rng.permutation(num_clients), np.split(rows, cuts), strict=True):
            parts[client].append(piece)
    clients = [np.concatenate(part) for part in parts]
    for k in range(num_clients):
        if len(clients[k]) == 0:
            donor = max(range(num_clients), key=lambda j: len(clients[j]))
            gift = rng.integers(len(clients[donor]))
            clients[k] = clients[donor][[gift]]
            clients[donor] = np.delete(clients[donor], gift)
    return _sorted(clients)


def dirichlet_of_equal_sizes(labels: Rows, num_clients: int, alpha: float, rng: Generator) -> list[Rows]:
    """Lin et al. 2020 (arXiv:2006.07242), whom Fedssyn follows: Dirichlet, with clients of nearly the same size.

    Class by class as in `dirichlet`, save that a client that has its equal share of the rows gets no more of them; all
    is drawn again until every client has at least half of that share. More than ten clients are divided in groups of
    about ten, each with its part of the rows: of a hundred at once, the drawing again would hardly ever end.
    """
    if not alpha > 0:
        raise ValueError(f"alpha must be above 0, found {alpha}")
    _check_enough(len(labels), num_clients)
    groups = np.array_split(np.arange(num_clients), -(-num_clients // _GROUP))
    cuts = np.rint(np.cumsum([len(group) for group in groups])[:-1] * len(labels) / num_clients).astype(np.int64)
    parts = []
    for group, rows in zip(groups, np.split(rng.permutation(len(labels)), cuts), strict=True):
        parts += [rows[part] for part in _nearly_equal(labels[rows], len(group), alpha, rng)]
    return _sorted(parts)


def _nearly_equal(labels: Rows, num_clients: int, alpha: float, rng: Generator) -> list[Rows]:
    share = len(labels) / num_clients
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    for _ in range(_MOST_DRAWS):
        sizes, cuts = np.zeros(num_clients, dtype=np.int64), []
        for rows in members:
            shares = rng.dirichlet(np.full(num_clients, alpha)) * (sizes < share)
            if shares.sum() == 0:  # all of the draw fell to clients that have their share
                break
            cuts.append(np.rint(np.cumsum(shares / shares.sum())[:-1] * len(rows)).astype(np.int64))
            sizes += np.diff(cuts[-1], prepend=0, append=len(rows))
        if len(cuts) == len(members) and sizes.min() >= max(1, int(share / 2)):
            pieces = [np.split(rng.permutation(rows), cut) for rows, cut in zip(members, cuts, strict=True)]
            return [np.concatenate([piece[client] for piece in pieces]) for client in range(num_clients)]
    raise ValueError(
        f"of {_MOST_DRAWS} draws none gave each of {num_clients} clients half of its share of {len(labels)} rows; ask "
        "for fewer clients, a larger --alpha or --sizes drawn"
    )


def classes(labels: Rows, num_clients: int, classes_per_client: int, rng: Generator) -> list[Rows]:
    """Each client gets K distinct classes; the clients that share a class split its rows evenly.

    With C classes present and N clients: where N·K ≥ C each client has exactly K classes, and the number of clients
    of a class differs by at most one between classes, so that at N·K = C they are disjoint. Where N·K < C the
    clients are disjoint too, but K each would leave classes to nobody; since every row must have its client, all C
    classes are dealt out, K or more to each client, as evenly as possible.
    """
    present = np.unique(labels)
    if classes_per_client < 1 or classes_per_client > len(present):
        raise ValueError(
            f"classes per client must be 1 to {len(present)}, the classes in the data, found {classes_per_client}"
        )
    _check_enough(len(labels), num_clients)
    places = max(num_clients * classes_per_client, len(present))
    hands = _spread(places, num_clients)
    quotas = _spread(places, len(present))
    quotas = quotas[rng.permutation(len(present))]
    holders: list[list[int]] = [[] for _ in present]
    for client in rng.permutation(num_clients):
        # Taking the classes with the most places left never gets stuck (Gale and Ryser); ties are broken at random.
        order = rng.permutation(len(present))
        chosen = order[np.argsort(-quotas[order], kind="stable")][: hands[client]]
        quotas[chosen] -= 1
        for position in chosen:
            holders[position].append(int(client))
    parts: list[list[Rows]] = [[] for _ in range(num_clients)]
    for label, sharers in zip(present, holders, strict=True):
        rows = rng.permutation(np.flatnonzero(labels == label))
        if len(rows) < len(sharers):
            raise ValueError(
                f"class {label} has {len(rows)} rows for the {len(sharers)} clients that share it; "
                "ask for fewer clients or fewer classes per client"
            )
        for client, piece in zip(rng.permutation(sharers), np.array_split(rows, len(sharers)), strict=True):
            parts[client].append(piece)
    return _sorted([np.concatenate(part) for part in parts])


def shards(labels: Rows, num_clients: int, shards_per_client: int, rng: Generator) -> list[Rows]:
    """McMahan et al. 2017, section 3: sort by label, cut into N·S shards equal up to one row, deal each client S.

    A shard may straddle two classes, so that a client has S classes mostly, and a few more at the seams.
    """
    if shards_per_client < 1:
        raise ValueError(f"shards per client must be at least 1, found {shards_per_client}")
    num_shards = num_clients * shards_per_client
    _check_enough(len(labels), num_clients)
    if len(labels) < num_shards:
        raise ValueError(
            f"{len(labels)} rows cannot be cut into {num_clients} × {shards_per_client} shards; "
            "ask for fewer clients or fewer shards per client"
        )
    # Shuffled before the stable sort: within a class the order of the file must not decide who shares a shard.
    shuffled = rng.permutation(len(labels))
    pieces = np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], num_shards)
    deal = rng.permutation(num_shards).reshape(num_clients, shards_per_client)
    return _sorted([np.concatenate([pieces[i] for i in hand]) for hand in deal])


def linear(num_rows: int, num_clients: int, rng: Generator) -> list[Rows]:
    """Rows at random; the size of client k = 1…N is proportional to k."""
    return _by_size(range(1, num_clients + 1), num_rows, "linear", rng)


def square(num_rows: int, num_clients: int, rng: Generator) -> list[Rows]:
    """Rows at random; the size of client k = 1…N is proportional to k²."""
    return _by_size([k * k for k in range(1, num_clients + 1)], num_rows, "square", rng)


def exponential(num_rows: int, num_clients: int, rng: Generator) -> list[Rows]:
    """Rows at random; the size of client k = 1…N is proportional to exp(k), so the largest has 63% of all rows."""
    # exp(k − N) has the same proportions and cannot overflow.
    weights = [math.exp(k - num_clients) for k in range(1, num_clients + 1)]
    return _by_size(weights, num_rows, "exponential", rng)


def natural(ids: Sequence[str], num_clients: int | None, rng: Generator) -> list[Rows]:
    """One client for each id, in the order in which the ids first appear; or whole ids dealt out to N clients.

    An id is never split. Ids are dealt largest first, each to the client with the fewest rows so far (Graham's LPT
    rule: the largest client has at most 4/3 of the smallest possible maximum).
    """
    _check_enough(len(ids), 1)
    groups: dict[str, list[int]] = {}
    for row, name in enumerate(ids):
        groups.setdefault(name, []).append(row)
    if num_clients is None:
        return [np.array(rows, dtype=np.int64) for rows in groups.values()]
    if not 1 <= num_clients <= len(groups):
        raise ValueError(f"{len(groups)} different ids cannot be divided whole among {num_clients} clients")
    members = list(groups.values())
    # Shuffled before the stable sort: ids of equal size are dealt in random order.
    order = sorted(rng.permutation(len(members)), key=lambda i: -len(members[i]))
    loads = [(0, k) for k in range(num_clients)]
    parts: list[list[int]] = [[] for _ in range(num_clients)]
    for i in order:
        load, k = heapq.heappop(loads)
        parts[k].extend(members[i])
        heapq.heappush(loads, (load + len(members[i]), k))
    return _sorted([np.array(part, dtype=np.int64) for part in parts])


def split_test(num_rows: int, fraction: float, rng: Generator) -> tuple[Rows, Rows]:
    """Rows for training and for testing, at random, for a source that has no test split of its own."""
    num_test = round(num_rows * fraction)
    if not 0 < num_test < num_rows:
        raise ValueError(f"a test fraction of {fraction} leaves nothing on one side of {num_rows} rows")
    train, test = _sorted(np.split(rng.permutation(num_rows), [num_rows - num_test]))
    return train, test


def _by_size(weights: Sequence[int] | Sequence[float], num_rows: int, name: str, rng: Generator) -> list[Rows]:
    """Sizes proportional to ascending weights, rounded down; the largest takes the rest, as in flwr-datasets."""
    _check_enough(num_rows, len(weights))
    total = sum(weights)
    sizes = [int(weight * num_rows // total) for weight in weights]
    if sizes[0] == 0:
        raise ValueError(
            f"{name} sizes over {len(weights)} clients give the smallest less than one of the {num_rows} rows; "
            "ask for fewer clients"
        )
    return _sorted(np.split(rng.permutation(num_rows), np.cumsum(sizes)[:-1]))


def _spread(total: int, count: int) -> Rows:
    """`total` as a sum of `count` integers that differ by at most one."""
    return np.full(count, total // count, dtype=np.int64) + (np.arange(count) < total % count)


def _check_enough(num_rows: int, num_clients: int) -> None:
    if num_clients < 1:
        raise ValueError(f"the number of clients must be at least 1, found {num_clients}")
    if num_rows < num_clients:
        raise ValueError(f"{num_rows} rows cannot be divided among {num_clients} clients: one would be empty")


def _sorted(parts: Sequence[NDArray[np.int64]]) -> list[Rows]:
    return [np.sort(part).astype(np.int64) for part in parts]
