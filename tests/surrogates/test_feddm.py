"""FedDM: weights in a ball, Eq. 9, means of batches, and the server's projected descent."""

import copy
import math

import numpy as np
import pytest
import torch
from scipy import stats

from stages.methods.feddm import BatchMeans, drawn_weights, embedded, embedded_size, match
from stages.methods.feddm_server import optimise, within
from stages.methods.params.feddm import FedDmEncoding
from stages.methods.surrogate_nets import LabelledSet, distance, start_weights


def silent(*_):
    pass


def loaded(module, weights):
    """A copy of the network with these weights in it."""
    other = copy.deepcopy(module)
    other.load_state_dict({**other.state_dict(), **weights})
    return other


@pytest.mark.parametrize("arch", ["softmax", "mlp", "convnet"])
def test_embedded_is_features_and_logits(arch, net, some):
    module, data = net(arch), some(5)
    weights = drawn_weights(start_weights(module), 2.0, torch.Generator().manual_seed(0))
    found = embedded(module, weights, data.images)
    other = loaded(module, weights)
    torch.testing.assert_close(found, torch.cat([other.features(data.images), other(data.images)], dim=1))
    assert found.shape == (5, embedded_size(module))


# P_w.


def test_drawn_weights_lie_in_the_ball_and_point_anywhere():
    """With many weights all lie on the sphere, in any direction; with few and a large ρ they are normal draws."""
    origin = {"a": torch.full((10, 10), 3.0), "b": torch.full((50,), -1.0)}
    generator, moves = torch.Generator().manual_seed(0), []
    for _ in range(200):
        drawn = drawn_weights(origin, 5.0, generator)
        assert 4.999 < distance(drawn, origin) < 5.0001
        moves.append(torch.cat([(drawn[n] - origin[n]).flatten() for n in origin]).double())
    moves = torch.stack(moves).numpy()
    coordinates = moves * math.sqrt(150) / 5
    assert abs(coordinates.mean()) * math.sqrt(coordinates.size) < 4
    assert coordinates.var() == pytest.approx(1, abs=0.03)
    cosines = (moves @ moves.T / 25)[np.triu_indices(200, 1)]
    assert abs(cosines).max() < 0.6 and abs(cosines.mean()) < 0.01
    one = {"w": torch.zeros(2)}
    free = np.array([drawn_weights(one, 100.0, generator)["w"].tolist() for _ in range(500)])
    assert stats.kstest(free.ravel(), "norm").pvalue > 1e-3
    near = [distance(drawn_weights(one, 0.5, generator), one) for _ in range(300)]
    assert max(near) < 0.500001 and 0.05 < np.mean(np.array(near) < 0.499) < 0.3, "those that were inside stay"


# Eq. 9.


def eq_9(module, data, images, labels):
    """By class, squared distances of mean features and of mean logits; with loops."""
    total = 0.0
    for label in sorted(set(labels.tolist()) & set(data.labels.tolist())):
        real, mine = data.images[data.labels == label], images[labels == label]
        for layer in (module.features, module):
            total = total + ((layer(real).mean(dim=0) - layer(mine).mean(dim=0)) ** 2).sum()
    return total


@pytest.mark.parametrize(("arch", "in_order"), [("softmax", False), ("mlp", False), ("mlp", True), ("convnet", True)])
def test_a_step_goes_down_the_slope_of_eq_9(arch, in_order, net, some, slope_of):
    """The classes differ: of four asked for, three are in the data; the fourth's images stay as they are."""
    module, data, start = net(arch, classes=4), some(9, classes=3), some(8, classes=4, seed=3)
    if in_order:
        start = LabelledSet(start.images, start.labels.sort().values)
    params = FedDmEncoding(iterations=1, image_rate=1.0, image_momentum=0.0, rho=0.5)
    means = BatchMeans(module, data, 99, torch.Generator())
    after = match(module, start, means, params=params, generator=torch.Generator().manual_seed(8), report=silent)
    there = loaded(module, drawn_weights(start_weights(module), 0.5, torch.Generator().manual_seed(8)))
    moved = start.images - after.surrogate.images
    with torch.no_grad():
        slopes = slope_of(lambda images: eq_9(there, data, images, start.labels), start.images, pixels=30)
        assert after.losses == pytest.approx([float(eq_9(there, data, start.images, start.labels))], rel=1e-6)
    for pixel, slope in slopes:
        assert float(moved.view(-1)[pixel]) == pytest.approx(slope, rel=1e-4, abs=1e-7)
    assert torch.equal(moved[start.labels == 3], torch.zeros_like(moved[start.labels == 3]))
    assert (moved[start.labels == 0] != 0).any()


