"""Membership: rates and intervals by hand and by another library, LiRA on a case whose answer is known."""

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score
from torch import nn

from stages.methods import membership


def test_the_area_and_the_rate_are_those_of_other_libraries():
    rng = np.random.default_rng(0)
    members, others = rng.normal(1, 1, 300), rng.normal(0, 1, 2000)
    found = membership.measured(members, others)
    truth = np.concatenate([np.ones(300), np.zeros(2000)])
    assert found.auc == pytest.approx(roc_auc_score(truth, np.concatenate([members, others])))
    threshold = np.sort(others)[-3]  # two of 2,000 are above it: 0.1%
    assert found.false_rate == 0.001 and found.identified == (members > threshold).sum()
    exact = binomtest(found.identified, 300).proportion_ci(0.95, "exact")
    assert found.interval == pytest.approx((exact.low, exact.high))


def test_with_few_others_the_rate_of_false_ones_is_none():
    found = membership.measured(np.array([3.0, 1.0]), np.array([2.0, 0.0]))
    assert (found.true_rate, found.false_rate, found.auc) == (0.5, 0.0, 0.75)
    assert membership.measured(np.ones(4), np.ones(4)).auc == 0.5
    assert membership.proportion(0, 10)[0] == 0 and membership.proportion(10, 10)[1] == 1


def test_confidence_is_the_logit_of_the_true_class():
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    images, labels = torch.randn(5, 1, 2, 2), torch.tensor([0, 1, 2, 0, 1])
    p = torch.softmax(module(images).double(), 1).detach().numpy()[range(5), labels]
    assert membership.confidence(module, images, labels, 2) == pytest.approx(np.log(p / (1 - p)), abs=1e-5)


def test_the_ratio_is_that_of_two_normals():
    shadows = np.array([[3.0, 1.0], [1.0, 3.0], [3.5, 0.5], [0.5, 3.5]])
    inside = np.array([[True, False], [False, True], [True, False], [False, True]])
    found = membership.likelihood_ratios(np.array([3.25, 0.75]), shadows, inside)
    # Both records: mean inside 3.25, outside 0.75, spread √(0.25²·4/2) = 0.3536 on both sides.
    assert found == pytest.approx([2.5**2 / (2 * 0.125), -(2.5**2) / (2 * 0.125)])


def test_halves_come_in_pairs_so_that_everybody_is_inside_as_often():
    inside = membership.halves(11, 6, np.random.default_rng(0))
    assert (inside.sum(0) == 3).all() and inside.sum(1).tolist() == [5, 6] * 3


def test_a_model_that_learnt_its_records_by_heart_is_found_and_one_that_saw_none_is_not():
    random = torch.Generator().manual_seed(0)
    images, labels = torch.randn((80, 1, 6, 6), generator=random), torch.randint(4, (80,), generator=random)

    def model(rows, seed):
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Flatten(), nn.Linear(36, 32), nn.ReLU(), nn.Linear(32, 4))
        order = torch.Generator().manual_seed(seed)
        membership.fit(module, images[rows], labels[rows], steps=150, batch_size=20, rate=0.2, generator=order)
        return membership.confidence(module, images, labels)

    inside = membership.halves(80, 8, np.random.default_rng(0))
    shadows = np.stack([model(torch.from_numpy(np.flatnonzero(rows)), 10 + k) for k, rows in enumerate(inside)])
    seen = membership.likelihood_ratios(model(torch.arange(40), 1), shadows, inside)
    assert membership.measured(seen[:40], seen[40:]).auc > 0.9
    torch.manual_seed(2)
    fresh = nn.Sequential(nn.Flatten(), nn.Linear(36, 32), nn.ReLU(), nn.Linear(32, 4))
    unseen = membership.likelihood_ratios(membership.confidence(fresh, images, labels), shadows, inside)
    assert abs(membership.measured(unseen[:40], unseen[40:]).auc - 0.5) < 0.35  # 5 standard deviations of an even one


def test_distances_are_to_the_nearest_and_find_what_was_copied():
    rng = np.random.default_rng(0)
    members, others = rng.normal(size=(30, 1, 4, 4)), rng.normal(size=(40, 1, 4, 4))
    published = members[:10] + 1e-3
    near, far = membership.distances(members, published), membership.distances(others, published)
    by_hand = [min(np.linalg.norm(image - one) for one in published) for image in others]
    assert far == pytest.approx(-np.array(by_hand))
    assert membership.measured(near, far).identified == 10
    assert membership.measured(near[:10], far).auc == 1
