"""Clients trained together: as one by one but for rounding, and bit for bit whoever else is in the stack."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from stages.methods.local_training import batch_gradients, batches, train_locally
from stages.methods.params.fedavg import FedAvgTraining
from stages.methods.params.fedprox import FedProxTraining
from stages.methods.stacked_training import ClientTask, filled_size, refuse_stack, train_stacked
from stages.nets.build import build, initialise
from stages.nets.dropout import Dropout
from stages.nets.params import InputShape
from stages.nets.state import trained
from stages.registry import ALGORITHMS, NETWORKS

SIZES = (11, 20, 16, 9)  # uneven: other last batches, other numbers of steps
PLACES, BATCH = 4, 8


def network(arch="strided", side=16, channels=1, **size):
    shape = InputShape(channels=channels, height=side, width=side, num_classes=5)
    net = build(NETWORKS.from_mapping({"arch": arch, **size}), shape)
    initialise(net, torch.Generator().manual_seed(0))
    return net


def client(number, side=16, channels=1):
    rng = np.random.default_rng(number)
    size = SIZES[number % len(SIZES)]
    images = torch.from_numpy(rng.normal(size=(size, channels, side, side)).astype(np.float32))
    return images, torch.from_numpy(rng.integers(0, 5, size=size))


def rows_of(params, number, labels):
    total = params.num_steps([len(labels)])
    return batches(params.num_in_batch(len(labels)), len(labels), total, torch.Generator().manual_seed(number)), total


def alone(net, params, number, round=1):
    images, labels = client(number)
    rows, total = rows_of(params, number, labels)
    steps = batch_gradients(net, images, labels, rows, torch.Generator())
    return train_locally(
        net, steps, total=total, params=params, algorithm=params.client(trained(net), {}, {}), round=round,
        report=lambda *_: None,
    )  # fmt: skip


def stacked(net, params, numbers, *, places=PLACES, round=1, **form):
    tasks = []
    for number in numbers:
        images, labels = client(number, **form)
        tasks.append(ClientTask(images, labels, *rows_of(params, number, labels)))
    return train_stacked(
        net, tasks, places=places, rows=BATCH, params=params, round=round, report=lambda *_: None
    )  # fmt: skip


def training(kind=FedAvgTraining, **params):
    usual = {"local_epochs": 2, "batch_size": BATCH, "learning_rate": 0.05, "momentum": 0.5, "weight_decay": 0.01}
    return kind(together=PLACES, **usual, **params)


WAYS = {
    "plain": training(),
    "decayed": training(lr_schedule="exponential", lr_decay=0.5),
    "proximal": training(FedProxTraining, mu=0.5),
    "sam": training(sam_rho=0.1),
    "adaptive-sam": training(sam_rho=0.5, adaptive_sam=True),
    "blur": training(update_bound=0.01, update_penalty=5.0),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_client_gets_what_it_would_get_alone(way):
    params = WAYS[way]
    found = stacked(network(), params, range(4), round=3)
    for number, result in enumerate(found):
        expected = alone(network(), params, number, round=3)
        assert result.num_steps == expected.num_steps
        assert list(result.update) == list(expected.update)
        for name, tensor in expected.update.items():
            torch.testing.assert_close(result.update[name], tensor, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(("one", "other"), [("plain", "proximal"), ("plain", "sam"), ("sam", "adaptive-sam")])
def test_that_comparison_tells_the_ways_apart(one, other):
    found, wrong = (stacked(network(), WAYS[way], [0])[0].update for way in (one, other))
    assert any(not torch.allclose(found[name], wrong[name], rtol=1e-3, atol=1e-6) for name in found)


NETS = {
    "strided": ("strided", {"width": 3}),
    "wider": ("strided", {"width": 8}),
    "convnet": ("convnet", {"width": 5, "depth": 2}),
    "mlp": ("mlp", {"width": 9}),
    "softmax": ("softmax", {}),
    "emnist-cnn": ("emnist-cnn", {}),
    "lenet5": ("lenet5", {}),
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("channels", [1, 3])
def test_neither_the_others_nor_the_place_change_a_bit(name, channels):
    """A replay has the one client alone: the file would be called forged if it came out otherwise."""
    arch, size = NETS[name]
    form = {"side": 32 if arch == "lenet5" else 16, "channels": channels}
    params = FedAvgTraining(together=PLACES, local_steps=2, batch_size=BATCH, learning_rate=0.05, sam_rho=0.1)
    first = stacked(network(arch, **form, **size), params, [0], **form)[0]
    for order in ([1, 0, 2, 3], [2, 1, 0], [3, 5, 6, 0]):
        found = stacked(network(arch, **form, **size), params, order, **form)[order.index(0)]
        for key, tensor in first.update.items():
            assert torch.equal(found.update[key], tensor), (key, order)


def test_a_client_that_diverges_leaves_the_others_alone():
    params = training()
    images, labels = client(1)
    bad = ClientTask(images * math.nan, labels, *rows_of(params, 1, labels))
    images, labels = client(0)
    good = ClientTask(images, labels, *rows_of(params, 0, labels))
    kept = {"places": PLACES, "rows": BATCH, "params": params, "round": 1, "report": lambda *_: None}
    found = train_stacked(network(), [bad, good], **kept)
    expected = stacked(network(), params, [0])[0]
    assert not all(tensor.isfinite().all() for tensor in found[0].update.values())
    assert all(torch.equal(found[1].update[name], tensor) for name, tensor in expected.update.items())


def test_frozen_weights_stay_and_are_no_part_of_the_update():
    net = network()
    net.trunk.conv1.weight.requires_grad_(False)
    net.frozen_names = frozenset({"trunk.conv1.weight"})
    found = stacked(net, training(), [0, 1])
    assert "trunk.conv1.weight" not in found[0].update
    assert "trunk.conv1.bias" in found[0].update


@pytest.mark.parametrize(("have", "size", "rows"), [(1, 8, 1), (2, 8, 2), (3, 8, 4), (5, 8, 8), (9, 8, 8), (9, 30, 16)])
def test_how_far_a_batch_is_filled_up(have, size, rows):
    assert filled_size(have, size) == rows


@pytest.mark.parametrize(
    ("layer", "word"), [(nn.BatchNorm1d(5), "3 is a batch norm"), (Dropout(0.5), "3 is a dropout")]
)
def test_layers_that_cannot_be_stacked_are_refused(layer, word):
    with pytest.raises(ValueError, match=word):
        refuse_stack(nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.ReLU(), layer))


REFUSED = [
    ({"together": 1}, "together must be at least 2"),
    ({"together": 4, "algorithm": "scaffold"}, "algorithm must be one of fedavg, fedprox with --together"),
    ({"together": 4, "micro_batch": 4}, "--together 4 does not go with --micro-batch"),
    ({"together": 4, "precision": "bf16"}, "--together 4 does not go with --precision"),
    (
        {"together": 4, "noise_multiplier": 1.0, "sampling_rate": 0.1, "local_steps": 2},
        "--together 4 does not go with --noise-multiplier",
    ),
]


@pytest.mark.parametrize(("params", "words"), REFUSED)
def test_what_does_not_go_with_it(params, words):
    with pytest.raises(ValueError, match=words):
        ALGORITHMS.from_mapping(params)
