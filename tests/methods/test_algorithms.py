"""SCAFFOLD, FedPVR, FedDyn and FedNova against what their papers say, on problems small enough to work by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from stages.methods import feddyn
from stages.methods.averaging import WeightedMean, apply_update
from stages.methods.feddyn import FedDyn
from stages.methods.fednova import NormalisedMean, accumulation_norm
from stages.methods.fedpvr import FedPvr
from stages.methods.scaffold import Scaffold


class Quadratic(nn.Module):
    """F_i(w) = a/2·‖w − b‖² for each of two parameters, one of them in the classifier: the gradient is a(w − b)."""

    def __init__(self, start):
        super().__init__()
        self.trunk = nn.ParameterDict({"w": nn.Parameter(torch.tensor(start[0], dtype=torch.float64))})
        self.classifier = nn.ParameterDict({"w": nn.Parameter(torch.tensor(start[1], dtype=torch.float64))})

    def named(self):
        return dict(self.named_parameters())


def local_steps(algorithm_of, start, a, b, *, steps, rate):
    """`steps` exact gradient steps; returns (update by name, kept state)."""
    module = Quadratic(start)
    named = module.named()
    algorithm = algorithm_of(named)
    for _ in range(steps):
        for index, weight in enumerate(named.values()):
            weight.grad = a * (weight.detach() - b[index])
        algorithm.correct(named)
        for weight in named.values():
            weight.data -= rate * weight.grad
    kept = algorithm.finish(named, steps, rate)
    begin = Quadratic(start).named()
    return {name: (begin[name] - weight).detach().numpy() for name, weight in named.items()}, kept


NAMES = ("trunk.w", "classifier.w")
A, B = (1.0, 3.0), (np.array([2.0, -1.0]), np.array([-4.0, 5.0]))  # two clients with different optima
OPTIMUM = sum(a * b for a, b in zip(A, B, strict=True)) / sum(A)


def test_scaffold_steps_by_hand():
    """Two steps with c_i = 0.5, c = 0.2, written out."""
    control = {name: torch.tensor(0.5, dtype=torch.float64) for name in NAMES}
    server = {name: torch.tensor(0.2, dtype=torch.float64) for name in NAMES}
    update, kept = local_steps(lambda n: Scaffold(n, control, server), (1.0, 1.0), 2.0, (0.0, 3.0), steps=2, rate=0.1)
    for index, name in enumerate(NAMES):
        b = (0.0, 3.0)[index]
        y = 1.0
        for _ in range(2):
            y -= 0.1 * (2.0 * (y - b) - 0.5 + 0.2)
        assert update[name] == pytest.approx(1.0 - y, rel=1e-12)
        assert kept[name].item() == pytest.approx(0.5 - 0.2 + (1.0 - y) / (2 * 0.1), rel=1e-12)


def test_option_two_is_the_mean_gradient_along_the_path():
    """c_i⁺ of line 12 equals the average of the raw gradients that the client saw."""
    _, kept = local_steps(lambda n: Scaffold(n, {}, {}), (1.0, 1.0), 2.0, (0.0, 3.0), steps=3, rate=0.1)
    for index, name in enumerate(NAMES):
        b, y, seen = (0.0, 3.0)[index], 1.0, []
        for _ in range(3):
            seen.append(2.0 * (y - b))
            y -= 0.1 * seen[-1]
        assert kept[name].item() == pytest.approx(np.mean(seen), rel=1e-12)


def federate(rounds, make, server, *, steps, rate):
    """A federation of the two clients; returns the final weights [trunk, classifier]."""
    x = {name: np.array(1.0) for name in NAMES}
    states = [{}, {}]
    shared = None
    for _ in range(rounds):
        sent, changes = [], []
        for client, (a, b) in enumerate(zip(A, B, strict=True)):
            start = tuple(float(x[name]) for name in NAMES)
            update, kept = local_steps(
                lambda n, c=client, s=shared: make(n, states[c], s), start, a, b, steps=steps, rate=rate
            )
            sent.append(update)
            zero = torch.zeros((), dtype=torch.float64)
            changes.append({name: (kept[name] - states[client].get(name, zero)).numpy() for name in kept})
            states[client] = kept
        x, shared = server(x, sent, changes, shared)
    return np.array([float(x[name]) for name in NAMES])


def average(updates):
    mean = WeightedMean()
    for update in updates:
        mean.add({name: np.asarray(tensor) for name, tensor in update.items()}, 1)
    return mean.mean()


def scaffold_server(x, sent, changes, shared):
    mean = average(changes)
    shared = {
        name: (shared or {}).get(name, 0.0) + torch.from_numpy(np.asarray(change)) for name, change in mean.items()
    }
    return apply_update(x, average(sent)), shared


def test_scaffold_finds_the_optimum_where_fedavg_does_not():
    def run(make, **options):
        return federate(300, make, scaffold_server, **options)

    exact = run(lambda n, c, s: Scaffold(n, c, s or {}), steps=5, rate=0.05)
    np.testing.assert_allclose(exact, OPTIMUM, atol=1e-6)
    partial = run(lambda n, c, s: FedPvr(n, c, s or {}), steps=5, rate=0.05)
    assert partial[1] == pytest.approx(OPTIMUM[1], abs=1e-6), "the classifier is corrected"
    assert abs(partial[0] - OPTIMUM[0]) > 0.05, "the trunk drifts, as FedAvg's does"


def test_fedpvr_keeps_variates_for_the_classifier_only():
    _, kept = local_steps(lambda n: FedPvr(n, {}, {}), (1.0, 1.0), 2.0, (0.0, 3.0), steps=1, rate=0.1)
    assert set(kept) == {"classifier.w"}


def test_feddyn_steps_by_hand():
    h = {name: torch.tensor(0.3, dtype=torch.float64) for name in NAMES}
    update, kept = local_steps(lambda n: FedDyn(n, h, 0.5), (1.0, 1.0), 2.0, (0.0, 3.0), steps=2, rate=0.1)
    for index, name in enumerate(NAMES):
        b, y = (0.0, 3.0)[index], 1.0
        for _ in range(2):
            y -= 0.1 * (2.0 * (y - b) - 0.3 + 0.5 * (y - 1.0))
        assert update[name] == pytest.approx(1.0 - y, rel=1e-12)
        assert kept[name].item() == pytest.approx(0.3 - 0.5 * (y - 1.0), rel=1e-12)


def test_feddyn_server_by_hand():
    model = {"w": np.array([1.0], np.float32), "bn.running_mean": np.array([4.0], np.float32)}
    mean = {"w": np.array([0.5]), "bn.running_mean": np.array([1.0])}
    moved, kept = feddyn.server_step(model, mean, {"w": np.array([0.2])}, share=0.5, alpha=0.1)
    assert kept["w"] == pytest.approx(0.2 + 0.1 * 0.5 * 0.5)
    assert moved["w"] == pytest.approx(1.0 - 0.5 - 0.225 / 0.1)
    assert moved["bn.running_mean"] == pytest.approx(3.0)
    assert "bn.running_mean" not in kept


def test_feddyn_finds_the_optimum():
    """With local problems solved almost exactly the fixed point is the optimum of the sum (their Theorem 1)."""

    def server(x, sent, changes, shared):
        h = shared or {name: np.zeros(()) for name in NAMES}
        return feddyn.server_step(x, average(sent), h, share=1.0, alpha=1.0)

    def run(rounds):
        return federate(rounds, lambda n, c, s: FedDyn(n, c, 1.0), server, steps=100, rate=0.05)

    np.testing.assert_allclose(run(60), OPTIMUM, atol=1e-4)


def test_accumulation_norm_by_its_definition():
    """‖a‖₁ counted by unrolling momentum SGD: how often each gradient enters the sum of the steps."""
    for momentum in (0.0, 0.5, 0.9):
        for steps in (1, 2, 7):
            weights = np.zeros(steps)
            for gradient in range(steps):
                weights[gradient] = sum(momentum ** (step - gradient) for step in range(gradient, steps))
            assert accumulation_norm(steps, momentum) == pytest.approx(weights.sum(), rel=1e-12)
    with pytest.raises(ValueError, match="at least 1"):
        accumulation_norm(0, 0.0)


def test_fednova_by_hand():
    mean = NormalisedMean(0.0)
    mean.add({"w": np.array([2.0], np.float32)}, 1, 2)
    mean.add({"w": np.array([9.0], np.float32)}, 3, 6)
    # p = (1/4, 3/4); directions 1 and 1.5; τ_eff = 0.25·2 + 0.75·6 = 5
    assert mean.mean()["w"][0] == pytest.approx(5 * (0.25 * 1.0 + 0.75 * 1.5))


def test_fednova_is_fedavg_where_everyone_makes_the_same_steps():
    rng = np.random.default_rng(0)
    nova, plain = NormalisedMean(0.3), WeightedMean()
    for weight in (1, 2, 5):
        update = {"w": rng.normal(size=4).astype(np.float32)}
        nova.add(update, weight, 7)
        plain.add(update, weight)
    np.testing.assert_allclose(nova.mean()["w"], plain.mean()["w"], rtol=1e-12)
