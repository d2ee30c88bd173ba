"""`audit --empirical` run many times over real recipes: how often a sensitivity wrong by √2 is caught, and a right one.

Every audit is a run of its own: other coins, other keys, other data, through the commands of the recipe. The small ones
are enough to see that canaries are in what each kind of recipe releases; the others measure.
"""

import math

import pytest
from canary_audits import NET, NOISE, audited, wrong_by
from scipy import stats

AUDITS = 60  # all of them caught: the power is above 0.95, with a confidence of 95%


def noise_of(command, *others):
    return [f"{command}.{word}" for word in ("noise_multiplier=1", *NOISE, *others)]


ONE = "partition.clients=1"
GENERATOR = [ONE, "train-generator.target_epsilon=null", "train-generator.delta=null"]
GENERATOR += ["train-generator.noise_multiplier=1"]
# Recipe: canaries, rounds, settings. Every record is in every step, so that all of the noise is seen.
RECIPES = {
    "dp-sgd": (1000, 2, [*NET, ONE, "partition.image_size=12", *noise_of("train-client", "sampling_rate=1")]),
    "fedlap-dp": (1000, 2, [*NET, ONE, "partition.image_size=12", *noise_of("encode", "sampling_rate=1")]),
    "feddm-dp": (900, 3, ["init-model.arch=lenet5", "init-model.width=null", "init-model.depth=null", ONE,
                          "partition.image_size=28", *noise_of("encode", "sampling_rate=1")]),
    "fedssyn-dp": (1000, 2, [*GENERATOR, "train-generator.sampling_rate=1"]),
    "fedssyn-merf": (1500, 2, GENERATOR),
    "dp-fedavg": (500, 3, []),
}  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_canaries_are_in_what_it_releases(name, monkeypatch):
    """A contribution that is sixteen times too long; few canaries, and quick.

    Scores of canaries that are there are sixteen standard deviations or more from the others, which is an ε of 190.
    Below 60 (7.6 deviations) the spread of the thirty scores would be more than twice what it is: a chance below 1e-13.
    Of canaries that are nowhere the two halves are 0.4 deviations apart, and 7.6 have a chance below 1e-50.
    """
    _, _, settings = RECIPES[name]
    wrong_by(16, monkeypatch)
    found = audited(name, 30, settings, rounds=1)
    assert found.releases >= 1
    assert found.estimate > 60


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", RECIPES)
def test_the_root_of_two_is_caught_in_real_audits(name, monkeypatch, record_property):
    canaries, rounds, settings = RECIPES[name]
    wrong_by(math.sqrt(2), monkeypatch)
    found = [audited(name, canaries, settings, seed=seed, rounds=rounds) for seed in range(AUDITS)]
    caught = sum(each.refuted for each in found)
    least, most = interval(caught, AUDITS)
    said = f"{name}: {caught} of {AUDITS}, power {least:.3f} to {most:.3f}, stated {found[0].power:.4f}"
    record_property("power", said)
    print(said)
    assert found[0].power > 0.995
    assert least > 0.95


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "canaries"), [("fedlap-dp", 100), ("fedssyn-dp", 250)])
def test_the_power_that_is_stated_is_the_power_of_real_audits(name, canaries, monkeypatch):
    """Few canaries: some are caught and some are not, as often as is said. And right ones are refuted in 5% at most."""
    _, rounds, settings = RECIPES[name]
    count = 100
    right = sum(audited(name, canaries, settings, seed=seed, rounds=rounds).refuted for seed in range(count))
    wrong_by(math.sqrt(2), monkeypatch)
    found = [audited(name, canaries, settings, seed=seed, rounds=rounds) for seed in range(count)]
    stated, caught = found[0].power, sum(each.refuted for each in found)
    print(f"{name}: {caught} of {count} caught, stated {stated:.3f}; {right} of {count} false alarms")
    assert 0.5 < stated < 0.97
    assert stats.binomtest(caught, count, stated).pvalue > 1e-3
    assert stats.binom.sf(right - 1, count, 0.05) > 1e-3


def interval(caught, count):
    """Clopper and Pearson: each end at 95%."""
    least = stats.beta.ppf(0.05, caught, count - caught + 1) if caught else 0.0
    most = stats.beta.ppf(0.95, caught + 1, count - caught) if caught < count else 1.0
    return least, most
