"""Empirical audits: how well an attacker tells two neighbouring datasets apart bounds ε from below.

The attacker knows everything but the secret draws, and whether one record, or client, was there: the canary, as bad as
can be. Many runs of the real mechanisms give rates of true and false alarms; (ε, δ)-DP says that the first is at most
e^ε times the second plus δ. Where their Clopper and Pearson bounds break that, the ε is refuted. For the right code it
never is; mistakes planted on purpose are caught, by the audit or, where the name of the test says so, by sensitivity.
Canaries at right angles to each other share a run: each is a trial of its own, since no two share a coordinate's noise.
The server's mean of clients has a file of its own. All draws come from fixed keys: what passes, passes always.
"""

import dataclasses
import functools
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

import stages.methods.private_local_training as private_local_training
from stages.methods.private_gradients import SecretStreams
from stages.nets.dropout import Dropout
from stages.privacy import clipped_total, clipping
from stages.privacy.mechanism import GaussianMechanism
from stages.privacy.streams import CONTEXT, SecretStream

HEADS, PLACES, CLIP = 9, 500, 1.0
MANY, FEW = 16, 120  # releases with 250 canaries and 250 places without; releases with one or none


def test_the_bound_is_right_where_the_answer_is_known(lower_bound, claimed):
    """One Gaussian step: below the exact ε, and not far below; for no noise at all it grows with the runs."""
    rng = np.random.default_rng(0)
    for sigma in (0.5, 1.0, 2.0):
        found = lower_bound(1 + sigma * rng.normal(size=40_000), sigma * rng.normal(size=40_000))
        assert 0.6 * claimed(1, sigma) < found <= claimed(1, sigma)
    assert lower_bound(np.ones(1000), np.zeros(1000)) > 4
    assert lower_bound(np.zeros(1000), np.zeros(1000)) == 0


# One step of DP-SGD.


class Heads(nn.Module):
    """Logits Σ_k W_k·x of nine tensors; at zero every gradient is known, and equally long in all of them."""

    def __init__(self):
        super().__init__()
        self.heads = nn.ParameterList([nn.Parameter(torch.zeros(2, PLACES)) for _ in range(HEADS)])

    def forward(self, x):
        return x @ sum(self.heads).T


