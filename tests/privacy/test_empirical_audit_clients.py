"""Empirical audits of the server's mean of clients, as in test_empirical_audit.py: the canaries are clients here."""

import math

import numpy as np
import pytest

import stages.charging.updates as private_updates
from artifacts.identity.keys import Key
from artifacts.metadata import InputRef, Metadata
from stages.methods.params.aggregation import DpMeanRule
from stages.privacy.streams import SecretStream
from stages.sample_clients import drawn

HEADS, PLACES, CLIP, MANY = 9, 500, 1.0, 48
MODEL = {"a": np.zeros(PLACES, np.float32), "b": np.zeros((2, 2), np.float32)}


def update(place, size=1e4):
    return MODEL | {"a": np.eye(1, PLACES, place, dtype=np.float32)[0] * np.float32(size)}


CLIENTS = {f"{place:03}": update(place) for place in range(PLACES // 2)}


class Free:
    """In the ledger's place: nothing is entered, and every machine draws the same noise."""

    def __init__(self, context, events):
        self.context, self.events = {**context, "device": "cpu", "arithmetic": "any"}, events

    def stream(self, label):
        return SecretStream(bytes(range(32)), self.context, label)

    def release(self, _output, _part, event):
        return event


@pytest.fixture(autouse=True)
def no_ledger(monkeypatch):
    def reserve(key, *, context, data, events, draw=None):
        return Free(context, tuple(events))

    monkeypatch.setattr(private_updates, "reserve", reserve)


def mean(updates, number, q=1.0, sigma=1.0, clip=CLIP):
    """One release of dp-mean, of clients drawn and added up as `aggregate` does: the noised sum, in clips."""
    params = DpMeanRule(clip_norm=clip, noise_multiplier=sigma, sampling_rate=q, clients=400)
    bounds = private_updates.Bounds(params, None, None, MODEL)
    total = {name: np.zeros(tensor.shape) for name, tensor in MODEL.items()}
    for name in drawn(list(updates), q, number, Key(bytes(32))):
        for tensor, change in bounds.apply(updates[name]).items():
            total[tensor] += change
    about = Metadata(
        kind="model", stage="aggregate", custody="downlink", round=number, versions={}, params=params.to_json(),
        inputs=(InputRef(role="model", kind="model", sha256="0" * 64),),
    )  # fmt: skip
    noised = private_updates.add_noise(total, 0, bounds, params, about, None)
    assert [event["noise_multiplier"] for event in noised.events] == [sigma]
    return noised.mean["a"] * params.expected_clients / clip


@pytest.fixture
def dp_mean(lower_bound):
    def of(runs, q, sigma):
        found = np.array([mean(CLIENTS, number, q, sigma) for number in range(1, runs + 1)])
        return lower_bound(found[:, : PLACES // 2].ravel(), found[:, PLACES // 2 :].ravel())

    return of


@pytest.mark.parametrize(("q", "sigma"), [(1.0, 2.0), (0.5, 1.0)])
def test_the_mean_of_clients_keeps_its_epsilon(q, sigma, claimed, dp_mean):
    assert 0.3 * claimed(q, sigma) < dp_mean(MANY, q, sigma) <= claimed(q, sigma)


def test_half_the_noise_for_clients_is_caught_by_the_audit(monkeypatch, claimed, dp_mean, with_noise_times):
    monkeypatch.setattr(private_updates, "noisy_mean", with_noise_times(0.5))
    assert dp_mean(MANY, 0.5, 1.0) > claimed(0.5, 1.0)


def test_no_clipping_of_clients_is_caught_by_the_audit(monkeypatch, claimed, dp_mean):
    monkeypatch.setattr(private_updates, "clipped", lambda contribution, clip: dict(contribution))
    assert dp_mean(1, 1.0, 2.0) > claimed(1.0, 2.0)


@pytest.fixture
def two_clips(lower_bound):
    """Two releases, to clips of 0.5 and 1, of canaries as long as 0.6: by how much they differ."""

    def of(sigma):
        clients = {name: update(int(name), 0.6) for name in CLIENTS}
        first, second = (mean(clients, 1, sigma=sigma, clip=clip) for clip in (0.5, 1.0))
        return lower_bound((first - second)[: PLACES // 2], (first - second)[PLACES // 2 :])

    return of


def test_noise_after_a_changed_parameter_is_other_noise(claimed, two_clips):
    assert two_clips(2.0) <= claimed(1.0, 2.0, releases=2)


def test_noise_reused_after_a_changed_parameter_is_caught_by_the_audit(monkeypatch, claimed, two_clips):
    """A context without the parameters: the difference of the two releases is free of noise."""
    whole = private_updates._context
    monkeypatch.setattr(private_updates, "_context", lambda metadata: whole(metadata) | {"params": {}})
    assert two_clips(2.0) > claimed(1.0, 2.0, releases=2)


def test_both_clips_by_tensors_are_caught_by_sensitivity():
    """The same contribution through both of our clips and through a wrong one: C at most, or C·√L."""
    loud = {str(k): np.full(2, 1e4, np.float32) for k in range(HEADS)}
    ours = private_updates.clipped(loud, CLIP)
    assert math.sqrt(sum(np.square(t).sum() for t in ours.values())) <= CLIP
    wrong = [private_updates.clipped({name: tensor}, CLIP)[name] for name, tensor in loud.items()]
    assert math.sqrt(sum(np.square(t).sum() for t in wrong)) > 2.9 * CLIP
