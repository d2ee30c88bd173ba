"""An attacker who knows everything but whether one record was there: sampling, clip, noise and accountant together.

Each coordinate of one release is a trial of its own. The attacker's best test is the likelihood ratio; what it gains
must be the accountant's δ at the accountant's ε, no more and, since that is tight, hardly less.
"""

import math

import numpy as np
import pytest
from scipy import stats

from stages.privacy.accountant import epsilon, planned
from stages.privacy.mechanism import GaussianMechanism, clipped, noisy_mean

TRIALS = 1_000_000


def gain(stream_of, q, sigma, e, *, noise=1.0, rate=1.0):
    """(P[with] − e^ε·P[without]) over the best region, and its standard error.

    `noise` and `rate` multiply what the client does, but not what it says: planted bugs.
    """
    made = GaussianMechanism(clip_norm=2.0, noise_multiplier=sigma * noise, expected_size=1.0)
    record = clipped({"w": np.array([1e6])}, 2.0)["w"]
    taken = stream_of("sampling").bernoulli(q * rate, TRIALS)
    with_it = noisy_mean({"w": np.where(taken, record, 0.0)}, made, stream_of("noise", round=1))["w"]
    without = noisy_mean({"w": np.zeros(TRIALS)}, made, stream_of("noise", round=2))["w"]
    # (1−q) + q·exp((2x − 1)/2σ²) > e^ε, x in units of the clip; the attacker knows what is really done.
    q, sigma = q * rate, sigma * noise
    edge = 2.0 * (sigma**2 * math.log((math.exp(e) - (1 - q)) / q) + 0.5)
    p, r = np.mean(with_it > edge), np.mean(without > edge)
    return p - math.exp(e) * r, math.sqrt((p + math.exp(2 * e) * r) / TRIALS)


@pytest.mark.parametrize(("q", "sigma", "delta"), [(1.0, 1.0, 0.02), (0.3, 0.8, 0.02), (0.05, 0.7, 0.01)])
def test_the_attacker_gains_what_the_accountant_says(stream_of, q, sigma, delta):
    e = epsilon([planned(sampling_rate=q, noise_multiplier=sigma, steps=1)], delta=delta).pld
    found, error = gain(stream_of, q, sigma, e)
    assert abs(found - delta) < 5 * error + 0.02 * delta
    assert error < delta / 10


@pytest.mark.parametrize("bug", [{"noise": 2 / 3}, {"rate": 1.2}])
def test_the_attack_sees_too_little_noise_and_too_high_a_rate(stream_of, bug):
    e = epsilon([planned(sampling_rate=0.3, noise_multiplier=0.8, steps=1)], delta=0.02).pld
    found, error = gain(stream_of, 0.3, 0.8, e, **bug)
    assert found > 0.02 + 8 * error


def test_the_noise_of_two_contexts_cannot_be_subtracted(stream_of):
    """If the same noise met another output, their difference would be the data. A round later it is noise again."""
    made = GaussianMechanism(clip_norm=1.0, noise_multiplier=1.0, expected_size=1.0)
    data = np.zeros(50_000)
    one = noisy_mean({"w": data}, made, stream_of(round=1))["w"]
    two = noisy_mean({"w": data}, made, stream_of(round=2))["w"]
    again = noisy_mean({"w": data}, made, stream_of(round=1))["w"]
    assert not np.any(one - again)
    difference = (one - two).astype(np.float64)
    assert difference.std() == pytest.approx(math.sqrt(2), rel=0.02)
    assert abs(stats.pearsonr(one, two).statistic) < 5 / math.sqrt(len(data))
