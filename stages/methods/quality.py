"""How good synthetic images are, in a feature space: precision and recall, KID, and what a classifier learns from them.

Precision and recall are Kynkäänniemi et al. 2019: the share of synthetic images within reach of a real one, and of
real ones within reach of a synthetic one; the reach of an image is the distance to its k-th nearest of its own set.
KID is Bińkowski et al. 2018: the unbiased squared MMD under the kernel (x·y/d + 1)³; it may be below 0. With other
features than Inception's neither is comparable with published figures, and no value here is an FID.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Features = NDArray[np.float64]
NEIGHBOURS = 3
_AT_ONCE = 1000


def precision_and_recall(synthetic: Features, real: Features, k: int = NEIGHBOURS) -> tuple[float, float] | None:
    """None where a set is too small for k neighbours of its own."""
    if min(len(synthetic), len(real)) <= k:
        return None
    return _within(synthetic, real, _reach(real, k)), _within(real, synthetic, _reach(synthetic, k))


def kid(synthetic: Features, real: Features) -> float | None:
    """The mean over pairs of different images within each set, less twice that across; None below two images."""
    n, m = len(synthetic), len(real)
    if min(n, m) < 2:
        return None
    within_synthetic = (_kernel_sum(synthetic, synthetic) - _own_sum(synthetic)) / (n * (n - 1))
    within_real = (_kernel_sum(real, real) - _own_sum(real)) / (m * (m - 1))
    return float(within_synthetic + within_real - 2 * _kernel_sum(synthetic, real) / (n * m))


def learnt_accuracy(
    features: Features, labels: NDArray[np.int64], tested: Features, wanted: NDArray[np.int64]
) -> NDArray[np.bool_] | None:
    """Which of the tested a linear classifier gets right that saw `features` alone; None where they have one class."""
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(labels)) < 2:
        return None
    centre, width = features.mean(axis=0), features.std(axis=0) + 1e-12
    classifier = LogisticRegression(max_iter=1000).fit((features - centre) / width, labels)
    found: NDArray[np.bool_] = classifier.predict((tested - centre) / width) == wanted
    return found


def _squared(rows: Features, others: Features) -> Features:
    """Squared distances, never below 0 whatever rounding does."""
    products = (rows**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)[None] - 2 * rows @ others.T
    found: Features = np.maximum(products, 0.0)
    return found


def _reach(features: Features, k: int) -> NDArray[np.float64]:
    """The squared distance of each to its k-th nearest other."""
    found = []
    for first in range(0, len(features), _AT_ONCE):
        rows = np.arange(first, min(first + _AT_ONCE, len(features)))
        distances = _squared(features[rows], features)
        distances[np.arange(len(rows)), rows] = np.inf
        found.append(np.partition(distances, k - 1, axis=1)[:, k - 1])
    return np.concatenate(found)


def _within(rows: Features, centres: Features, reach: NDArray[np.float64]) -> float:
    """The share of rows that are within reach of at least one centre."""
    inside = [
        (_squared(rows[first : first + _AT_ONCE], centres) <= reach[None]).any(axis=1)
        for first in range(0, len(rows), _AT_ONCE)
    ]
    return float(np.concatenate(inside).mean())


def _kernel_sum(left: Features, right: Features) -> float:
    size = left.shape[1]
    pieces = (left[first : first + _AT_ONCE] for first in range(0, len(left), _AT_ONCE))
    return float(sum(((piece @ right.T / size + 1) ** 3).sum() for piece in pieces))


def _own_sum(features: Features) -> float:
    return float((((features**2).sum(axis=1) / features.shape[1] + 1) ** 3).sum())
