"""Sharpness and curvature of quadratics whose eigenvalues are known; filters counted one by one."""

import numpy as np
import pytest
import torch
from torch import nn

from stages.methods.scores import score
from stages.methods.sharpness import (
    ascent_sharpness,
    dataset_loss,
    filter_normalised_directions,
    gradient_at,
    hessian_product,
    largest_eigenvalue,
    loss_at,
    loss_surface,
)
from stages.nets.dropout import Dropout

DOUBLE = torch.float64


def quadratic(eigenvalues, seed=0, parts=3):
    """½·wᵀHw over two tensors of weights, H with these eigenvalues; in parts that are no quadratics of that kind."""
    n = len(eigenvalues)
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(n, n)))
    hessian = torch.from_numpy(basis @ np.diag(eigenvalues) @ basis.T)
    pieces = [torch.from_numpy(rng.normal(size=(n, n))) for _ in range(parts - 1)]
    pieces = [piece + piece.T for piece in pieces]
    pieces.append(hessian - sum(pieces, torch.zeros_like(hessian)))
    weights = {"a": torch.from_numpy(rng.normal(size=(2, 2))), "b": torch.from_numpy(rng.normal(size=n - 4))}

    def part(matrix):
        def loss(values):
            flat = torch.cat([value.flatten() for value in values.values()])
            return flat @ matrix @ flat / 2

        return loss

    return [part(piece) for piece in pieces], weights, hessian.numpy()


def flat(weights):
    return np.concatenate([tensor.numpy().ravel() for tensor in weights.values()])


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


EIGENVALUES = [9.0, 4.0, 1.0, 0.5, 0.1, 0.0, -1.0]


def test_gradients_and_products_of_a_quadratic():
    parts, weights, hessian = quadratic(EIGENVALUES)
    w = flat(weights)
    assert loss_at(parts, weights) == pytest.approx(w @ hessian @ w / 2, rel=1e-12)
    np.testing.assert_allclose(flat(gradient_at(parts, weights)), hessian @ w, rtol=1e-10)
    direction = {
        name: torch.randn(tensor.shape, dtype=DOUBLE, generator=generator()) for name, tensor in weights.items()
    }
    np.testing.assert_allclose(flat(hessian_product(parts, weights, direction)), hessian @ flat(direction), rtol=1e-10)


@pytest.mark.parametrize(
    "eigenvalues",
    [
        EIGENVALUES,
        [5.0, -9.0, 1.0, 0.5, 0.1, 0.0, 0.2],  # the largest in size is negative: the largest is still 5
        [-1.0, -2.0, -3.0, -4.0, -8.0, -9.0, -20.0],
        [3.0, 3.0, 3.0, 0.0, 0.0, 0.0, 0.0],
    ],
)
def test_the_largest_eigenvalue(eigenvalues):
    parts, weights, _ = quadratic(eigenvalues)
    found = largest_eigenvalue(parts, weights, generator(), iterations=200)
    assert found.value == pytest.approx(max(eigenvalues), rel=1e-4)
    assert found.residual < 1e-2


def test_twenty_iterations_and_what_the_residual_tells():
    """An eigenvalue is within residual·‖Hv‖ of the value; with a gap of 4/9 twenty iterations are plenty."""
    parts, weights, _ = quadratic(EIGENVALUES)
    assert largest_eigenvalue(parts, weights, generator()).value == pytest.approx(9.0, rel=1e-6)
    early = largest_eigenvalue(parts, weights, generator(), iterations=2)
    assert early.residual > 0.01
    assert min(abs(early.value - value) for value in EIGENVALUES) <= early.residual * 9.0


def test_a_flat_or_a_linear_loss_has_no_curvature():
    weights = {"a": torch.ones(3, dtype=DOUBLE)}
    for part in (lambda values: 2 * values["a"].sum(), lambda values: (values["a"] * 0).square().sum()):
        found = largest_eigenvalue([part], weights, generator())
        assert (found.value, found.residual) == (0.0, 0.0)


