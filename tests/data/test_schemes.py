"""Every scheme is a disjoint cover without empty clients, does what its name says, and refuses what it cannot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stages.data import schemes
from stages.data.images import LabelledImages
from stages.data.params import PartitionParams

label_lists = st.lists(st.integers(0, 7), min_size=1, max_size=150).map(lambda labels: np.array(labels, np.int64))
client_numbers = st.integers(1, 12)
seeds = st.integers(0, 2**32)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def assert_partition(parts, num_rows: int) -> None:
    assert all(len(part) > 0 for part in parts)
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(num_rows))


def equal(first, second) -> bool:
    return len(first) == len(second) and all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def sizes(parts) -> list[int]:
    return [len(part) for part in parts]


BY_LABELS = {
    "iid": lambda labels, clients, rng: schemes.iid(len(labels), clients, rng),
    "dirichlet 0.01": lambda labels, clients, rng: schemes.dirichlet(labels, clients, 0.01, rng),
    "dirichlet 1": lambda labels, clients, rng: schemes.dirichlet(labels, clients, 1.0, rng),
    "classes 1": lambda labels, clients, rng: schemes.classes(labels, clients, 1, rng),
    "classes 3": lambda labels, clients, rng: schemes.classes(labels, clients, 3, rng),
    "shards": lambda labels, clients, rng: schemes.shards(labels, clients, 2, rng),
    "linear": lambda labels, clients, rng: schemes.linear(len(labels), clients, rng),
    "square": lambda labels, clients, rng: schemes.square(len(labels), clients, rng),
    "exponential": lambda labels, clients, rng: schemes.exponential(len(labels), clients, rng),
    "natural": lambda labels, clients, rng: schemes.natural(list(map(str, labels)), clients, rng),
    "one client for each id": lambda labels, _, rng: schemes.natural(list(map(str, labels)), None, rng),
}
REFUSES_ONLY_TOO_FEW_ROWS = {"iid", "dirichlet 0.01", "dirichlet 1"}


@pytest.mark.parametrize("name", BY_LABELS)
@given(labels=label_lists, clients=client_numbers, seed=seeds)
def test_every_scheme_is_a_disjoint_cover_or_says_why_not(name, labels, clients, seed) -> None:
    scheme = BY_LABELS[name]
    try:
        parts = scheme(labels, clients, generator(seed))
    except ValueError as error:
        assert str(error)
        assert name not in REFUSES_ONLY_TOO_FEW_ROWS or len(labels) < clients
        return
    assert_partition(parts, len(labels))
    assert name == "one client for each id" or len(parts) == clients
    assert equal(parts, scheme(labels, clients, generator(seed)))


@pytest.mark.parametrize("name", sorted(BY_LABELS.keys() - {"one client for each id"}))
def test_another_seed_gives_another_partition(name) -> None:
    labels = np.repeat(np.arange(20), 20)
    first, second = (BY_LABELS[name](labels, 4, generator(seed)) for seed in (1, 2))
    assert not equal(first, second)


@pytest.mark.parametrize("name", sorted(BY_LABELS.keys() - {"one client for each id"}))
@pytest.mark.parametrize(("rows", "clients"), [(3, 4), (0, 1), (5, 0), (5, -1)])
def test_fewer_rows_than_clients_or_no_clients_are_refused(name, rows, clients) -> None:
    with pytest.raises(ValueError, match=r"clients|classes per client"):
        BY_LABELS[name](np.arange(rows), clients, generator())


@pytest.mark.parametrize("clients", [1, 4, 10, 23])
@pytest.mark.parametrize("alpha", [0.05, 0.5, 100.0])
def test_dirichlet_of_equal_sizes_gives_each_client_half_its_share_and_the_class_mix_of_dirichlet(
    clients, alpha
) -> None:
    labels = generator(9).permutation(np.repeat(np.arange(10), 60))
    parts = schemes.dirichlet_of_equal_sizes(labels, clients, alpha, generator(1))
    assert_partition(parts, 600)
    assert len(parts) == clients
    assert equal(parts, schemes.dirichlet_of_equal_sizes(labels, clients, alpha, generator(1)))
    # Of a group of about ten clients, with its part of the rows, a client's share is 600/N up to rounding.
    share = 600 / clients
    assert min(sizes(parts)) >= int(share / 2) - 1
    # Nobody who has the share gets more: one class, at most, came on top.
    assert max(sizes(parts)) < share + 60 + 1
    if clients > 1:
        held = np.mean([len(np.unique(labels[part])) for part in parts])
        assert held < 5 if alpha == 0.05 else held > 5


def test_of_few_rows_in_one_class_no_equal_sizes_are_drawn(monkeypatch) -> None:
    monkeypatch.setattr(schemes, "_MOST_DRAWS", 50)
    with pytest.raises(ValueError, match="half of its share of 30 rows; ask for fewer clients, a larger --alpha"):
        schemes.dirichlet_of_equal_sizes(np.zeros(30, np.int64), 10, 1e-6, generator())


def test_iid_sizes_differ_by_at_most_one() -> None:
    assert sorted(sizes(schemes.iid(11, 4, generator()))) == [2, 3, 3, 3]


# Sizes: rounded down, the rest to the largest.


@pytest.mark.parametrize(
    ("scheme", "rows", "expected"),
    [
        (schemes.linear, 10, [1, 2, 3, 4]),
        (schemes.linear, 13, [1, 2, 3, 7]),
        (schemes.square, 30, [1, 4, 9, 16]),
        (schemes.square, 60, [2, 8, 18, 32]),
        (schemes.exponential, 1000, [32, 87, 236, 645]),  # 3.21%, 8.71%, 23.69%, 64.39%
    ],
)
def test_sizes_by_hand(scheme, rows, expected) -> None:
    assert sizes(scheme(rows, 4, generator())) == expected


@pytest.mark.parametrize(
    ("scheme", "rows", "clients"),
    [(schemes.linear, 9, 4), (schemes.square, 29, 4), (schemes.exponential, 1437, 10), (schemes.exponential, 999, 800)],
)
def test_a_skew_that_leaves_the_smallest_client_empty_is_refused(scheme, rows, clients) -> None:
    with pytest.raises(ValueError, match=f"{clients} clients give the smallest less than one of the {rows} rows"):
        scheme(rows, clients, generator())


# Natural ids


def test_one_client_for_each_id_in_order_of_appearance() -> None:
    parts = schemes.natural(["b", "a", "b", "c", "a"], None, generator())
    assert [part.tolist() for part in parts] == [[0, 2], [1, 4], [3]]


def test_whole_ids_largest_first_to_the_emptiest_client() -> None:
    ids = list("aaaaabbbbcccdddeee")
    parts = schemes.natural(ids, 3, generator())
    # 5 | 4 | 3, then 3 to the third (6), then 3 to the second (7).
    assert sorted(sizes(parts)) == [5, 6, 7]


@given(ids=st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=80), clients=client_numbers, seed=seeds)
def test_an_id_is_never_split_and_the_load_is_within_grahams_bound(ids, clients, seed) -> None:
    assume(clients <= len(set(ids)))
    parts = schemes.natural(ids, clients, generator(seed))
    owners = [{ids[row] for row in part} for part in parts]
    assert sum(len(owner) for owner in owners) == len(set(ids))
    at_least = max(-(-len(ids) // clients), max(ids.count(name) for name in ids))
    # A lower bound of the best maximum, and LPT's guarantee before the 4/3: no more than the mean plus one id.
    assert max(sizes(parts)) <= at_least + max(ids.count(name) for name in ids)


def test_more_clients_than_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="2 different ids cannot be divided whole among 3 clients"):
        schemes.natural(["a", "b", "a", "b"], 3, generator())


# The test split, and the dispatch


@given(num_rows=st.integers(2, 500), fraction=st.floats(0.01, 0.99), seed=seeds)
def test_split_test_is_a_disjoint_cover_of_the_right_size(num_rows, fraction, seed) -> None:
    assume(0 < round(num_rows * fraction) < num_rows)
    train, test = schemes.split_test(num_rows, fraction, generator(seed))
    assert_partition([train, test], num_rows)
    assert len(test) == round(num_rows * fraction)


@pytest.mark.parametrize("fraction", [0.0, 0.001, 0.999, 1.0])
def test_split_test_refuses_an_empty_side(fraction) -> None:
    with pytest.raises(ValueError, match="leaves nothing on one side of 10 rows"):
        schemes.split_test(10, fraction, generator())


labels = np.repeat(np.arange(10), 30)
data = LabelledImages(
    np.zeros((300, 1, 2, 2), np.uint8), labels, tuple("0123456789"), tuple(str(row % 7) for row in range(300))
)


@pytest.mark.parametrize(
    ("options", "direct"),
    [
        ({"scheme": "iid"}, lambda rng: schemes.iid(300, 5, rng)),
        ({"scheme": "dirichlet"}, lambda rng: schemes.dirichlet(labels, 5, 0.5, rng)),
        ({"scheme": "dirichlet", "alpha": 0.1}, lambda rng: schemes.dirichlet(labels, 5, 0.1, rng)),
        (
            {"scheme": "dirichlet", "sizes": "equal"},
            lambda rng: schemes.dirichlet_of_equal_sizes(labels, 5, 0.5, rng),
        ),
        ({"scheme": "classes"}, lambda rng: schemes.classes(labels, 5, 2, rng)),
        ({"scheme": "classes", "classes_per_client": 4}, lambda rng: schemes.classes(labels, 5, 4, rng)),
        ({"scheme": "shards"}, lambda rng: schemes.shards(labels, 5, 2, rng)),
        ({"scheme": "shards", "shards_per_client": 3}, lambda rng: schemes.shards(labels, 5, 3, rng)),
        ({"scheme": "linear"}, lambda rng: schemes.linear(300, 5, rng)),
        ({"scheme": "square"}, lambda rng: schemes.square(300, 5, rng)),
        ({"scheme": "exponential"}, lambda rng: schemes.exponential(300, 5, rng)),
        ({"scheme": "natural", "id_column": "writer"}, lambda rng: schemes.natural(data.ids, 5, rng)),
    ],
)
def test_divide_calls_the_scheme_that_is_named(options, direct) -> None:
    params = PartitionParams(clients=5, **options)
    assert equal(schemes.divide(data, params, generator(3)), direct(generator(3)))


def test_divide_by_ids_without_a_number_of_clients() -> None:
    assert len(schemes.divide(data, PartitionParams(scheme="natural", id_column="writer"), generator())) == 7


def test_divide_by_ids_needs_ids() -> None:
    anonymous = LabelledImages(data.images, data.labels, data.class_names)
    with pytest.raises(ValueError, match="whom each row belongs to"):
        schemes.divide(anonymous, PartitionParams(scheme="natural", id_column="writer"), generator())