CANARIES = torch.eye(PLACES)[: PLACES // 2] * 1e4


def streams(world):
    """The worlds differ in their noise, so that their runs are independent."""
    keys = {"sampling": bytes(32), "examples": bytes(32), "noise": bytes([world]) * 32}
    return SecretStreams(**{label: SecretStream(key, dict.fromkeys(CONTEXT, 0), label) for label, key in keys.items()})


def released(module, images, world, *, runs, q, sigma, expected=2.0):
    """What so many steps from the same weights give out, each with coins and noise of its own, times the divisor."""
    mechanism = GaussianMechanism(clip_norm=CLIP, noise_multiplier=sigma, expected_size=expected)
    steps = private_local_training.private_gradients(
        module, images, torch.zeros(len(images), dtype=torch.int64), steps=runs, sampling_rate=q, mechanism=mechanism,
        streams=streams(world),
    )  # fmt: skip
    found = []
    for step in steps:
        step()
        found.append(torch.stack([weight.grad for weight in module.parameters()]).double().numpy())
    return np.array(found) * expected / CLIP


@pytest.fixture
def dp_sgd(lower_bound):
    """The audit of a step: places with a canary and places without, each along the canary's own gradient."""

    def of(runs, q, sigma):
        found = released(Heads(), CANARIES, 1, runs=runs, q=q, sigma=sigma)
        along = (found[:, :, 1] - found[:, :, 0]).sum(1) / math.sqrt(2 * HEADS)
        return lower_bound(along[:, : PLACES // 2].ravel(), along[:, PLACES // 2 :].ravel())

    return of


@pytest.fixture
def by_length(lower_bound):
    """Another audit: one record or two, told by the length of what is released."""

    def of(runs, sigma):
        lengths = []
        for world, images in ((1, torch.eye(40)[:2] * 1e4), (2, torch.eye(40)[:1] * 1e4)):
            found = released(nn.Linear(40, 2, bias=False), images, world, runs=runs, q=1.0, sigma=sigma)
            lengths.append(np.linalg.norm(found.reshape(runs, -1), axis=1))
        return lower_bound(*lengths)

    return of


@pytest.mark.parametrize(("q", "sigma"), [(1.0, 2.0), (0.5, 1.0)])
def test_a_step_of_dp_sgd_keeps_its_epsilon(q, sigma, claimed, dp_sgd):
    assert 0.3 * claimed(q, sigma) < dp_sgd(MANY, q, sigma) <= claimed(q, sigma)


def test_the_length_of_a_step_tells_little(claimed, by_length):
    assert by_length(FEW, 2.0) <= claimed(1.0, 2.0)


def test_half_the_noise_in_a_step_is_caught_by_the_audit(monkeypatch, claimed, dp_sgd, with_noise_times):
    monkeypatch.setattr(clipping, "noisy_mean", with_noise_times(0.5))
    assert dp_sgd(MANY, 0.5, 1.0) > claimed(0.5, 1.0)


def test_no_clipping_in_a_step_is_caught_by_the_audit(monkeypatch, claimed, dp_sgd):
    monkeypatch.setattr(clipped_total, "clipped_length", lambda clip: 1e9)
    assert dp_sgd(1, 1.0, 2.0) > claimed(1.0, 2.0)


def test_division_by_the_realised_batch_is_caught_by_the_audit(monkeypatch, claimed, by_length):
    """One record or two, where two were expected: the noise itself is divided by their number."""
    whole = private_local_training.noisy_gradient

    def by_the_realised_size(loss, weights, examples, *, mechanism, **options):
        realised = dataclasses.replace(mechanism, expected_size=max(1, len(examples[0])))
        return whole(loss, weights, examples, mechanism=realised, **options)

    monkeypatch.setattr(private_local_training, "noisy_gradient", by_the_realised_size)
    assert by_length(FEW, 2.0) > claimed(1.0, 2.0)


def tensor_by_tensor(whole, loss, weights, examples, **options):
    parts = {}
    for name in weights:
        rest = {n: t for n, t in weights.items() if n != name}

        def one(own, *example, rest=rest):
            return loss({**rest, **own}, *example)

        parts |= whole(one, {name: weights[name]}, examples, **options)
    return parts


def test_clipping_tensor_by_tensor_is_caught_by_the_audit(monkeypatch, claimed, dp_sgd):
    """Nine tensors: the canary reaches three times the clip."""
    monkeypatch.setattr(clipping, "clipped_sum", functools.partial(tensor_by_tensor, clipping.clipped_sum))
    assert dp_sgd(4, 1.0, 2.0) > claimed(1.0, 2.0)


# Dropout. Here even the masks are known to the attacker; only the noise is not.


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.linear = Dropout(0.5), nn.Linear(8, 2, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, x):
        return self.linear(self.drop(x))


CROWD = torch.randn(50, 8, generator=torch.Generator().manual_seed(1)) * 50
ODD_ONE = torch.full((1, 8), 50.0)


def sum_before_noise(images, step, sum_of):
    """What the attacker computes: the clipped sum of one step, from all that is not secret to him."""
    module = Dropping().train()
    masks = torch.Generator().manual_seed(streams(1).examples.at(step).torch_seed())
    module.drop.generator = masks

    def loss(weights, image, label):
        return nn.functional.cross_entropy(functional_call(module, weights, (image[None],)), label[None])

    weights = {name: weight.detach() for name, weight in module.named_parameters()}
    labels = torch.zeros(len(images), dtype=torch.int64)
    total = sum_of(loss, weights, (images, labels), clip_norm=CLIP, shared=masks)
    return np.concatenate([part.flatten().numpy() for part in total.values()])


def dropout_moves(steps, sum_of):
    """How far the one record, first in the batch, moves the sum in each step."""
    everyone = torch.cat([ODD_ONE, CROWD])
    return [sum_before_noise(everyone, n, sum_of) - sum_before_noise(CROWD, n, sum_of) for n in range(1, steps + 1)]


@pytest.fixture
def dropout_audit(lower_bound):
    """Each run is projected on the move that the attacker expects in it."""

    def of(runs, sigma, sum_of):
        moves = np.array(dropout_moves(runs, sum_of))
        base = np.array([sum_before_noise(CROWD, n, sum_of) for n in range(1, runs + 1)])
        unit = moves / np.maximum(np.linalg.norm(moves, axis=1, keepdims=True), 1e-9)
        worlds = []
        for world, images in ((1, torch.cat([ODD_ONE, CROWD])), (2, CROWD)):
            found = released(Dropping(), images, world, runs=runs, q=1.0, sigma=sigma).reshape(base.shape)
            worlds.append(((found - base) * unit).sum(1))
        return lower_bound(*worlds)

    return of


def public_masks_by_position(whole, loss, weights, examples, *, clip_norm, shared, chunk_size=None, people=None):
    """Dropout drawn for places in the batch, from a generator that everyone knows."""
    images, labels = examples
    masks = torch.rand(len(images), 8, generator=torch.Generator().manual_seed(5)) < 0.5

    def dropped(weights, image, label, mask):
        logits = (image * mask * 2) @ weights["linear.weight"].T
        return nn.functional.cross_entropy(logits[None], label[None])

    return whole(dropped, weights, (images, labels, masks), clip_norm=clip_norm)


def test_a_shared_dropout_mask_keeps_the_sensitivity_and_the_epsilon(claimed, dropout_audit):
    moves = np.linalg.norm(dropout_moves(30, clipping.clipped_sum), axis=1)
    assert 0.99 * CLIP < moves.max() <= CLIP
    assert dropout_audit(FEW, 2.0, clipping.clipped_sum) <= claimed(1.0, 2.0)


def test_a_public_dropout_mask_for_each_example_is_caught_by_sensitivity_and_by_the_audit(
    monkeypatch, claimed, dropout_audit
):
    """Whoever comes first shifts the masks of all who come after."""
    wrong = functools.partial(public_masks_by_position, clipping.clipped_sum)
    assert np.linalg.norm(dropout_moves(3, wrong), axis=1).min() > 4 * CLIP
    monkeypatch.setattr(clipping, "clipped_sum", wrong)
    assert dropout_audit(FEW, 2.0, wrong) > claimed(1.0, 2.0)
