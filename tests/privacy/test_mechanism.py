"""The Gaussian mechanism: a clip that holds whatever comes in, noise of the right scale, nothing off the grid."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from stages.privacy.mechanism import CLIP_MARGIN, GaussianMechanism, clipped, noisy_mean

N = 100_000


def norm(tensors):
    """The flat norm in exact sums of squares of float64 numbers, scaled so that none overflows."""
    values = np.concatenate([np.ravel(t).astype(np.float64) for t in tensors.values()])
    largest = np.abs(values).max(initial=0.0)
    return 0.0 if largest == 0 else float(largest) * math.sqrt(math.fsum((values / largest) ** 2))


def mechanism(clip_norm=1.0, noise_multiplier=1.0, expected_size=1.0):
    return GaussianMechanism(clip_norm=clip_norm, noise_multiplier=noise_multiplier, expected_size=expected_size)


floats = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.sampled_from([3.4e38, -3.4e38, 1e-45, 0.0])


@settings(max_examples=300)
@given(
    arrays(np.float32, st.integers(0, 30), elements=floats),
    arrays(np.float64, st.integers(1, 5), elements=st.floats(allow_nan=False, allow_infinity=False)),
    st.floats(1e-6, 1e6),
)
def test_a_clipped_norm_never_exceeds_the_clip(first, second, clip):
    result = clipped({"a": first, "b": second}, clip)
    assert norm(result) <= clip * (1 - CLIP_MARGIN / 2)
    before = norm({"a": first, "b": second})
    if before > clip and math.isfinite(before):
        assert norm(result) == pytest.approx(clip, rel=1e-5), "no more than needed"


def test_clipping_by_hand():
    tensors = {"w": np.array([3.0, 0.0], np.float32), "b": np.array([[4.0]], np.float32)}
    result = clipped(tensors, 1.0)
    np.testing.assert_allclose(result["w"], [0.6, 0.0], rtol=2e-6)
    np.testing.assert_allclose(result["b"], [[0.8]], rtol=2e-6)
    untouched = clipped(tensors, 5.1)
    assert untouched["b"].dtype == np.float64
    assert untouched["b"][0, 0] == 4.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_contribution_that_is_not_finite_is_zero_without_a_word(bad, recwarn):
    result = clipped({"a": np.array([1.0, bad]), "b": np.ones(3)}, 1.0)
    assert not any(tensor.any() for tensor in result.values())
    assert not recwarn.list


def test_noise_has_its_scale_and_no_other(stream_of, has_scale, looks_normal):
    made = mechanism(clip_norm=0.5, noise_multiplier=1.3, expected_size=20.0)
    released = noisy_mean({"w": np.zeros((N, 2))}, made, stream_of())["w"].astype(np.float64)
    scale = 0.5 * 1.3 / 20
    assert has_scale(released, scale)
    assert not has_scale(released, scale * 2 / 3)
    assert not has_scale(released, scale * 3 / 2)
    # Spread evenly over its grid cell again, the rounded noise is normal: rounding did nothing else.
    cell = (stream_of("examples").uniform(released.shape) - 0.5) * made.grid / 20
    looks_normal(released + cell, scale)


def test_what_is_released_is_the_sum_over_the_expected_size(stream_of):
    total = {"w": np.linspace(-40.0, 40.0, 101)}
    made = mechanism(noise_multiplier=0.01, expected_size=64.0)
    result = noisy_mean(total, made, stream_of())["w"]
    assert result.dtype == np.float32
    np.testing.assert_allclose(result * 64, total["w"], atol=0.06)
    doubled = noisy_mean(total, mechanism(noise_multiplier=0.01, expected_size=128.0), stream_of())["w"]
    np.testing.assert_array_equal(doubled * 2, result)


@pytest.mark.parametrize(("clip", "sigma"), [(1.0, 1.0), (0.2, 0.95), (37.0, 1.906), (1e-4, 5.0)])
def test_everything_released_stands_on_the_public_grid(stream_of, clip, sigma):
    """Whatever the data, low bits and exponents are those of multiples of one power of two."""
    made = mechanism(clip_norm=clip, noise_multiplier=sigma)
    assert math.frexp(made.grid)[0] == 0.5
    assert clip * sigma / 64 < made.grid <= clip * sigma / 32
    rng = np.random.default_rng(0)
    for data in (np.zeros(2000), rng.normal(size=2000) * clip, np.full(2000, 1 / 3) * clip):
        steps = noisy_mean({"w": data}, made, stream_of())["w"].astype(np.float64) / made.grid
        np.testing.assert_array_equal(steps, np.rint(steps))


def test_the_data_only_shift_the_noise(stream_of):
    """With equal noise a shift by whole grid steps comes out to the last bit, at any magnitude: no float effects."""
    made = mechanism(noise_multiplier=1.7)
    start = np.random.default_rng(1).normal(size=5000)
    base = noisy_mean({"w": start}, made, stream_of())["w"].astype(np.float64)
    for count in (1, 7, -1000, 2**17):
        # The start goes onto the fine step first, so that the shift is exact in the sum itself.
        fine = np.rint(start / made.fine_step) * made.fine_step
        moved = noisy_mean({"w": fine + count * made.grid}, made, stream_of())["w"].astype(np.float64)
        np.testing.assert_array_equal(moved - base, count * made.grid)


def test_noise_is_added_in_whole_numbers(stream_of):
    """Sums so large that a float has no bits left for the last of the noise, just below where the grid rounds up.

    Added as floats, sum and noise would be rounded together, and come out one step of the grid higher.
    """
    made = mechanism(noise_multiplier=1.7)
    step, ratio = made.fine_step, round(made.grid / made.fine_step)
    drawn = np.rint(stream_of().gaussian(5000, made.scale) / step).astype(np.int64)
    chosen = drawn % 4 == 3  # of these the sum that is wanted is a multiple of 4 fine steps: a float64 of its size
    whole = np.where(chosen, 3 * 2**16 * ratio + ratio // 2 - 1 - drawn, 0)
    total = whole.astype(np.float64)
    assert chosen.any() and np.array_equal(total.astype(np.int64), whole)
    released = noisy_mean({"w": total * step}, made, stream_of())["w"].astype(np.float64) * made.expected_size
    assert np.unique(released[chosen]).tolist() == [3 * 2**16 * made.grid]


@pytest.mark.filterwarnings("error")
def test_sums_of_nothing_and_of_too_much(stream_of):
    assert noisy_mean({}, mechanism(), stream_of()) == {}
    empty = noisy_mean({"w": np.zeros(0), "b": np.zeros(())}, mechanism(), stream_of())
    assert all(isinstance(values, np.ndarray) for values in empty.values())
    assert (empty["w"].shape, empty["b"].shape) == ((0,), ())
    huge = noisy_mean({"w": np.array([1e300, -1e300, np.nan])}, mechanism(), stream_of())["w"]
    assert np.isfinite(huge).all()
    assert huge[0] == pytest.approx(-huge[1])
    assert huge[0] > 1e5


def test_noise_does_not_depend_on_the_order_of_the_tensors(stream_of):
    tensors = {"b": np.zeros(3), "a": np.zeros((2, 2))}
    one = noisy_mean(tensors, mechanism(), stream_of().at(4))
    two = noisy_mean(dict(reversed(tensors.items())), mechanism(), stream_of().at(4))
    for name in tensors:
        np.testing.assert_array_equal(one[name], two[name])
    assert one["a"].ravel()[0] != one["b"][0]


@pytest.mark.parametrize("name", ["clip_norm", "noise_multiplier", "expected_size"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_constants_are_checked(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a number greater than 0"):
        mechanism(**{name: value})


def test_more_coordinates_than_the_margin_pays_for_are_refused(stream_of):
    with pytest.raises(ValueError, match="too many"):
        noisy_mean({"w": np.zeros(10_000)}, mechanism(noise_multiplier=2e4), stream_of())
