"""The server's mean: hand-worked cases, properties, and FedSGD against a centralised step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.methods.averaging import WeightedMean, apply_update


def mean_of(pairs):
    mean = WeightedMean()
    for update, weight in pairs:
        mean.add({"w": np.array(update, np.float32)}, weight)
    return mean.mean()["w"]


def test_weighted_mean_by_hand():
    assert mean_of([([1.0, 2.0], 1), ([4.0, 8.0], 2)]).tolist() == [3.0, 6.0]


def test_apply_by_hand():
    model = {"w": np.array([10.0, 20.0], np.float32), "steps": np.array(3)}
    moved = apply_update(model, {"w": np.array([1.0, -2.0])}, rate=0.5)
    assert moved["w"].tolist() == [9.5, 21.0]
    assert moved["w"].dtype == np.float32
    assert moved["steps"] == 3
    assert model["w"].tolist() == [10.0, 20.0]


@given(st.lists(st.tuples(st.floats(-1e6, 1e6, width=32), st.integers(1, 1000)), min_size=1, max_size=30))
@settings(max_examples=100)
def test_mean_is_numpys_weighted_average_and_within_the_range(pairs):
    result = mean_of([([value], weight) for value, weight in pairs])[0]
    values, weights = [v for v, _ in pairs], [w for _, w in pairs]
    assert result == pytest.approx(np.average(values, weights=weights), rel=1e-9, abs=1e-6)
    slack = 1e-9 * max(map(abs, values))
    assert min(values) - slack <= result <= max(values) + slack


def test_a_sum_of_many_small_updates_is_not_lost_to_rounding():
    """A float32 sum of a million times 0.1 is off by 0.001; ours is held in float64."""
    mean = WeightedMean()
    for _ in range(1000):
        mean.add({"w": np.full(3, 0.1, np.float32)}, 1000)
    assert np.abs(mean.mean()["w"] - np.float64(np.float32(0.1))).max() < 1e-12


def test_refusals():
    mean = WeightedMean()
    with pytest.raises(ValueError, match="nothing to average"):
        mean.mean()
    with pytest.raises(ValueError, match="above 0"):
        mean.add({"w": np.ones(1)}, 0)
    mean.add({"w": np.ones(1)}, 1)
    with pytest.raises(ValueError, match="different models"):
        mean.add({"v": np.ones(1)}, 1)
