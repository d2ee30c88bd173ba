"""DP-MERF: its kernel, its sums, its loss, and what one look costs."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import chi2, norm

from artifacts.formats import tensors_file
from stages.data.dataset_images import load_dataset
from stages.data.images import to_pixels
from stages.methods.merf import COUNT_SHARE, Merf
from stages.methods.params.synthesis import Synthesis
from stages.nets.generator_params import ImageShape
from stages.registry import GENERATORS
from stages.synthesize import synthesize
from stages.train_generator import train_generator

SHAPE = ImageShape(channels=1, height=8, width=8, num_classes=10)


@pytest.fixture(scope="module")
def family():
    return GENERATORS.from_mapping({"family": "merf", "features": 4000, "bandwidth": 0.5, "filters": 4}).build(SHAPE)


@pytest.fixture(scope="module")
def weights(family):
    return family.initial(torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def some(digits):
    rows = digits.take(np.arange(60))
    return torch.from_numpy(to_pixels(rows.images)), torch.from_numpy(rows.labels)


def test_features_have_length_one_and_the_gaussian_kernel(family, weights, some):
    images = some[0].double()
    found = family.embedded(weights, images)
    assert torch.allclose(found.norm(dim=1), torch.ones(60, dtype=torch.float64), atol=1e-12)
    kernel = torch.exp(-torch.cdist(images.flatten(1), images.flatten(1)).square() / (2 * 0.5 * 64))
    # Each of D/2 = 2,000 frequencies adds a number in [−1, 1]: by Hoeffding 0.17 is beyond 1e-9 for all 1,770 pairs.
    assert 2 * 1770 * math.exp(-2000 * 0.17**2 / 2) < 1e-9
    assert (found @ found.T - kernel).abs().max() < 0.17
    assert kernel.min() < 0.5, "pairs differ enough for that to tell"


def test_one_record_moves_the_sums_by_the_limit_in_its_own_block(family, weights, some):
    images, labels = some
    whole = family.class_sums(weights, images, labels, limit=0.7, people=None)
    for row in (0, 13, 59):
        others = torch.arange(60) != row
        change = whole - family.class_sums(weights, images[others], labels[others], limit=0.7, people=None)
        assert change.norm() == pytest.approx(0.7, rel=1e-9)
        assert change[torch.arange(10) != labels[row]].abs().max() < 1e-12
        assert change[labels[row], -1] == pytest.approx(0.7 * COUNT_SHARE, rel=1e-9)


def test_all_of_one_person_move_them_by_the_limit_at_most(family, weights, some):
    images, labels = some
    people = torch.arange(60) % 7
    whole = family.class_sums(weights, images, labels, limit=1.0, people=people)
    for person in range(7):
        others = people != person
        numbers = people[others].unique(return_inverse=True)[1]
        change = whole - family.class_sums(weights, images[others], labels[others], limit=1.0, people=numbers)
        assert change.norm() == pytest.approx(1.0, rel=1e-9), "eight or nine records, together longer than the limit"


def test_without_noise_the_targets_are_the_classes_means(family, weights, some):
    images, labels = some
    here = labels != 4
    sums = family.class_sums(weights, images[here], labels[here], limit=1.0, people=None)
    means = family.targets(sums, limit=1.0, noise=0.0)["target.means"]
    for label in (0, 9):
        direct = family.embedded(weights, images[labels == label]).mean(dim=0)
        assert torch.allclose(means[label], direct, atol=1e-6)
    assert not means[4].any(), "nobody has this class"


def test_a_class_below_its_noise_is_not_matched(family, some):
    sums = torch.zeros(10, 4001, dtype=torch.float64)
    sums[:, -1] = COUNT_SHARE * torch.arange(10)
    sums[:, 0] = 1.0
    noise = 2 * COUNT_SHARE  # of two records: six are three of its standard deviations
    means = family.targets(sums, limit=1.0, noise=noise)["target.means"]
    assert means.any(dim=1).tolist() == [number >= 6 for number in range(10)]


def test_the_loss_is_the_squared_distance_without_bias(family, weights, some):
    """The mean over all pairs of two different codes, against the kernel's own double sums."""
    images, labels = some
    mine = {**weights, **family.targets(
        family.class_sums(weights, images, labels, limit=1.0, people=None), limit=1.0, noise=0.0)}  # fmt: skip
    codes = torch.randn(6, 10, generator=torch.Generator().manual_seed(2))
    first, second = torch.cartesian_prod(torch.arange(6), torch.arange(6)).T
    apart = first != second
    first, second = first[apart], second[apart]
    label = torch.full((len(first),), 3)
    draws = {"code": codes[first], "another code": codes[second]}
    loss = family.losses(mine, images[:0], label, draws).mean()
    made = family.sample(mine, torch.full((6,), 3), torch.Generator().manual_seed(2), report=lambda *_: None).flatten(1)
    features = [family.embedded(mine, found) for found in (made, images[labels == 3].flatten(1))]
    within = (features[0] @ features[0].T)[~torch.eye(6, dtype=torch.bool)].mean()
    assert loss.item() == pytest.approx((within - 2 * (features[0] @ features[1].T).mean()).item(), abs=1e-5)


