"""SAM's gradient and steps against quadratics worked by hand, loops over single weights, and finite differences."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from stages.methods.fedavg import FedAvg
from stages.methods.fedprox import FedProx
from stages.methods.local_training import batch_gradients, batches, train_locally
from stages.methods.params.fedavg import FedAvgTraining
from stages.methods.sam import sam_gradient, uphill
from stages.methods.scaffold import Scaffold
from stages.nets.dropout import Dropout
from stages.registry import ALGORITHMS

# F(w) = ½·Σ a(w − b)² over two tensors: the gradient is a(w − b), and everything can be written out.
START = {"first": [1.0, -2.0, 0.5], "second": [[0.25], [3.0]]}
A = {"first": [2.0, 1.0, 0.5], "second": [[4.0], [1.0]]}
B = {"first": [0.0, 1.0, 0.5], "second": [[1.0], [-1.0]]}
DOUBLE = torch.float64


class Quadratic(nn.Module):
    def __init__(self):
        super().__init__()
        for name, values in START.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(values, dtype=DOUBLE)))

    def gradient(self):
        self.zero_grad(set_to_none=True)
        parts = [
            (torch.tensor(A[name], dtype=DOUBLE) * (weight - torch.tensor(B[name], dtype=DOUBLE)).square()).sum() / 2
            for name, weight in self.named_parameters()
        ]
        sum(parts).backward()
        return sum(parts).detach()


def flat(values):
    return np.concatenate([np.ravel(values[name]) for name in START])


def found(module, what=lambda weight: weight.grad):
    return flat({name: what(weight).detach().numpy() for name, weight in module.named_parameters()})


def by_hand(w, rho, adaptive=False):
    """Eq. 7, weight by weight in plain Python."""
    a, b = flat(A), flat(B)
    g = [a[j] * (w[j] - b[j]) for j in range(len(w))]
    size = [abs(w[j]) if adaptive else 1.0 for j in range(len(w))]
    length = math.sqrt(sum((size[j] * g[j]) ** 2 for j in range(len(w))))
    moved = [w[j] + rho * size[j] ** 2 * g[j] / length for j in range(len(w))]
    return np.array([a[j] * (moved[j] - b[j]) for j in range(len(w))])


def test_two_weights_on_paper():
    """F = ½(3w₁)² + ½(4w₂)² scaled so that g = (3, 4) at (1, 1), ‖g‖ = 5: with ρ = 5 the gradient is at (4, 5)."""
    module = nn.Linear(2, 1, bias=False).double()
    curvature = torch.tensor([[3.0, 4.0]], dtype=DOUBLE)
    nn.init.ones_(module.weight)

    def gradient():
        module.zero_grad(set_to_none=True)
        loss = (curvature * module.weight.square()).sum() / 2
        loss.backward()
        return loss.detach()

    assert sam_gradient(module, gradient, rho=5.0) == 3.5  # the loss at w, not uphill
    assert module.weight.grad.tolist() == [[3 * 4.0, 4 * 5.0]]
    assert module.weight.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("rho", [0.05, 0.5, 2.0])
def test_the_gradient_is_that_of_equation_7(rho, adaptive):
    module = Quadratic()
    sam_gradient(module, module.gradient, rho=rho, adaptive=adaptive)
    np.testing.assert_allclose(found(module), by_hand(flat(START), rho, adaptive), rtol=1e-12)


def test_the_norm_is_one_over_all_weights():
    """Were it taken tensor by tensor, each would move by ρ, and together by ρ√2."""
    weights = [torch.ones(3), torch.ones(2, 2)]
    there = uphill(weights, [torch.tensor([1.0, 2.0, 2.0]), torch.full((2, 2), 2.0)], 0.5)
    moves = [after - before for before, after in zip(weights, there, strict=True)]
    assert torch.cat([move.flatten() for move in moves]).norm() == pytest.approx(0.5, rel=1e-6)
    assert moves[0].tolist() == pytest.approx([0.1, 0.2, 0.2])


def test_the_adaptive_step_does_not_see_a_rescaling():
    """Kwon et al.: with w·c and g/c, the same function rescaled, w + δ is rescaled too. Plain SAM's does not."""
    w, g, c = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([0.3, 0.2, -0.1]), torch.tensor([10.0, 0.1, 2.0])
    for adaptive in (True, False):
        (plain,), (scaled,) = (uphill([x], [y], 0.5, adaptive=adaptive) for x, y in ((w, g), (w * c, g / c)))
        assert torch.allclose(scaled, plain * c, rtol=1e-5) == adaptive


