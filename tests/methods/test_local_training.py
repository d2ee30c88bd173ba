"""Local SGD and its corrections against hand-worked numpy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from stages.methods.fedavg import FedAvg
from stages.methods.fedprox import FedProx
from stages.methods.local_training import batch_gradients, batches, train_locally
from stages.methods.params.fedavg import FedAvgTraining
from stages.methods.params.fedprox import FedProxTraining
from stages.methods.params.fedsgd import FedSgdTraining
from stages.nets.state import exchanged
from stages.registry import ALGORITHMS

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(12, 1, 2, 2)).astype(np.float32)
LABELS = RNG.integers(0, 3, size=12)


def softmax_net():
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    weights = np.random.default_rng(1)
    with torch.no_grad():
        net[1].weight.copy_(torch.from_numpy(weights.normal(size=(3, 4))))
        net[1].bias.copy_(torch.from_numpy(weights.normal(size=3)))
    return net


def numpy_gradient(weight, bias, rows):
    """Gradient of the mean cross-entropy of softmax regression, worked out by hand."""
    x, y = IMAGES[rows].reshape(len(rows), -1).astype(np.float64), LABELS[rows]
    logits = x @ weight.T + bias
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    return p.T @ x / len(y), p.mean(axis=0)


def local(net, params, algorithm, round=1, seed=5):
    images, labels = torch.from_numpy(IMAGES), torch.from_numpy(LABELS)
    total = params.num_steps([len(LABELS)])
    rows = batches(params.num_in_batch(len(LABELS)), len(LABELS), total, torch.Generator().manual_seed(seed))
    return train_locally(
        net,
        batch_gradients(net, images, labels, rows, torch.Generator().manual_seed(seed)),
        total=total,
        params=params,
        algorithm=algorithm,
        round=round,
        report=lambda done, total, loss: None,
    )


def numpy_local(params, mu=0.0, round=1, seed=5):
    """The same local training in numpy: heavy-ball momentum and weight decay as torch's SGD defines them."""
    net = softmax_net()
    weight, bias = net[1].weight.detach().double().numpy().copy(), net[1].bias.detach().double().numpy().copy()
    start_weight, start_bias = weight.copy(), bias.copy()
    moved_weight, moved_bias = np.zeros_like(weight), np.zeros_like(bias)
    rate = params.rate(round)
    size, momentum = params.num_in_batch(len(LABELS)), getattr(params, "momentum", 0.0)
    for rows in batches(size, len(LABELS), params.num_steps([len(LABELS)]), torch.Generator().manual_seed(seed)):
        grad_weight, grad_bias = numpy_gradient(weight, bias, rows.numpy())
        grad_weight = grad_weight + mu * (weight - start_weight) + params.weight_decay * weight
        grad_bias = grad_bias + mu * (bias - start_bias) + params.weight_decay * bias
        moved_weight = momentum * moved_weight + grad_weight
        moved_bias = momentum * moved_bias + grad_bias
        weight, bias = weight - rate * moved_weight, bias - rate * moved_bias
    return start_weight - weight, start_bias - bias


CASES = {
    "sgd": (FedAvgTraining(local_epochs=2, batch_size=5, learning_rate=0.3), 0.0),
    "momentum and decay": (FedAvgTraining(local_steps=7, batch_size=5, momentum=0.9, weight_decay=0.01), 0.0),
    "fedsgd": (FedSgdTraining(learning_rate=0.5), 0.0),
    "fedprox": (FedProxTraining(mu=0.7, local_epochs=3, batch_size=4), 0.7),
    "exponential decay": (FedAvgTraining(lr_schedule="exponential", lr_decay=0.5, batch_size=4), 0.0),
}


