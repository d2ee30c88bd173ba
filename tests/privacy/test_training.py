"""DP-SGD as a method will write it: a secret Poisson sample, a noisy gradient, a step. It learns, and it resumes."""

import pytest
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from stages.privacy.accountant import calibrated
from stages.privacy.clipping import noisy_gradient
from stages.privacy.mechanism import GaussianMechanism

RATE, STEPS = 0.1, 120  # public constants; so is the expected size, which is not computed from the data


def loss(weights, image, label):
    return cross_entropy((weights["w"] @ image + weights["b"])[None], label[None])


@pytest.fixture(scope="module")
def digits():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = load_digits()
    images = torch.tensor(found.data, dtype=torch.float32) / 8 - 1
    yield images, torch.tensor(found.target)
    torch.set_num_threads(threads)


def train(data, stream_of, mechanism, *, first=0, last=STEPS, weights=None):
    images, labels = data
    weights = weights or {"w": torch.zeros(10, 64), "b": torch.zeros(10)}
    sampling, noise = stream_of("sampling"), stream_of("noise")
    for step in range(first, last):
        rows = torch.from_numpy(sampling.at(step).bernoulli(RATE, len(labels)))
        gradient = noisy_gradient(
            loss, weights, (images[rows], labels[rows]), mechanism=mechanism, noise=noise.at(step)
        )
        weights = {name: weight - 2.0 * gradient[name] for name, weight in weights.items()}
    return weights


@pytest.mark.slow
def test_dp_sgd_learns_digits_at_epsilon_two(digits, stream_of):
    images, labels = (part[:1400] for part in digits)
    sigma = calibrated(2.0, delta=1e-4, sampling_rate=RATE, steps=STEPS)
    mechanism = GaussianMechanism(clip_norm=1.0, noise_multiplier=sigma, expected_size=150.0)
    weights = train((images, labels), stream_of, mechanism)
    test_images, test_labels = (part[1400:] for part in digits)
    predicted = (test_images @ weights["w"].T + weights["b"]).argmax(dim=1)
    assert (predicted == test_labels).float().mean() > 0.75


def test_a_training_that_was_stopped_ends_where_it_would_have_ended(digits, stream_of):
    data = tuple(part[:200] for part in digits)
    mechanism = GaussianMechanism(clip_norm=1.0, noise_multiplier=1.0, expected_size=20.0)
    whole = train(data, stream_of, mechanism, last=12)
    part = train(data, stream_of, mechanism, last=5)
    resumed = train(data, stream_of, mechanism, first=5, last=12, weights=part)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