def test_each_look_has_its_own_weights_and_batches_and_so_many_steps(net, some):
    """Against a loop with torch's own optimiser."""
    module, data, start = net(), some(12), some(6, seed=3)
    params = FedDmEncoding(iterations=3, steps_per_look=2, image_rate=0.3, image_momentum=0.5, rho=1.0, batch_size=2)
    looks = []
    found = match(
        module, start, BatchMeans(module, data, 2, torch.Generator().manual_seed(1)), params=params,
        generator=torch.Generator().manual_seed(2), report=lambda *done: looks.append(done),
    )  # fmt: skip
    assert looks == [(1, 3), (2, 3), (3, 3)]
    images = start.images.clone().requires_grad_()
    optimiser = torch.optim.SGD([images], lr=0.3, momentum=0.5)
    weights_of, rows_of = torch.Generator().manual_seed(2), torch.Generator().manual_seed(1)
    for _ in range(3):
        there = loaded(module, drawn_weights(start_weights(module), 1.0, weights_of))
        chosen = [data.of_class(c).images[torch.randperm(4, generator=rows_of)[:2]] for c in range(3)]
        batch = LabelledSet(torch.cat(chosen), torch.arange(3).repeat_interleave(2))
        for _ in range(2):
            optimiser.zero_grad()
            eq_9(there, batch, images, start.labels).backward()
            optimiser.step()
    torch.testing.assert_close(found.surrogate.images, images.detach(), rtol=1e-7, atol=1e-9)
    assert len(found.losses) == 6


def test_no_look_leaves_the_images_alone(net, some):
    params = FedDmEncoding(iterations=0, init="real")
    start = some(4)
    found = match(net(), start, lambda *_: {}, params=params, generator=torch.Generator(), report=silent)
    assert torch.equal(found.surrogate.images, start.images) and found.losses == []


# The server.


def test_in_a_large_ball_it_is_plain_sgd(net, some):
    module, union = net("convnet"), some(10)
    found, trace = optimise(
        module, union, rho=1e6, epochs=3, batch_size=4, rate=0.2, generator=torch.Generator().manual_seed(5),
        report=silent,
    )  # fmt: skip
    other, order_of = copy.deepcopy(module), torch.Generator().manual_seed(5)
    optimiser = torch.optim.SGD(other.parameters(), lr=0.2)
    for epoch in range(3):
        losses, order = [], torch.randperm(10, generator=order_of)
        for rows in (order[:4], order[4:8], order[8:]):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(other(union.images[rows]), union.labels[rows])
            losses.append(loss.item() * len(rows) / 10)
            loss.backward()
            optimiser.step()
        assert trace[epoch].loss == pytest.approx(sum(losses))
    expected = {name: weight.detach() for name, weight in other.named_parameters()}
    assert distance(found, expected) < 1e-9
    assert trace[-1].distance == pytest.approx(distance(expected, start_weights(module)))


def test_it_never_leaves_a_small_ball_and_goes_on_along_its_surface(net, some):
    module, union = net(dtype=torch.float32), some(9, dtype=torch.float32)
    origin = start_weights(module)
    for rho in (1e-3, 0.01, 0.3):
        found, trace = optimise(
            module, union, rho=rho, epochs=30, batch_size=4, rate=1.0, generator=torch.Generator().manual_seed(5),
            report=silent,
        )  # fmt: skip
        assert all(epoch.distance <= rho for epoch in trace)
        assert distance(found, origin) <= rho
        assert trace[-1].distance > 0.99 * rho


def test_the_projection_is_the_nearest_point():
    origin, away = {"a": torch.zeros(2), "b": torch.zeros(1)}, {"a": torch.tensor([3.0, 0.0]), "b": torch.tensor([4.0])}
    inside = within(away, origin, 1.0)
    assert torch.cat([inside["a"], inside["b"]]).tolist() == pytest.approx([0.6, 0.0, 0.8], rel=1e-5)
    assert within(away, origin, 5.1) is away
