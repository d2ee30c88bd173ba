"""Nearest neighbours against scikit-learn, and a check that tells a copy from a fresh image."""

import numpy as np
import pytest
from scipy.stats import mannwhitneyu
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from stages.methods import memorisation
from stages.methods.memorisation import Nearest, nearest, nearest_other, share_nearer, share_nearer_by_class

DIGITS = np.rint(load_digits().images * 255 / 16).astype(np.uint8)[:, None]


@pytest.mark.parametrize("chunk", [1, 50, 1000])
def test_nearest_equals_scikit_learns(chunk):
    queries, references = DIGITS[:120], DIGITS[200:700]
    found = nearest(queries, references, chunk=chunk)
    oracle = NearestNeighbors(n_neighbors=1).fit(references.reshape(500, -1).astype(float))
    distances, _ = oracle.kneighbors(queries.reshape(120, -1).astype(float))
    np.testing.assert_allclose(found.distances, distances[:, 0] / 8 / 255, rtol=1e-9)


@pytest.mark.parametrize("block", [1, 64, 4096])
def test_the_references_may_come_in_blocks(monkeypatch, block):
    """The same rows and distances; of equal images the first is named."""
    monkeypatch.setattr(memorisation, "_BLOCK", block)
    references = np.concatenate([DIGITS[:100], DIGITS[:100]])
    found = nearest(DIGITS[:120], references)
    assert found.rows[:100].tolist() == list(range(100))
    apart = ((DIGITS[100:120].astype(float)[:, None] - references) ** 2).mean(axis=(2, 3, 4)).min(axis=1)
    np.testing.assert_allclose(found.distances[100:], np.sqrt(apart) / 255, rtol=1e-12)


@pytest.mark.parametrize("block", [7, 4096])
def test_the_nearest_other_is_never_the_image_itself(monkeypatch, block):
    monkeypatch.setattr(memorisation, "_BLOCK", block)
    images = DIGITS[:60]
    found = nearest_other(images, chunk=9)
    oracle = NearestNeighbors(n_neighbors=2).fit(images.reshape(60, -1).astype(float))
    distances, rows = oracle.kneighbors(images.reshape(60, -1).astype(float))
    np.testing.assert_allclose(found.distances, distances[:, 1] / 8 / 255, rtol=1e-9)
    assert found.rows.tolist() == rows[:, 1].tolist()
    twice = nearest_other(np.concatenate([images[:2], images[:2]]))
    assert (twice.rows.tolist(), twice.distances.tolist()) == ([2, 3, 0, 1], [0.0] * 4)
    with pytest.raises(ValueError, match="at least two"):
        nearest_other(images[:1])


def test_shares_within_classes_by_hand():
    """Class 0: 1 of 2 pairs; class 1: 1 of 1, for two images; class 2 has no held-out image."""
    mine = Nearest(np.zeros(4, np.int64), np.array([0.3, 0.1, 0.2, 0.9]))
    held = Nearest(np.zeros(3, np.int64), np.array([0.2, 0.4, 0.5]))
    labels, others = np.array([0, 1, 1, 2]), np.array([0, 0, 1])
    assert share_nearer_by_class(mine, labels, held, others) == pytest.approx((1 * 0.5 + 2 * 1.0) / 3)
    assert share_nearer_by_class(mine, labels, held, others + 5) is None


def test_a_copy_is_at_distance_zero_and_black_is_one_from_white():
    assert nearest(DIGITS[:5], DIGITS).distances.tolist() == [0.0] * 5
    black, white = np.zeros((1, 1, 4, 4), np.uint8), np.full((1, 1, 4, 4), 255, np.uint8)
    assert nearest(black, white).distances.tolist() == [1.0]


def test_share_nearer_is_mann_whitneys_and_half_for_equals():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, 40) / 9, rng.integers(0, 9, 70) / 9
    rows = np.zeros(1, np.int64)
    found = share_nearer(Nearest(rows, a), Nearest(rows, b))
    assert found == pytest.approx(mannwhitneyu(b, a).statistic / (40 * 70))
    assert share_nearer(Nearest(rows, b), Nearest(rows, b)) == 0.5


def test_it_tells_memorised_images_from_fresh_ones():
    train, fresh, held_out = DIGITS[:800], DIGITS[800:1300], DIGITS[1300:]
    rng = np.random.default_rng(0)
    blurred = train[rng.integers(0, 800, 300)].astype(int) + rng.integers(-8, 9, (300, 1, 8, 8))
    copies = blurred.clip(0, 255).astype(np.uint8)
    reference = nearest(held_out, train)
    assert share_nearer(nearest(copies, train), reference) > 0.95
    assert 0.4 < share_nearer(nearest(fresh, train), reference) < 0.6