def test_under_noise_it_costs_one_look_whatever_the_steps(client, quick):
    generator = client.with_name("merf.safetensors")
    params = quick("merf", steps=7, noise_multiplier=2.0, delta=1e-5)
    summary = train_generator([client], generator, params=params, seed=0)
    (event,) = tensors_file.read(generator).metadata.privacy
    assert (event["steps"], event["sampling_rate"], event["noise_multiplier"]) == (1, 1.0, 2.0)
    # Balle and Wang 2018, Theorem 8, with Δ/σ = 1/2.
    exact = brentq(lambda e: norm.cdf(0.25 - 2 * e) - math.exp(e) * norm.cdf(-0.25 - 2 * e) - 1e-5, 0.01, 20)
    assert summary["epsilon"]["pld"] == pytest.approx(exact, rel=2e-3)
    assert summary["epsilon"]["pld"] >= exact - 1e-6


def test_the_sums_have_the_noise_that_the_event_states(client, quick, monkeypatch):
    seen = {}
    class_sums, targets = Merf.class_sums, Merf.targets

    def watched_sums(self, *args, **options):
        seen["clean"] = class_sums(self, *args, **options)
        return seen["clean"]

    def watched_targets(self, sums, **options):
        seen["noised"] = sums
        return targets(self, sums, **options)

    monkeypatch.setattr(Merf, "class_sums", watched_sums)
    monkeypatch.setattr(Merf, "targets", watched_targets)
    params = quick("merf", steps=1, noise_multiplier=2.0, clip_norm=0.5)
    train_generator([client], client.with_name("merf.safetensors"), params=params, seed=0)
    noise = (seen["noised"] - seen["clean"]).numpy().ravel()
    least, most = chi2.ppf([5e-10, 1 - 5e-10], df=noise.size)  # a false alarm in 1e-9
    assert least < np.sum(np.square(noise / (2.0 * 0.5))) < most


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"features": 3}, "--features"),
        ({"bandwidth": 0}, "--bandwidth"),
        ({"noise_multiplier": 1.0, "sampling_rate": 0.5}, "--sampling-rate"),
        ({"noise_multiplier": 1.0, "noise_multiplicity": 2}, "--noise-multiplicity"),
        ({"micro_batch": 4}, "--micro-batch"),
    ],
)
def test_what_has_no_meaning_for_it_is_refused(values, said):
    with pytest.raises(ValueError, match=said):
        GENERATORS.from_mapping({"family": "merf", **values})


def test_images_are_of_the_classes_that_were_learnt(tmp_path, digits, quick, make_client):
    """Under noise too: the client has threes and fives, thirty of each, far above the noise of a count."""
    data = make_client(tmp_path, digits.take(np.flatnonzero(np.isin(digits.labels, [3, 5]))[:60]))
    generator, out = data.with_name("merf.safetensors"), data.with_name("synthetic.parquet")
    # σ/f = 0.33 for a count, whose threshold is 1.0: about thirty is 80 of its standard deviations above. The other
    # eight exceed it with a chance of 0.1% each: they may or may not be there.
    params = quick("merf", steps=2, noise_multiplier=0.1, data_fraction=1.0)
    train_generator([data], generator, params=params, seed=0)
    learnt = np.flatnonzero(tensors_file.read(generator).tensors["learnt_classes"])
    assert {3, 5} <= set(learnt.tolist())
    wanted = Synthesis(family="merf", private=True, count=20, labels="learnt")
    synthesize(generator, out, params=wanted, seed=0)
    assert set(load_dataset(out).content.labels.tolist()) == set(learnt.tolist())


def test_other_families_do_not_say_what_they_learnt():
    with pytest.raises(ValueError, match="--labels learnt goes with --family merf"):
        Synthesis(family="vae", count=3, labels="learnt")