@pytest.mark.parametrize("name", CASES)
def test_update_equals_the_hand_worked_one(name):
    params, mu = CASES[name]
    net = softmax_net()
    algorithm = FedProx(dict(net.named_parameters()), mu) if mu else FedAvg()
    result = local(net, params, algorithm, round=3)
    weight, bias = numpy_local(params, mu, round=3)
    np.testing.assert_allclose(result.update["1.weight"].numpy(), weight, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(result.update["1.bias"].numpy(), bias, rtol=2e-5, atol=1e-6)


def test_the_proximal_term_is_not_negligible_in_that_test():
    params, mu = CASES["fedprox"]
    with_term, _ = numpy_local(params, mu)
    without, _ = numpy_local(params, 0.0)
    assert np.abs(with_term - without).max() > 1e-3


def test_update_is_start_minus_end():
    net = softmax_net()
    start = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    result = local(net, FedAvgTraining(local_steps=3), FedAvg())
    for name, tensor in net.state_dict().items():
        assert torch.equal(start[name] - tensor, result.update[name])


def test_batch_norms_averages_are_exchanged_and_its_counter_is_not():
    assert set(exchanged(nn.BatchNorm2d(2))) == {"weight", "bias", "running_mean", "running_var"}


@given(
    n=st.integers(1, 60),
    batch=st.integers(1, 20),
    epochs=st.integers(1, 3),
    steps=st.none() | st.integers(1, 40),
)
@settings(max_examples=60)
def test_batches_cover_each_pass_once(n, batch, epochs, steps):
    params = (
        FedAvgTraining(batch_size=batch, local_steps=steps)
        if steps
        else FedAvgTraining(batch_size=batch, local_epochs=epochs)
    )
    count = params.num_steps([n])
    drawn = [rows.tolist() for rows in batches(batch, n, count, torch.Generator().manual_seed(n))]
    assert len(drawn) == count
    per_pass = -(-n // batch)
    for first in range(0, len(drawn) - per_pass + 1, per_pass):
        rows = [row for rows in drawn[first : first + per_pass] for row in rows]
        assert sorted(rows) == list(range(n))
    assert all(len(rows) <= batch for rows in drawn)


@pytest.mark.parametrize(
    ("values", "round", "expected"),
    [
        ({"learning_rate": 0.2}, 9, 0.2),
        ({"learning_rate": 0.1, "lr_schedule": "exponential", "lr_decay": 0.998}, 1, 0.1),
        ({"learning_rate": 0.1, "lr_schedule": "exponential", "lr_decay": 0.5}, 4, 0.0125),
        ({"learning_rate": 0.1, "lr_schedule": "cosine", "schedule_rounds": 4}, 1, 0.1),
        ({"learning_rate": 0.1, "lr_schedule": "cosine", "schedule_rounds": 4}, 3, 0.05),
        ({"learning_rate": 0.05, "lr_schedule": "steps", "lr_steps": "81,161"}, 80, 0.05),
        ({"learning_rate": 0.05, "lr_schedule": "steps", "lr_steps": "81,161"}, 81, 0.005),
        ({"learning_rate": 0.05, "lr_schedule": "steps", "lr_steps": "81, 161"}, 161, 0.0005),
        ({"learning_rate": 0.1, "lr_schedule": "steps", "lr_steps": "3", "lr_decay": 0.5}, 9, 0.05),
    ],
)
def test_rate_of_a_round(values, round, expected):
    assert FedAvgTraining(**values).rate(round) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"local_epochs": 1, "local_steps": 1}, "--local-epochs and --local-steps"),
        ({"batch_size": 0}, "--batch-size"),
        ({"learning_rate": -1}, "--learning-rate"),
        ({"learning_rate": float("nan")}, "--learning-rate"),
        ({"learning_rate": "fast"}, "--learning-rate"),
        ({"batch_size": 2.5}, "--batch-size"),
        ({"batch_size": True}, "--batch-size"),
        ({"momentum": 1.0}, "--momentum"),
        ({"mu": 0.1}, "--mu"),
        ({"algorithm": "fedprox", "mu": -1}, "--mu"),
        ({"alpha": 0.1}, "--alpha"),
        ({"algorithm": "feddyn", "alpha": 0}, "--alpha"),
        ({"algorithm": "scaffold", "momentum": 0.9}, "--momentum"),
        ({"algorithm": "fedsgd", "local_epochs": 3}, "fedsgd"),
        ({"algorithm": "fedfoo"}, "--algorithm"),
        ({"lr_decay": 0.9}, "--lr-decay"),
        ({"lr_schedule": "cosine"}, "--schedule-rounds"),
        ({"lr_schedule": "steps"}, "--lr-steps"),
        ({"lr_schedule": "steps", "lr_steps": "5,5"}, "--lr-steps"),
        ({"lr_schedule": "steps", "lr_steps": "soon"}, "--lr-steps"),
        ({"lr_steps": "5"}, "--lr-steps"),
    ],
)
def test_a_wrong_parameter_is_named(values, named):
    with pytest.raises(ValueError, match=named):
        ALGORITHMS.from_mapping(values)
