"""Inverting gradients: slopes against autograd, labels and likeness by hand, a model whose images can be computed."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from stages.methods.inverting_gradients import (
    Attack,
    cost_and_slopes,
    gradient,
    inferred_labels,
    inverted,
    likeness,
    one_hot,
    psnr,
    ssim,
    total_variation,
)
from stages.methods.row_cosines import RowCosines, flat


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def small_net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def test_the_slope_of_the_cost_against_autograd():
    net = small_net()
    images = torch.randn(2, 1, 4, 4, generator=seeded(0), dtype=torch.float64).requires_grad_()
    free = torch.randn(2, 3, generator=seeded(1), dtype=torch.float64).requires_grad_()
    target = torch.randn(sum(p.numel() for p in net.parameters()), generator=seeded(2), dtype=torch.float64)
    angle = RowCosines(target, [len(target)], [1.0], least=1e-30)
    cost, slopes = cost_and_slopes(net, angle, images, torch.softmax(free, 1), [images, free], 0.3)

    logits = net(images)
    losses = -(torch.softmax(free, 1) * torch.log_softmax(logits, 1)).sum(1)
    found = torch.cat(
        [part.flatten() for part in torch.autograd.grad(losses.mean(), list(net.parameters()), create_graph=True)]
    )
    across, down = (images[..., 1:] - images[..., :-1]).abs(), (images[..., 1:, :] - images[..., :-1, :]).abs()
    wanted = 1 - torch.nn.functional.cosine_similarity(found, target, dim=0) + 0.3 * (across.mean() + down.mean())
    assert cost == pytest.approx(float(wanted.detach()), abs=1e-12)
    for mine, theirs in zip(slopes, torch.autograd.grad(wanted, [images, free]), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_total_variation_by_hand():
    """Rows (0, 1), (3, 1): steps across 1 and 2, mean 1.5; down 3 and 0, mean 1.5. One pixel has no steps."""
    assert float(total_variation(torch.tensor([[[[0.0, 1.0], [3.0, 1.0]]]]))) == 3.0
    assert float(total_variation(torch.ones(1, 1, 1, 1))) == 0.0


def test_labels_from_the_last_bias():
    """Of five classes, p = 1/5 each: n·g = n/5 − counts. A factor changes nothing."""

    def bias(*counts):
        return torch.tensor([sum(counts) / 5 - count for count in counts])

    assert inferred_labels(bias(0, 0, 1, 0, 0), 1).tolist() == [2]
    assert inferred_labels(7 * bias(1, 0, 1, 0, 1), 3).tolist() == [0, 2, 4]
    assert inferred_labels(0.01 * bias(0, 3, 0, 1, 0), 4).tolist() == [1, 1, 1, 3]
    assert inferred_labels(bias(2, 0, 0, 0, 2), 4).tolist() == [0, 0, 4, 4]


def test_labels_of_a_network_that_was_not_trained():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 10))
    labels = torch.tensor([1, 4, 4, 8])
    update = gradient(net, torch.rand(4, 1, 4, 4, generator=seeded(0)), one_hot(labels, 10), graph=False)
    assert inferred_labels(update[-1], 4).tolist() == [1, 4, 4, 8]


@pytest.mark.parametrize("known", [True, False])
def test_one_image_comes_back_from_a_softmax_model(known):
    """∂W = (p − y)·xᵀ and ∂b = p − y: the image is their quotient, and the attack must find it. Soft labels too.

    With those the negative image under other labels is nearly as good: the first start ends there, another does not.
    """
    torch.manual_seed(1)
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 5))
    true = torch.rand(1, 1, 6, 6, generator=seeded(4)) * 2 - 1
    weight, bias = gradient(net, true, one_hot(torch.tensor([3]), 5), graph=False)
    torch.testing.assert_close((weight / bias[:, None])[3], true.flatten(), rtol=1e-4, atol=1e-5)
    update = {"1.weight": 0.1 * weight, "1.bias": 0.1 * bias}
    labels = inferred_labels(bias, 1) if known else None
    found = inverted(
        net, update, labels, (1, 1, 6, 6), attack=Attack(300, 1e-6, 1 if known else 3), generator=seeded(6),
        report=lambda *_: None,
    )  # fmt: skip
    alike = likeness(found.images.numpy(), true.numpy())
    assert (found.labels.tolist(), found.cosine > 0.999) == ([3], True)
    assert alike.psnr[0] > (35 if known else 25)
    assert float(found.images.abs().max()) <= 1


def test_the_restart_with_the_lowest_cost_counts():
    net = small_net().float()
    true = torch.rand(2, 1, 4, 4, generator=seeded(6)) * 2 - 1
    labels = torch.tensor([0, 2])
    names = [name for name, _ in net.named_parameters()]
    update = dict(zip(names, gradient(net, true, one_hot(labels, 3), graph=False), strict=True))

    def attacked(restarts):
        return inverted(
            net, update, labels, (2, 1, 4, 4), attack=Attack(40, 0.0, restarts), generator=seeded(7),
            report=lambda *_: None,
        )  # fmt: skip

    found = [attacked(restarts) for restarts in (1, 4)]
    assert found[1].cosine >= found[0].cosine
    again = flat(gradient(net, found[1].images, one_hot(labels, 3), graph=False))
    cosine = torch.nn.functional.cosine_similarity(again, flat([update[name] for name in names]), dim=0)
    assert found[1].cosine == pytest.approx(float(cosine), abs=1e-5)


def test_an_update_without_direction_is_refused():
    net = small_net().float()
    for value in (0.0, math.nan):
        update = {name: torch.full_like(part, value) for name, part in net.named_parameters()}
        with pytest.raises(ValueError, match="points nowhere"):
            inverted(net, update, None, (1, 1, 4, 4), attack=Attack(1, 0.0, 1), generator=seeded(0),
                     report=lambda *_: None)  # fmt: skip


def test_psnr_by_hand():
    """A tenth off everywhere: MSE 0.01, 20 dB. An exact copy: 100."""
    assert psnr(np.array([0.01, 1.0, 0.0])) == pytest.approx([20.0, 0.0, 100.0])


def test_ssim_by_hand():
    """2×2, one window. x = (0, 0, 1, 1), y = (0, 0, 0.5, 0.5): means 1/2 and 1/4; sample variances 1/3 and 1/12, 1/6
    together."""
    x, y = np.array([[[0.0, 0.0], [1.0, 1.0]]]), np.array([[[0.0, 0.0], [0.5, 0.5]]])
    c1, c2 = 1e-4, 9e-4
    wanted = (2 / 8 + c1) * (2 / 6 + c2) / ((1 / 4 + 1 / 16 + c1) * (1 / 3 + 1 / 12 + c2))
    assert ssim(x, y) == pytest.approx(wanted, rel=1e-12)
    assert (ssim(x, x), ssim(x, 1 - x) < -0.9) == (pytest.approx(1.0), True)


def test_ssim_is_the_mean_over_places_and_channels():
    """8×8 has four places for a window of 7×7, worked here one by one with numpy's covariance."""
    random = np.random.default_rng(0)
    a, b = random.random((2, 8, 8)), random.random((2, 8, 8))
    values = []
    for channel in range(2):
        for top in range(2):
            for left in range(2):
                x, y = (side[channel, top : top + 7, left : left + 7].ravel() for side in (a, b))
                cov = np.cov(x, y)
                values.append(
                    (2 * x.mean() * y.mean() + 1e-4) * (2 * cov[0, 1] + 9e-4)
                    / ((x.mean() ** 2 + y.mean() ** 2 + 1e-4) * (cov[0, 0] + cov[1, 1] + 9e-4))
                )  # fmt: skip
    assert ssim(a, b) == pytest.approx(np.mean(values), rel=1e-10)


def test_each_true_image_is_taken_once():
    """Both are nearest to the first; together it is cheaper that one takes the second. Pixels −1…1 are 2 wide."""
    true = np.array([0.0, 1.0]).reshape(2, 1, 1, 1)
    found = likeness(np.array([0.2, 0.1]).reshape(2, 1, 1, 1), true)
    assert (found.rows.tolist(), found.true_rows.tolist()) == ([0, 1], [1, 0])
    assert found.mse == pytest.approx([0.4**2, 0.05**2])
    fewer = likeness(np.array([0.9, -1.0, 0.1]).reshape(3, 1, 1, 1), true)
    assert (fewer.rows.tolist(), fewer.true_rows.tolist()) == ([0, 2], [1, 0])
