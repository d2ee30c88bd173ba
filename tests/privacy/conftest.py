"""Streams under a key that everyone knows, and the statistics that the noise tests share."""

import numpy as np
import pytest
from scipy import stats

from stages.privacy.streams import SecretStream

KEY = bytes(range(32))
CONTEXT = {
    "inputs": {"data": "ab" * 32, "model": "cd" * 32},
    "params": {"learning_rate": 0.1},
    "seed": 7,
    "stage": "train-client",
    "client": "03",
    "round": 2,
    "versions": {"fedsynth": "0.1.0"},
    "device": "cpu",
    "arithmetic": {"threads": 1},
}
CHANCE = 1e-6  # the draws are fixed: a test that passes passes always


@pytest.fixture
def context():
    return dict(CONTEXT)


@pytest.fixture
def stream_of():
    """A stream with some field of its context changed."""

    def make(label="noise", key=KEY, **changes):
        return SecretStream(key, CONTEXT | changes, label)

    return make


@pytest.fixture
def has_scale():
    """Whether the standard deviation of normal draws with known mean 0 may be `scale`: the exact χ² test."""

    def test(draws, scale):
        square = float(np.sum(np.square(draws / scale)))
        return min(stats.chi2.cdf(square, draws.size), stats.chi2.sf(square, draws.size)) > CHANCE

    return test


@pytest.fixture
def looks_normal():
    """Kolmogorov and Smirnov's test, the mean, the kurtosis and the tail beyond four."""

    def test(draws, scale):
        x, n = np.ravel(draws) / scale, draws.size
        assert stats.kstest(x, stats.norm.cdf).pvalue > CHANCE
        assert abs(x.mean()) * np.sqrt(n) < 5
        assert abs(np.mean(x**4) - 3) / np.sqrt(96 / n) < 5
        assert stats.binomtest(int(np.sum(abs(x) > 4)), n, 2 * stats.norm.sf(4)).pvalue > CHANCE

    return test
