"""What the stages make of a later round: its step size on both sides, and the radius and norms of the set that leaves.

Round 3 of a cosine that ends after four: half the first step size.
"""

import dataclasses
import math

import numpy as np
import pytest
import torch

from artifacts.formats import tensors_file
from stages.data.images import to_pixels
from stages.models.file import read_model, to_module
from stages.nets.build import initialise

COSINE = {"learning_rate": 0.8, "lr_schedule": "cosine", "schedule_rounds": 4}
RATE = 0.4  # 0.8 · (1 + cos(π · 2/4)) / 2

STEPS = 30


def loss_of(module, weights, images, labels):
    with torch.no_grad():
        logits = torch.func.functional_call(module, weights, (images,))
        return -float(logits.log_softmax(dim=1)[torch.arange(len(labels)), labels].mean())


def set_of(path):
    tensors = tensors_file.read(path).tensors
    return torch.tensor(tensors["images"]), torch.tensor(tensors["labels"])


@pytest.fixture
def later(federation):
    """The model after two rounds, its network, a client's data, and a set of the round before to begin with."""
    federation.module = module = to_module(read_model(federation.model), torch.device("cpu")).eval()
    initialise(module, torch.Generator().manual_seed(9))
    federation.weights = {name: weight.detach().clone() for name, weight in module.named_parameters()}
    federation.after_two = federation.model.with_name("model-0002.safetensors")
    tensors = {name: weight.detach().numpy() for name, weight in module.state_dict().items()}
    about = dataclasses.replace(tensors_file.read(federation.model).metadata, round=2)
    tensors_file.write(federation.after_two, tensors, about)
    mine = federation.digits.take(np.flatnonzero(np.isin(federation.digits.labels, (0, 1)))[:24])
    federation.data = torch.from_numpy(to_pixels(mine.images)), torch.from_numpy(mine.labels)
    found = tensors_file.read(federation.encode("00"))
    images = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0)).numpy()
    tensors_file.write(found.path, {**found.tensors, "images": images}, found.metadata, force=True)
    federation.begin = {"model": federation.after_two, "init": "previous", "previous": found.path}
    return federation


def after(weights, slope, rate):
    return {name: weight - rate * slope[name] for name, weight in weights.items()}


def test_a_client_walks_with_the_step_size_of_the_round(later, slow_gradient, slow_distance):
    """From the set before, on all data at once: nothing is drawn, and Algorithm 1 can be followed in a plain loop."""
    path = later.encode("00", points=3, image_rate=0.5, **later.begin, **COSINE)
    (images, labels), module, w = set_of(later.begin["previous"]), later.module, later.weights
    speed = torch.zeros_like(images)
    for _ in range(3):
        real, leaf = slow_gradient(module, w, *later.data), images.clone().requires_grad_()
        loss = slow_distance(real, slow_gradient(module, w, leaf, labels, create_graph=True))
        speed = 0.5 * speed + torch.autograd.grad(loss, leaf)[0]
        images = images - 0.5 * speed
        w = after(w, slow_gradient(module, w, images, labels), RATE)
    torch.testing.assert_close(set_of(path)[0], images, rtol=0, atol=1e-5)


def test_the_radius_is_that_of_the_set_that_leaves(later, slow_gradient):
    """Fig. 2 with the file's own images, every step, with the step size of the round; the norms are the data's."""

    def turn(images, labels, rate=RATE):
        w, curve = later.weights, []
        for _ in range(STEPS + 1):
            moved = [float((w[name] - start).double().square().sum()) for name, start in later.weights.items()]
            curve.append((loss_of(later.module, w, *later.data), math.sqrt(sum(moved))))
            w = after(w, slow_gradient(later.module, w, images, labels), rate)
        least = curve.index(min(curve))
        assert 0 < least < STEPS and curve[-1][1] < 10, "the loss turns on the way"
        return curve[least][1]

    path = later.encode("00", batches=10, points=1, radius_steps=STEPS, calibrate=True, **later.begin, **COSINE)
    found, expected = tensors_file.read(path).tensors, turn(*set_of(path))
    assert float(found["radius"]) == pytest.approx(expected, rel=1e-4)
    assert abs(turn(*set_of(later.begin["previous"])) / expected - 1) > 0.05, "the set that it began with has another"
    slope = slow_gradient(later.module, later.weights, *later.data)
    assert found["norms"] == pytest.approx([float(part.norm()) for part in slope.values()], rel=1e-4)


@pytest.mark.parametrize("method", ["fedlap", "feddm"])
def test_a_server_descends_with_the_step_size_of_the_round(later, method, slow_gradient):
    later.client("01", classes=(2, 3, 4))
    sets = [later.encode(name, method, model=later.after_two) for name in ("00", "01")]
    once = {"strategy": "fixed", "radius": None, "server_steps": 1} if method == "fedlap" else {"server_epochs": 1}
    out = later.root / "server/outbox/model-0003.safetensors"
    later.aggregate(sets, method, model=later.after_two, out=out, **once, **COSINE)
    parts = [set_of(path) for path in sets]
    if method == "fedlap":
        slopes = [slow_gradient(later.module, later.weights, *part) for part in parts]
        slope = {name: (slopes[0][name] + slopes[1][name]) / 2 for name in later.weights}
    else:
        slope = slow_gradient(later.module, later.weights, *(torch.cat(both) for both in zip(*parts, strict=True)))
    found = tensors_file.read(out)
    assert found.metadata.round == 3
    for name, expected in after(later.weights, slope, RATE).items():
        torch.testing.assert_close(torch.tensor(found.tensors[name]), expected, rtol=0, atol=1e-6)
    assert max(float(part.abs().max()) for part in slope.values()) > 0.01, "a wrong step size would show"
