"""ζ², σ² and δ² against plain loops, and Lemma 1 on data that are really shuffled."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from stages.methods import heterogeneity as measured
from stages.methods.heterogeneity import (
    GradientMoments,
    gradient_moments,
    heterogeneity,
    lemma_bounds,
    mixed,
    pooled,
    shift,
)


@pytest.fixture(scope="module")
def net():
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return net


@pytest.fixture(scope="module")
def precise(net):
    """In double precision: how a batch is cut then changes the fifteenth digit, on every processor."""
    return copy.deepcopy(net).double()


def data(seed, n=30, tilt=0.0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(n, 1, 2, 2, generator=generator) + tilt
    return images, torch.randint(0, 3, (n,), generator=generator)


def looped(net, images, labels):
    """Every example's gradient by an ordinary backward pass."""
    rows = []
    for image, label in zip(images, labels, strict=True):
        loss = nn.functional.cross_entropy(net(image[None]), label[None])
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))]))
    return torch.stack(rows).double().numpy()


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_moments_equal_a_plain_loop(net, chunk):
    images, labels = data(1)
    found = gradient_moments(net, images, labels, chunk=chunk)
    gradients = looped(net, images, labels)
    np.testing.assert_allclose(found.mean.numpy(), gradients.mean(axis=0), rtol=1e-4, atol=1e-6)
    spread = ((gradients - gradients.mean(axis=0)) ** 2).sum(axis=1).mean()
    assert found.variance == pytest.approx(spread, rel=1e-4)


def test_dissimilarity_and_shift_by_hand():
    clients = [GradientMoments(torch.tensor([1.0, 0.0]), 5.0), GradientMoments(torch.tensor([3.0, 4.0]), 26.0)]
    found = heterogeneity(clients)
    # centre (2, 2): each is √5 away; σ² = 5 − 1 and 26 − 25
    assert (found.dissimilarity, found.noise, found.noise_max) == (5.0, 2.5, 4.0)
    assert shift(clients, GradientMoments(torch.tensor([2.0, 0.0]), 9.0)) == 4.0


def doubled(images, labels):
    return images.double(), labels


def test_a_mixture_has_the_moments_of_the_joined_data(precise):
    own, other = doubled(*data(1, n=30)), doubled(*data(2, n=10, tilt=1.0))
    joined = torch.cat([own[0], other[0]]), torch.cat([own[1], other[1]])
    expected = gradient_moments(precise, *joined)
    found = mixed(gradient_moments(precise, *own), gradient_moments(precise, *other), share=0.25)
    assert torch.allclose(found.mean, expected.mean)
    assert found.variance == pytest.approx(expected.variance, rel=1e-9)


def test_parts_pooled_have_the_moments_of_the_joined_data(precise):
    parts = [doubled(*data(1, n=30)), doubled(*data(2, n=10, tilt=1.0)), doubled(*data(3, n=5))]
    expected = gradient_moments(precise, *(torch.cat([part[i] for part in parts]) for i in (0, 1)))
    found = pooled([gradient_moments(precise, *part) for part in parts], [30, 10, 5])
    assert torch.allclose(found.mean, expected.mean)
    assert found.variance == pytest.approx(expected.variance, rel=1e-9)


def test_a_large_network_takes_fewer_examples_at_a_time(precise, monkeypatch):
    images, labels = doubled(*data(1))
    expected = gradient_moments(precise, images, labels)
    monkeypatch.setattr(measured, "_MOST_NUMBERS", 100)  # two gradients of the 43 parameters
    found = gradient_moments(precise, images, labels)
    assert torch.allclose(found.mean, expected.mean)
    assert found.second == pytest.approx(expected.second, rel=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_lemma_one_holds_and_is_tight_for_the_dissimilarity(net, share):
    """For a true mixture ζ̂²_p is exactly (1−p)²ζ²; σ̂²_p stays below its bound."""
    clients = [gradient_moments(net, *data(seed, tilt=seed - 2.0)) for seed in range(5)]
    shared = gradient_moments(net, *data(9, n=50, tilt=0.3))
    before, after = heterogeneity(clients), heterogeneity([mixed(client, shared, share) for client in clients])
    zeta_bound, noise_bound = lemma_bounds(
        before, shared_noise=shared.variance, shift=shift(clients, shared), share=share
    )
    assert after.dissimilarity == pytest.approx(zeta_bound, rel=1e-9, abs=1e-12)
    assert after.noise <= noise_bound * (1 + 1e-9)
