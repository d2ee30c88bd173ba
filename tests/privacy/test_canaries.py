"""`audit --empirical`: canaries through whole recipes refute a sensitivity that is √2 too large, and nothing else.

The statistics are held against closed forms. Draws differ between machines; where a test rests on one, the chance of a
false alarm is below 1e-9: a p-value is that small by chance as often as it says, and the power is asserted.
"""

import dataclasses
import math

import numpy as np
import pytest
from canary_audits import NET, NOISE, audited, wrong_by
from scipy import stats

from stages.privacy.accountant import epsilon
from stages.privacy.events import PrivacyEvent
from stages.trials import empirical
from stages.trials.attacker import Attacker

# Four releases of every record with σ = 1; with 3000 canaries √2 is seen at 1e-9, but for a chance of about 1e-12.
FOUR = [*NET, "partition.clients=1", "partition.image_size=20", "train-client.noise_multiplier=1",
        "train-client.sampling_rate=1", *(f"train-client.{word}" for word in NOISE)]  # fmt: skip
MANY = 3000
RARE = 1e-9


def events(sigma, steps, q=1.0):
    planned = PrivacyEvent.planned(
        unit="record", sampling_rate=q, noise_multiplier=sigma, clip_norm=1.0, steps=steps, trust="nobody"
    )
    return [dataclasses.replace(planned, id="1" * 64)]


# The statistics.


@pytest.mark.parametrize(("sigma", "steps"), [(1.0, 1), (1.0, 4), (2.0, 3)])
def test_the_most_that_can_be_guessed_of_a_gaussian(sigma, steps):
    """Two Gaussians √T/σ apart: the best guess is right with Φ(√T/2σ)."""
    assert empirical.most_right(events(sigma, steps)) == pytest.approx(
        stats.norm.cdf(math.sqrt(steps) / sigma / 2), abs=1e-4
    )


def test_the_bound_of_one_run_in_closed_form():
    """All r guesses right, δ = 0: refuted is every ε with (e^ε/(1 + e^ε))^r ≤ 0.01."""
    there = np.random.default_rng(0).random(200) < 0.5
    share = 0.01 ** (1 / 200)
    found = empirical.one_run_bound(np.where(there, 1.0, -1.0) * 9, there, 0.0)
    assert found == pytest.approx(math.log(share / (1 - share)), rel=1e-6)
    assert empirical.one_run_bound(np.where(there, 1.0, -1.0) * 9, there, 1e-3) < found
    assert empirical.one_run_bound(np.random.default_rng(1).normal(size=200), there, 1e-5) < 0.5


def test_delta_pays_for_the_worst_run_of_guesses():
    """Three guesses of three, ε = 0: W is binomial with ½, and max_i P[3 > W ≥ 3 − i]/i by hand is 3/8."""
    assert empirical._chance(10, 3, 3, 0.0, 0.01) == pytest.approx(1 / 8 + 2 * 10 * 0.01 * 3 / 8)


def test_likelihoods_of_sampled_releases():
    attacker = Attacker(2)
    attacker.saw(np.array([0.3, 2.0]), 0.5)
    attacker.saw(np.array([1.0, -1.0]), 0.5)
    density = stats.norm(scale=0.5).pdf
    wanted = [
        sum(math.log((0.75 * density(x) + 0.25 * density(x - 1.2)) / density(x)) for x in row)
        for row in ((0.3, 1.0), (2.0, -1.0))
    ]
    assert attacker.scores([0.25, 0.25]) == pytest.approx(wanted)


def test_the_power_is_that_of_simulated_audits():
    """500 audits of 300 canaries with √2 times the sensitivity: as many are refuted as the power says."""
    rng = np.random.default_rng(0)
    claim, refuted = events(1.0, 1), 0
    most = empirical.most_right(claim)
    for _ in range(500):
        there = rng.random(300) < 0.5
        attacker = Attacker(300)
        attacker.saw(there * math.sqrt(2) + rng.normal(size=300), 1.0)
        right = int(((attacker.scores([1.0]) > 0) == there).sum())
        refuted += empirical.at_least(right, 300, most) < 0.05
    power = empirical.power(claim, 300)
    assert 0.5 < power < 0.95
    assert abs(refuted / 500 - power) < 4 * math.sqrt(power * (1 - power) / 500) + 0.02
    assert empirical.power(claim, 1000) > 0.95
    # At most 5% of right claims are refuted; forty thousand simulated canaries know it to about one percent.
    assert empirical.power(claim, 1000, factor=1.0) < 0.1


def test_the_estimate_of_two_gaussians():
    rng = np.random.default_rng(0)
    there = rng.random(20000) < 0.5
    found = empirical.estimated(there * 2.0 + rng.normal(size=20000), there, 1e-5)
    assert found == pytest.approx(epsilon(events(0.5, 1), delta=1e-5).pld, rel=0.05)


# Whole recipes.


@pytest.mark.slow
def test_a_recipe_keeps_its_epsilon(fedsynth_json):
    words = [word for setting in [*FOUR, "rounds=2"] for word in ("--set", setting)]
    found = fedsynth_json("audit", "--empirical", "dp-sgd", "--canaries", MANY, "--delta", 1e-5, *words)
    assert (found["releases"], found["custody"], found["unit"]) == (4, "private", "record")
    assert found["p_value"] > RARE
    assert found["lower_bound"] < found["claimed"] == pytest.approx(epsilon(events(1.0, 4), delta=1e-5).pld)
    # Half a percent is lost by looking for contributions that are too long; else within six standard deviations.
    assert abs(found["right"] - MANY * (found["most_right"] - 0.005)) < 6 * math.sqrt(MANY * 0.159 * 0.841)
    assert found["power"] > 1 - RARE


@pytest.mark.slow
def test_a_sensitivity_too_large_is_refuted(monkeypatch):
    wrong_by(math.sqrt(2), monkeypatch)
    found = audited("dp-sgd", MANY, FOUR)
    assert found.p_value < RARE
    assert found.refuted and found.error is not None


EVERY = {
    "dp-sgd": (1000, []),
    "fedlap-dp": (500, [*NET, "encode.noise_multiplier=1", *(f"encode.{word}" for word in NOISE)]),
    "feddm-dp": (150, [*NET, "encode.noise_multiplier=1", *(f"encode.{word}" for word in NOISE)]),
    "fedssyn-dp": (1000, ["train-generator.target_epsilon=null", "train-generator.delta=null",
                          "train-generator.noise_multiplier=1", "train-generator.sampling_rate=0.8"]),
    "dp-fedavg": (600, []),
    "dp-fedavg with an adaptive clip": (600, ["encode.adaptive_clip=true"]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_over_rounds_generators_surrogates_and_clients(name, monkeypatch):
    (canaries, settings), name = EVERY[name], name.split()[0]
    found = audited(name, canaries, settings)
    assert found.p_value > RARE
    assert found.lower_bound < found.claimed
    wrong_by(2.5, monkeypatch)
    assert audited(name, canaries, settings).refuted


@pytest.mark.slow
def test_recipes_that_canaries_are_not_for(fedsynth):
    for words, said in (
        (["dp-sgd", "--delta", 2], "between 0 and 1"),
        (["dp-fedsam-secure", "--delta", 1e-5, "--set", "secure=false", "--set", "rounds=1"], "spreads its noise"),
    ):
        code, _, err = fedsynth("audit", "--empirical", *words)
        assert (code, said in err) == (2, True), err