def test_the_rise_in_the_ball_by_hand():
    """L = ½(3x² + 4y²) at (1, 1): g = (3, 4), and with ρ = 5 uphill is (4, 5). L rises from 3.5 to 74."""
    weights = {"x": torch.ones(1, dtype=DOUBLE), "y": torch.ones(1, dtype=DOUBLE)}
    parts = [
        lambda values: 1.5 * values["x"].square().sum() + values["y"].sum(),
        lambda values: 2 * values["y"].square().sum() - values["y"].sum() + 0 * values["x"].sum(),
    ]
    assert ascent_sharpness(parts, weights, 5.0) == pytest.approx(74 - 3.5)
    assert weights["x"].item() == 1.0
    minimum = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
    assert ascent_sharpness(parts, minimum, 5.0) == 0.0  # no direction to go


def test_a_dataset_in_batches_is_its_mean_loss():
    """The same as `score` says, whatever the batches; dropout is off; the curvature by differences of gradients."""
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(4, 5), nn.Tanh(), nn.BatchNorm1d(5), Dropout(0.5), nn.Linear(5, 3)
    ).double()
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_(torch.from_numpy(rng.normal(size=tuple(weight.shape))))
        net[3].running_mean.fill_(0.3)
    images = torch.from_numpy(rng.normal(size=(11, 1, 2, 2)))
    labels = torch.from_numpy(rng.integers(0, 3, 11))
    expected = score(net, images, labels, num_classes=3, batch_size=11, report=lambda *_: None).loss
    weights = {name: tensor.detach() for name, tensor in net.named_parameters()}
    for batch in (1, 4, 11, 100):
        parts = dataset_loss(net.train(), images, labels, batch_size=batch)
        assert loss_at(parts, weights) == pytest.approx(expected, rel=1e-12)
        direction = {name: torch.ones_like(tensor) for name, tensor in weights.items()}
        ahead, behind = (
            flat(gradient_at(parts, {name: tensor + h for name, tensor in weights.items()})) for h in (1e-5, -1e-5)
        )
        np.testing.assert_allclose(
            flat(hessian_product(parts, weights, direction)), (ahead - behind) / 2e-5, rtol=1e-5, atol=1e-8
        )


def test_directions_filter_by_filter():
    """Each filter as long as the model's own, the two at right angles in each; biases and norms stay."""
    draw = generator(3)
    weights = {
        "conv": torch.randn((4, 3, 3, 3), generator=draw),
        "norm": torch.ones(4),
        "linear": torch.randn((5, 7), generator=draw),
        "bias": torch.randn(5, generator=draw),
        "single": torch.randn((3, 1), generator=draw),
    }
    weights["linear"][2] = 0.0  # a dead filter
    first, second = filter_normalised_directions(weights, generator())
    for name in ("conv", "linear"):
        for row in range(len(weights[name])):
            w, u, v = (x[name][row].flatten() for x in (weights, first, second))
            assert u.norm().item() == pytest.approx(w.norm().item(), rel=1e-5)
            assert v.norm().item() == pytest.approx(w.norm().item(), rel=1e-5)
            assert (u @ v).item() == pytest.approx(0.0, abs=1e-5 * max(1.0, w.norm().item() ** 2))
    for name in ("norm", "bias"):
        assert not first[name].any() and not second[name].any()
    assert torch.allclose(first["single"].abs(), weights["single"].abs())
    assert not second["single"].any()
    again, _ = filter_normalised_directions(weights, generator())
    other, _ = filter_normalised_directions(weights, generator(1))
    assert torch.equal(again["conv"], first["conv"])
    assert not torch.equal(other["conv"], first["conv"])


def test_the_surface_point_by_point():
    parts, weights, hessian = quadratic(EIGENVALUES)
    first, second = (
        {name: torch.randn(x.shape, dtype=DOUBLE, generator=generator(seed)) for name, x in weights.items()}
        for seed in (1, 2)
    )
    steps = [-0.5, 0.0, 1.0]
    stated = []
    rows = loss_surface(parts, weights, (first, second), steps, lambda done, total, text: stated.append((done, total)))
    for i, up in enumerate(steps):
        for j, across in enumerate(steps):
            w = flat(weights) + across * flat(first) + up * flat(second)
            assert rows[i][j] == pytest.approx(w @ hessian @ w / 2, rel=1e-10)
    assert stated == [(1, 3), (2, 3), (3, 3)]
