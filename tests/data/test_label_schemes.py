"""The schemes that go by label: Dirichlet has the α it was given, classes and shards are dealt as their papers say."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stages.data import schemes


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def sizes(parts) -> list[int]:
    return [len(part) for part in parts]


# Dirichlet. For shares p ~ Dir(α, …, α) over N clients E[Σ p²] = (α + 1) / (Nα + 1): 1 when α → 0, 1/N when α → ∞.


def concentration(alpha: float, num_classes: int = 400) -> np.ndarray:
    """Σ p² of each class of 1000 rows, as divided among ten clients under `alpha`."""
    num_clients, rows_of_class = 10, 1000
    labels = np.repeat(np.arange(num_classes), rows_of_class)
    parts = schemes.dirichlet(labels, num_clients, alpha, generator(7))
    shares = np.stack([np.bincount(labels[part], minlength=num_classes) for part in parts]) / rows_of_class
    return (shares**2).sum(axis=0)


def deviations(observed: np.ndarray, alpha: float, num_clients: int = 10) -> float:
    """Standard errors between the mean concentration and what α predicts."""
    expected = (alpha + 1) / (num_clients * alpha + 1)
    return float(abs(observed.mean() - expected) / (observed.std() / np.sqrt(len(observed))))


@pytest.mark.parametrize("alpha", [0.1, 0.5, 3.0])
def test_dirichlet_shares_have_the_right_alpha_and_no_other(alpha) -> None:
    observed = concentration(alpha)
    assert deviations(observed, alpha) < 4
    assert deviations(observed, alpha * 2 / 3) > 6
    assert deviations(observed, alpha * 3 / 2) > 6


def test_small_alpha_concentrates_and_large_alpha_approaches_iid() -> None:
    assert concentration(0.001, num_classes=50).mean() > 0.95
    even = concentration(1e6, num_classes=50)
    assert even.max() < 0.1001


def test_no_client_is_favoured_by_rounding() -> None:
    # Shares are all but equal, 3.33 rows for each of 3 clients in every one of 3000 classes of 10 rows.
    labels = np.repeat(np.arange(3000), 10)
    found = np.array(sizes(schemes.dirichlet(labels, 3, 1e9, generator())))
    # The odd row goes to a random client: 3000 draws with probability 1/3 have a standard deviation of 26.
    assert np.abs(found - 10_000).max() < 5 * 26


def test_sizes_stay_as_drawn() -> None:
    found = sizes(schemes.dirichlet(np.repeat(np.arange(10), 1000), 10, 0.3, generator()))
    assert max(found) > 2 * min(found)


def test_an_empty_client_takes_one_row_from_the_largest_and_no_more() -> None:
    # One class at α → 0 goes to one client whole.
    found = sizes(schemes.dirichlet(np.zeros(100, np.int64), 5, 1e-6, generator()))
    assert sorted(found) == [1, 1, 1, 1, 96]


def test_as_many_clients_as_rows_gives_one_row_each() -> None:
    assert sizes(schemes.dirichlet(np.zeros(30, np.int64), 30, 0.01, generator())) == [1] * 30


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan")])
def test_alpha_must_be_positive(alpha) -> None:
    with pytest.raises(ValueError, match="alpha must be above 0"):
        schemes.dirichlet(np.zeros(10, np.int64), 2, alpha, generator())


# Classes


@given(
    num_classes=st.integers(1, 12),
    clients=st.integers(1, 12),
    per_client=st.integers(1, 12),
    rows=st.integers(12, 15),
    seed=st.integers(0, 2**32),
)
def test_each_client_has_its_classes_and_sharers_are_even(num_classes, clients, per_client, rows, seed) -> None:
    assume(per_client <= num_classes)
    labels = generator(seed).permutation(np.repeat(np.arange(num_classes) * 3, rows))
    parts = schemes.classes(labels, clients, per_client, generator(seed))
    counts = np.stack([np.bincount(labels[part], minlength=num_classes * 3)[::3] for part in parts])
    hands = (counts > 0).sum(axis=1)
    sharers = (counts > 0).sum(axis=0)
    if clients * per_client >= num_classes:
        assert (hands == per_client).all()
    else:
        assert hands.min() >= per_client and hands.max() - hands.min() <= 1
    if clients * per_client <= num_classes:
        assert (sharers == 1).all()
    assert sharers.min() >= 1 and sharers.max() - sharers.min() <= 1
    for column in counts.T:
        shared = column[column > 0]
        assert shared.max() - shared.min() <= 1


def test_fewer_classes_than_clients_times_k_are_disjoint_by_hand() -> None:
    # Ten classes, three clients of two: the four classes that nobody asked for are dealt out too.
    labels = np.repeat(np.arange(10), 30)
    parts = schemes.classes(labels, 3, 2, generator())
    hands = [set(labels[part].tolist()) for part in parts]
    assert sorted(map(len, hands)) == [3, 3, 4]
    assert all(not (a & b) for a, b in [*pairwise(hands), (hands[0], hands[2])])


def test_classes_are_dealt_anew_and_not_in_order() -> None:
    labels = np.repeat(np.arange(10), 20)
    hands = {
        tuple(np.unique(labels[part]).tolist())
        for seed in range(20)
        for part in schemes.classes(labels, 5, 2, generator(seed))
    }
    assert len(hands) > 20  # of 45 pairs


def test_a_class_too_small_for_its_sharers_is_named() -> None:
    labels = np.array([0] * 50 + [1] * 50 + [2] * 3)
    with pytest.raises(ValueError, match="class 2 has 3 rows for the 4 clients"):
        schemes.classes(labels, 4, 3, generator())


@pytest.mark.parametrize("per_client", [0, 4])
def test_classes_per_client_must_exist(per_client) -> None:
    with pytest.raises(ValueError, match="must be 1 to 3"):
        schemes.classes(np.repeat(np.arange(3), 10), 2, per_client, generator())


# Shards


def test_shards_by_hand() -> None:
    # Four shards of two rows, each of one class: 0 0 | 0 0 | 1 1 | 1 1.
    labels = np.array([0, 1] * 4)
    for seed in range(10):
        parts = schemes.shards(labels, 2, 2, generator(seed))
        assert sizes(parts) == [4, 4]
        assert sorted(np.bincount(labels[part], minlength=2).tolist() for part in parts) in (
            [[0, 4], [4, 0]],
            [[2, 2], [2, 2]],
        )


def test_mcmahans_mnist_gives_most_clients_two_classes() -> None:
    labels = generator().permutation(np.repeat(np.arange(10), 6000))
    parts = schemes.shards(labels, 100, 2, generator())
    assert set(sizes(parts)) == {600}
    assert all(len(np.unique(labels[part])) <= 2 for part in parts)


def test_a_shard_is_not_a_run_of_the_file() -> None:
    (first, *_) = schemes.shards(np.zeros(1000, np.int64), 10, 1, generator())
    assert first.max() - first.min() > 500


def test_more_shards_than_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="5 rows cannot be cut into 3 × 2 shards"):
        schemes.shards(np.arange(5), 3, 2, generator())
    with pytest.raises(ValueError, match="at least 1, found 0"):
        schemes.shards(np.arange(5), 3, 0, generator())