@pytest.mark.parametrize("adaptive", [False, True])
def test_without_a_gradient_it_stays(adaptive):
    """At the minimum, and for adaptive SAM also where all weights are zero: no direction, no division by zero."""
    for values in (B, {name: np.zeros_like(v) for name, v in B.items()} if adaptive else B):
        module = Quadratic()
        with torch.no_grad():
            for name, weight in module.named_parameters():
                weight.copy_(torch.as_tensor(np.array(values[name])))
        module.gradient()
        plain = found(module)
        sam_gradient(module, module.gradient, rho=0.5, adaptive=adaptive)
        np.testing.assert_array_equal(found(module), plain)


def small_net(*layers):
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.Tanh(), *layers, nn.Linear(6, 3))
    weights = np.random.default_rng(1)
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_(torch.from_numpy(weights.normal(size=tuple(weight.shape))))
    return net


RNG = np.random.default_rng(0)
IMAGES = torch.from_numpy(RNG.normal(size=(12, 1, 2, 2)).astype(np.float32))
LABELS = torch.from_numpy(RNG.integers(0, 3, size=12))


def gradient_of(net, seed=5):
    """One step's gradient, as `train-client` makes it."""
    images = IMAGES.to(next(net.parameters()).dtype)
    return next(batch_gradients(net, images, LABELS, [torch.arange(8)], torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize("adaptive", [False, True])
def test_weights_come_back_bit_for_bit(adaptive):
    """In float32, where w + δ − δ is not w; also if the second pass fails."""
    net = small_net()
    before = [weight.detach().clone() for weight in net.parameters()]
    gradient = gradient_of(net)
    sam_gradient(net, gradient, rho=3.7, adaptive=adaptive)
    assert all(torch.equal(*pair) for pair in zip(before, net.parameters(), strict=True))
    there = uphill(before, [weight.grad for weight in net.parameters()], 3.7, adaptive=adaptive)
    assert not all(torch.equal(x - (x - w), w) for w, x in zip(before, there, strict=True)), (
        "the case must be able to fail"
    )
    calls = []

    def fails():
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("out of memory")
        return gradient()

    with pytest.raises(RuntimeError, match="out of memory"):
        sam_gradient(net, fails, rho=3.7, adaptive=adaptive)
    assert all(torch.equal(*pair) for pair in zip(before, net.parameters(), strict=True))


def test_running_averages_are_those_of_the_pass_at_w():
    plain, sharp = small_net(nn.BatchNorm1d(6)), small_net(nn.BatchNorm1d(6))
    gradient_of(plain)()
    sam_gradient(sharp, gradient_of(sharp), rho=0.5)
    assert sharp[3].num_batches_tracked == 1
    for name, buffer in plain.named_buffers():
        assert torch.equal(buffer, dict(sharp.named_buffers())[name])
    assert not torch.equal(plain[1].weight.grad, sharp[1].weight.grad)


def test_both_passes_drop_the_same_units():
    """The mask is fixed by hand in one network and drawn in the other; the stream goes on as after a plain step."""
    drawn = torch.rand(8, 6, generator=torch.Generator().manual_seed(5)) >= 0.5

    class Fixed(nn.Module):
        def forward(self, x):
            return x * drawn * 2

    dropping, fixed = small_net(Dropout(0.5)), small_net(Fixed())
    gradient = gradient_of(dropping)
    sam_gradient(dropping, gradient, rho=0.5)
    sam_gradient(fixed, gradient_of(fixed), rho=0.5)
    for left, right in zip(dropping.parameters(), fixed.parameters(), strict=True):
        assert torch.allclose(left.grad, right.grad, rtol=1e-6, atol=1e-7)
    plain = gradient_of(small_net(Dropout(0.5)))
    plain()
    assert torch.equal(gradient.dropout.get_state(), plain.dropout.get_state())


def test_finite_differences():
    """Both gradients by central differences of the loss alone, none by a backward pass."""
    net = small_net().double()
    images, weights = IMAGES.double()[:8], list(net.parameters())

    def loss(moved):
        with torch.no_grad():
            kept = nn.utils.parameters_to_vector(weights).clone()
            nn.utils.vector_to_parameters(torch.from_numpy(moved), weights)
            value = nn.functional.cross_entropy(net(images), LABELS[:8]).item()
            nn.utils.vector_to_parameters(kept, weights)
            return value

    def slope(at, h=1e-5):
        steps = np.eye(len(at)) * h
        return np.array([(loss(at + step) - loss(at - step)) / (2 * h) for step in steps])

    w = nn.utils.parameters_to_vector(weights).detach().numpy().copy()
    g = slope(w)
    expected = slope(w + 0.5 * g / np.linalg.norm(g))
    sam_gradient(net, gradient_of(net), rho=0.5)
    result = torch.cat([weight.grad.flatten() for weight in weights]).numpy()
    np.testing.assert_allclose(result, expected, atol=1e-8)
    assert np.abs(g - expected).max() > 1e-2, "plain and sharp gradients differ"


def run_locally(params, algorithm, steps=4):
    module = Quadratic()
    named = dict(module.named_parameters())
    result = train_locally(
        module, [module.gradient] * steps, total=steps, params=params, algorithm=algorithm(named), round=1,
        report=lambda done, total, loss: None,
    )  # fmt: skip
    return found(module, lambda weight: weight), result


def zeros(value):
    return {name: torch.full_like(torch.tensor(v, dtype=DOUBLE), value) for name, v in START.items()}


CASES = {
    "momentum and decay": (
        {"momentum": 0.5, "weight_decay": 0.01}, lambda named: FedAvg(), lambda w: 0.01 * w, 0.5,
    ),
    "fedprox": (
        {"algorithm": "fedprox", "mu": 0.7}, lambda named: FedProx(named, 0.7), lambda w: 0.7 * (w - flat(START)), 0.0,
    ),
    "scaffold": (
        {"algorithm": "scaffold"}, lambda named: Scaffold(named, zeros(0.5), zeros(0.2)), lambda w: -0.5 + 0.2, 0.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_steps_with_an_algorithm(name, adaptive):
    """w ← w − η·(g̃ + what the algorithm adds at w), with heavy-ball momentum; none of it moves the point uphill."""
    values, algorithm, added, momentum = CASES[name]
    params = ALGORITHMS.from_mapping(
        {"local_steps": 4, "learning_rate": 0.1, "sam_rho": 0.5, "adaptive_sam": adaptive, **values}
    )
    w, moved = flat(START), 0.0
    for _ in range(4):
        moved = momentum * moved + by_hand(w, 0.5, adaptive) + added(w)
        w = w - 0.1 * moved
    end, result = run_locally(params, algorithm)
    np.testing.assert_allclose(end, w, rtol=1e-12)
    if name == "scaffold":  # option II: the mean of the sharp gradients
        state = flat({key: tensor.numpy() for key, tensor in result.state.items()})
        np.testing.assert_allclose(state, 0.5 - 0.2 + (flat(START) - w) / (4 * 0.1), rtol=1e-12)


def test_absent_it_is_off():
    plain, _ = run_locally(FedAvgTraining(local_steps=4), lambda named: FedAvg())
    w = flat(START)
    for _ in range(4):
        w = w - 0.1 * flat(A) * (w - flat(B))
    np.testing.assert_allclose(plain, w, rtol=1e-12)
    assert "sam_rho" not in FedAvgTraining().to_json()
    assert "adaptive_sam" not in FedAvgTraining().to_json()


def test_batches_are_those_of_a_plain_training():
    seen = {}
    for rho in (None, 0.5):
        params = FedAvgTraining(local_steps=5, batch_size=4, sam_rho=rho)
        rows = list(batches(4, 12, 5, torch.Generator().manual_seed(1)))
        net = small_net(Dropout(0.5))
        losses = []
        train_locally(
            net, batch_gradients(net, IMAGES, LABELS, rows, torch.Generator().manual_seed(2)), total=5, params=params,
            algorithm=FedAvg(), round=1, report=lambda done, total, loss, to=losses: to.append(loss.item()),
        )  # fmt: skip
        seen[rho] = losses
    assert seen[None][0] == seen[0.5][0]
    assert seen[None][1] != seen[0.5][1]
