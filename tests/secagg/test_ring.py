"""Updates as whole numbers: the bound of the error, what does not fit, noise that wraps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.privacy.mechanism import GaussianMechanism, clipped, noisy_mean
from stages.privacy.streams import SecretStream
from stages.secagg.ring import Ring


@given(st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=20), st.integers(2, 30), st.sampled_from([32, 64]))
def test_rounding_moves_a_value_by_half_a_step_at_most(values, bits, modulus):
    ring = Ring.plain(modulus=modulus, reach=3.0, bits=bits)
    vector = np.array(values, np.float32)
    whole = ring.signed(ring.quantised(vector))
    assert np.abs(whole.astype(object)).max() <= ring.most
    assert np.abs(whole * ring.step - vector).max() <= ring.step / 2 * (1 + 1e-9)


def test_the_ends_of_the_range():
    ring = Ring.plain(modulus=32, reach=0.1, bits=8)
    whole = ring.signed(ring.quantised(np.array([0.1, -0.1, 0.0])))
    assert whole.tolist() == [127, -127, 0]


@pytest.mark.parametrize("value", [1.0000001, -5.0, 3e38])
def test_a_value_out_of_range_is_refused_not_cut_off(value):
    with pytest.raises(ValueError, match="outside the declared range"):
        Ring.plain(modulus=32, reach=1.0, bits=20).quantised(np.array([0.0, value]))


def test_the_sum_must_fit():
    """2³¹ − 1 = 4·most + 3 for most = 2²⁹ − 1: four clients fit into 32 bits, five do not."""
    ring = Ring.plain(modulus=32, reach=1.0, bits=30)
    ring.check_fits(4)
    with pytest.raises(ValueError, match="does not fit into 32 bits"):
        ring.check_fits(5)
    Ring.plain(modulus=64, reach=1.0, bits=30).check_fits(5)
    total = np.sum([ring.quantised(np.array([-1.0])) for _ in range(4)], axis=0, dtype=np.uint32)
    assert ring.signed(total).tolist() == [-4 * ring.most]


@pytest.mark.parametrize("bad", [{"modulus": 16}, {"reach": 0.0}, {"reach": float("nan")}, {"bits": 1}, {"bits": 54}])
def test_what_is_no_ring(bad):
    with pytest.raises(ValueError, match="found"):
        Ring.plain(**{"modulus": 32, "reach": 1.0, "bits": 20, **bad})


CONTEXT = {
    "inputs": [], "params": {}, "seed": None, "stage": "encode", "client": "a", "round": 1, "versions": {},
    "device": "cpu", "arithmetic": "float64",
}  # fmt: skip


@pytest.mark.parametrize(("clip", "sigma"), [(1.0, 0.5), (0.37, 0.01), (12.0, 3.0)])
def test_noised_values_are_written_without_rounding(clip, sigma):
    """The ring's step is the mechanism's grid: nothing is added to the sensitivity."""
    mechanism = GaussianMechanism(clip_norm=clip, noise_multiplier=sigma, expected_size=1.0)
    update = clipped({"w": np.random.default_rng(0).normal(size=5000)}, clip)
    noised = noisy_mean(update, mechanism, SecretStream(bytes(32), CONTEXT, "noise"))["w"]
    ring = Ring.for_noise(modulus=32, clip_norm=clip, noise_multiplier=sigma)
    whole = ring.signed(ring.quantised(noised))
    assert (whole * ring.step == noised.astype(np.float64)).all()
    assert np.abs(whole).max() <= ring.most


def test_the_bound_of_noise_holds_for_the_largest_draw(monkeypatch):
    """All words at their extreme: 9.2 standard deviations on top of a contribution of C."""
    monkeypatch.setattr(SecretStream, "uniform_bits", lambda self, count: np.ones(count, np.uint64))
    mechanism = GaussianMechanism(clip_norm=1.0, noise_multiplier=0.5, expected_size=1.0)
    noised = noisy_mean({"w": np.array([1.0, -1.0])}, mechanism, SecretStream(bytes(32), CONTEXT, "noise"))["w"]
    ring = Ring.for_noise(modulus=32, clip_norm=1.0, noise_multiplier=0.5)
    assert 9 * 0.5 + 1 < np.abs(noised).max() <= ring.most * ring.step


@pytest.mark.parametrize("modulus", [32, 64])
def test_under_noise_values_wrap_and_none_aborts(modulus):
    """Against Python's own whole numbers."""
    ring = Ring.for_noise(modulus=modulus, clip_norm=1.0, noise_multiplier=0.5)
    ends = [2.0**e * ring.step * sign for e in (31, 32, 62, 63, 64) for sign in (1, -1)]
    huge = np.array([3e38, -3e38, 1e30, -1e30, 7 * ring.step, *ends, 0.0], np.float32)
    expected = [int(value / ring.step) % 2**modulus for value in huge.astype(np.float64)]
    assert ring.quantised(huge).tolist() == expected


@pytest.mark.parametrize("modulus", [32, 64])
def test_a_sum_larger_than_the_clients_can_make_is_noticed(modulus):
    """The lowest number of the ring has no counterpart: its absolute value is itself."""
    ring = Ring.plain(modulus=modulus, reach=1.0, bits=8)
    signed = np.dtype(f"<i{modulus // 8}")
    assert ring.holds(np.array([-3 * ring.most, 3 * ring.most], signed), 3)
    for wrong in (-(2 ** (modulus - 1)), 2 ** (modulus - 1) - 1, 3 * ring.most + 1, -3 * ring.most - 1):
        assert not ring.holds(np.array([0, wrong], signed), 3)


def test_noise_that_cannot_fit_is_known_beforehand():
    ring = Ring.for_noise(modulus=32, clip_norm=1.0, noise_multiplier=1e-3)
    ring.check_fits(1000)
    with pytest.raises(ValueError, match="does not fit"):
        ring.check_fits(2**31 // ring.most + 1)
