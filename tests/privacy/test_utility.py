"""`account plan --utility`: lengths by hand, by simulation, and what limits a run."""

import math

import numpy as np
import pytest

from stages.privacy.accountant import calibrated, epsilon, planned
from stages.privacy.mechanism import GaussianMechanism, noisy_mean

PLAN = ["account", "plan", "--delta", "1e-5", "--utility"]
HAND = ["--sampling-rate", 0.1, "--steps", 50, "--rounds", 2, "--noise-multiplier", 2]
SIZES = ["--dimension", 10_000, "--clip-norm", 0.5, "--batch-size", 40]


def test_by_hand(fedsynth_json):
    """σ = 2, d = 10,000, C = ½, B = 40, T = 100: a step's noise is 2·½·100/40 = 2.5, five times its signal."""
    found = fedsynth_json(*PLAN, *HAND, *SIZES)["utility"]
    assert {name: found[name] for name in found if name not in ("limit", "dimension", "clip_norm", "batch_size")} == {
        "noise_of_a_step": 2.5, "longest_signal_of_a_step": 0.5, "ratio_of_a_step": 5.0,
        "noise_of_the_run": 25.0, "longest_signal_of_the_run": 50.0, "ratio_of_the_run": 0.5,
        "batch_size_needed": 20,
    }  # fmt: skip
    assert found["limit"] == "clip", "over a hundred steps the noise is half of what they can go"


def test_the_length_is_that_of_the_noise_that_is_added(stream_of):
    """Against the mechanism itself: 40,000 numbers, of which the length is known to within a hundredth."""
    mechanism = GaussianMechanism(clip_norm=0.5, noise_multiplier=2.0, expected_size=40)
    released = noisy_mean({"w": np.zeros(40_000)}, mechanism, stream_of("noise"))["w"]
    assert np.linalg.norm(released) == pytest.approx(2 * 0.5 * math.sqrt(40_000) / 40, rel=0.02)


def ratio(sigma, steps, d, size):
    return sigma * math.sqrt(d) / size / math.sqrt(steps)


@pytest.mark.parametrize(("rate", "steps", "sigma", "limit"), [(0.01, 4, 0.7, "rounds"), (1.0, 100, 20.0, "noise")])
def test_rounds_or_noise(fedsynth_json, rate, steps, sigma, limit):
    """With little sampling more steps are nearly free; without sampling σ grows as √T, and nothing is won."""
    words = ["--sampling-rate", rate, "--steps", steps, "--noise-multiplier", sigma]
    found = fedsynth_json(*PLAN, *words, "--dimension", 10**6, "--clip-norm", 1, "--batch-size", 10)["utility"]
    now = ratio(sigma, steps, 10**6, 10)
    assert found["ratio_of_the_run"] == pytest.approx(now) and now > 1
    same = epsilon([planned(sampling_rate=rate, noise_multiplier=sigma, steps=steps)], delta=1e-5).pld
    more = calibrated(same, delta=1e-5, sampling_rate=rate, steps=2 * steps)
    assert (ratio(more, 2 * steps, 10**6, 10) < 0.9 * now) == (limit == "rounds"), "the case is what it should be"
    assert found["limit"] == limit


def test_in_words_and_what_is_refused(fedsynth):
    _, text, _ = fedsynth(*PLAN, *HAND, *SIZES)
    assert "noise of length 2.5 against a signal of at most 0.5 (C): 5 times as long" in text
    assert "100 steps: 25 against at most 50: 0.5 times as long. They are equal with 20 in a step." in text
    assert "The clip limits this run" in text
    for words, said in (
        (PLAN + HAND + SIZES[:4], "needs --batch-size"),
        ([*PLAN[:-1], *HAND, *SIZES], "goes with --utility"),
        (["account", "x", "--delta", "1e-5", "--utility"], "goes with `fedsynth account plan`"),
        (PLAN + HAND + [*SIZES[:-1], 0], "--batch-size must be above 0"),
    ):
        code, _, err = fedsynth(*words)
        assert code == 2 and said in err, err
