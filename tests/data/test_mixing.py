"""Mixing and holding out keep a disjoint cover, and do to the clients what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from stages.data.mixing import hold_out, mix
from stages.data.schemes import dirichlet, iid

LABELS = np.repeat(np.arange(10), 400)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def uneven(seed: int) -> list:
    return dirichlet(LABELS, 8, 0.1, generator(seed))


def p_value(parts) -> float:
    """How likely such class counts are if all clients draw from one distribution."""
    counts = np.stack([np.bincount(LABELS[rows], minlength=10) for rows in parts if len(rows) >= 100])
    return float(chi2_contingency(counts).pvalue)


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    fraction=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_mixing_keeps_cover_sizes_and_the_stated_share(sizes, fraction, seed) -> None:
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    mixed = mix(parts, fraction, generator(seed))
    assert [len(rows) for rows in mixed] == sizes
    assert np.array_equal(np.sort(np.concatenate(mixed)), np.arange(sum(sizes)))
    for before, after in zip(parts, mixed, strict=True):
        assert (np.diff(after) > 0).all()
        kept = len(np.intersect1d(before, after))
        # What a client did not give, it still has; of what it gave, chance may have dealt some back.
        assert kept >= len(before) - int(len(before) * fraction + 0.5)


def test_nothing_is_mixed_at_zero_and_the_same_seed_mixes_alike() -> None:
    parts = uneven(0)
    assert all(np.array_equal(a, b) for a, b in zip(parts, mix(parts, 0.0, generator()), strict=True))
    for first, second in zip(mix(parts, 0.5, generator(1)), mix(parts, 0.5, generator(1)), strict=True):
        assert np.array_equal(first, second)
    assert not np.array_equal(mix(parts, 0.5, generator(1))[0], mix(parts, 0.5, generator(2))[0])


def test_mixed_whole_the_clients_are_alike_and_half_mixed_they_are_not() -> None:
    """χ² over the class counts: uniform p-values at p = 1, as with iid clients, and none but tiny ones at p = 0.5."""
    whole = np.array([p_value(mix(uneven(seed), 1.0, generator(seed))) for seed in range(60)])
    plain = np.array([p_value(iid(len(LABELS), 8, generator(seed))) for seed in range(60)])
    for values in (whole, plain):
        assert 0.35 < values.mean() < 0.65  # 0.5 ± 4 standard deviations of a mean of 60
        assert (values < 0.05).sum() <= 10  # expected 3; 11 or more has a chance of 1 in 4000
    half = np.array([p_value(mix(uneven(seed), 0.5, generator(seed))) for seed in range(20)])
    assert half.max() < 1e-6


def test_a_fraction_of_strangers_comes_in() -> None:
    """With equal clients of one class each, a client has n·p·(N−1)/N rows of others (hypergeometric)."""
    parts = np.split(np.arange(4000), 10)
    for fraction in (0.1, 0.5, 0.9):
        strangers = [
            len(np.setdiff1d(after, before))
            for seed in range(20)
            for before, after in zip(parts, mix(parts, fraction, generator(seed)), strict=True)
        ]
        assert np.mean(strangers) == pytest.approx(400 * fraction * 0.9, abs=1.5)


def test_every_row_changes_hands_as_often_as_any_other() -> None:
    parts, moved = [np.arange(25), np.arange(25, 50)], np.zeros(50)
    for seed in range(2000):
        for before, after in zip(parts, mix(parts, 0.2, generator(seed)), strict=True):
            moved[np.setdiff1d(before, after)] += 1
    # Given with chance 1/5, dealt to the other with 1/2: Binomial(2000, 1/10), 200 ± 13.4.
    assert (np.abs(moved - 200) < 65).all()


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_a_fraction_that_is_none_is_refused(fraction) -> None:
    with pytest.raises(ValueError, match="must be"):
        mix([np.arange(3)], fraction, generator())
    with pytest.raises(ValueError, match="must be"):
        hold_out(np.arange(3), fraction, generator())


@pytest.mark.parametrize(
    ("rows", "fraction", "expected"), [(1, 0.9, 0), (4, 0.1, 0), (5, 0.1, 1), (100, 0.1, 10), (2, 0.99, 1), (7, 0.0, 0)]
)
def test_one_row_stays_and_few_rows_hold_none_out(rows, fraction, expected) -> None:
    kept, held_out = hold_out(np.arange(10, 10 + rows), fraction, generator())
    assert len(held_out) == expected
    assert np.array_equal(np.sort(np.concatenate([kept, held_out])), np.arange(10, 10 + rows))
    assert (np.diff(kept) > 0).all()


def test_every_row_is_held_out_as_often_as_any_other() -> None:
    counts = np.zeros(50)
    for seed in range(2000):
        counts[hold_out(np.arange(50), 0.1, generator(seed))[1]] += 1
    # Binomial(2000, 1/10): 200 ± 13.4; the last rows alone, or none of the first, would stand out.
    assert (np.abs(counts - 200) < 65).all()
