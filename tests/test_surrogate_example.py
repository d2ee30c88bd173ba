"""FedDM's example of one weight: its parts against numpy, and the shape of the paper's Fig. 1."""

import numpy as np
import pytest
import torch

from stages.methods.surrogate_nets import mean_loss, start_weights


@pytest.fixture(scope="module")
def example(helper):
    return helper("../examples/feddm_surrogate.py")


@pytest.fixture(scope="module")
def found(example):
    return {seed: example.curves(seed) for seed in (0, 3)}


def test_the_labels_are_the_sign_but_for_one_in_ten(example):
    wrong = []
    for seed in range(30):
        data = example.real_data(np.random.default_rng(seed))
        wrong.append(((data.images.flatten() >= 0) != data.labels.bool()).double().mean())
    assert np.mean(wrong) == pytest.approx(0.1, abs=0.02)  # three standard errors are 0.016


def test_the_objective_is_binary_cross_entropy(example):
    """Eq. 12 written out, and the network's own cross entropy."""
    data = example.real_data(np.random.default_rng(1))
    x, y = data.images.flatten().numpy().astype(float), data.labels.numpy()
    weights = np.array([-2.0, 0.0, 0.7])
    said = 1 / (1 + np.exp(-weights[:, None] * x))
    by_hand = -(y * np.log(said) + (1 - y) * np.log(1 - said)).mean(axis=1)
    np.testing.assert_allclose(example.objective(weights, data), by_hand, rtol=1e-6)
    net = example.model()
    (name,) = start_weights(net)
    of_net = [float(mean_loss(net, {name: torch.tensor(float(w))}, data)) for w in weights]
    np.testing.assert_allclose(of_net, by_hand, rtol=1e-5)


def test_the_tangent_touches_at_zero(example):
    data = example.real_data(np.random.default_rng(1))
    h = 1e-3
    low, mid, high = example.objective(np.array([-h, 0.0, h]), data)
    line = example.tangent(np.array([0.0, 1.0]), data)
    assert line[0] == pytest.approx(mid, abs=1e-6) == pytest.approx(np.log(2), abs=1e-6)
    assert line[1] - line[0] == pytest.approx((high - low) / (2 * h), rel=1e-3)


def test_the_shape_of_figure_one(example, found):
    """In the ball the surrogate is fifteen times nearer than the tangent, or more, and has the objective's minimum."""
    for each in found.values():
        assert each.weights[0] == -example.RHO and each.weights[-1] == example.RHO
        assert each.error("objective matched") < each.error("tangent") / 15
        true = each.minimiser(each.real)
        assert abs(true) < example.RHO  # inside: the tangent's is at the rim
        assert each.minimiser(each.stand_ins["objective matched"]) == pytest.approx(true, abs=0.3)
        assert each.minimiser(each.stand_ins["tangent"]) == example.RHO


def test_features_settle_the_class_means_alone(example, found):
    """Eq. 9 with the feature x: every example of a class moves by the same, until the means are the data's."""
    rng = np.random.default_rng(0)
    data, start = example.real_data(rng), example.first_examples(rng)
    matched = example.match_features(data, start, torch.Generator().manual_seed(0))
    for label in (0, 1):
        before, after, real = (each.of_class(label).images.flatten().numpy() for each in (start, matched, data))
        assert after.mean() == pytest.approx(real.mean(), abs=1e-4)
        np.testing.assert_allclose(after - before, (after - before).mean(), atol=1e-5)
    for each in found.values():
        assert each.error("features matched") < each.error("tangent") / 3


def test_it_draws(example, found, tmp_path):
    example.draw(tmp_path / "p.png", found[0])
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
