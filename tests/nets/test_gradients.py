"""Gradients: per example, against finite differences, and twice (gradient matching differentiates gradients)."""

import pytest
import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from stages.nets.build import build, initialise
from stages.nets.params import InputShape
from stages.registry import NETWORKS

# arch, image, size: every network without batch norm, as small as it comes
NETS = [
    ("softmax", (1, 8, 8), {}),
    ("mlp", (1, 8, 8), {"depth": 2}),
    ("convnet", (1, 8, 8), {"width": 16}),
    ("convnet", (1, 28, 28), {"width": 8}),
    ("lenet5", (1, 28, 28), {}),
    ("vgg11", (3, 32, 32), {}),
    ("resnet18", (3, 8, 8), {}),
    ("emnist-cnn", (1, 8, 8), {}),
    ("strided", (1, 14, 13), {"width": 3}),
]


def make(arch, image, size, classes=5, batch=3):
    channels, height, width = image
    shape = InputShape(channels=channels, height=height, width=width, num_classes=classes)
    net = build(NETWORKS.from_mapping({"arch": arch, **size}), shape)
    generator = torch.Generator().manual_seed(11)
    initialise(net, generator)
    x = torch.randn(batch, *image, generator=generator, dtype=torch.float64)
    y = torch.randint(classes, (batch,), generator=generator)
    return net.double().eval(), x, y


@pytest.mark.parametrize(("arch", "image", "size"), NETS)
def test_per_example_gradients_sum_to_the_batch_gradient(arch, image, size):
    net, x, y = make(arch, image, size)
    params = {name: p.detach() for name, p in net.named_parameters()}

    def loss(params, x, y):
        return F.cross_entropy(functional_call(net, params, (x.unsqueeze(0),)), y.unsqueeze(0))

    each = vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y)
    F.cross_entropy(net(x), y, reduction="sum").backward()
    for name, p in net.named_parameters():
        assert each[name].shape == (len(x), *p.shape)
        torch.testing.assert_close(each[name].sum(0), p.grad, rtol=1e-9, atol=1e-12)
        assert p.grad.abs().max() > 0, f"{name} has no gradient: the comparison would say nothing"

    alone = torch.autograd.grad(F.cross_entropy(net(x[1:2]), y[1:2]), list(net.parameters()))
    for name, expected in zip(params, alone, strict=True):
        torch.testing.assert_close(each[name][1], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("arch", "image", "size"), [*NETS, ("vgg13", (3, 32, 32), {})])
def test_gradient_is_the_slope_of_the_loss(arch, image, size):
    """Central difference of the loss along the gradient, in weights and images at once."""
    net, x, y = make(arch, image, size, batch=2)
    x.requires_grad_()
    leaves = [*net.parameters(), x]
    gradients = torch.autograd.grad(F.cross_entropy(net(x), y), leaves)
    norm = sum(g.square().sum() for g in gradients).sqrt()
    step = 1e-6

    def loss_at(distance):
        with torch.no_grad():
            for leaf, g in zip(leaves, gradients, strict=True):
                leaf.add_(g, alpha=float(distance / norm))
            value = F.cross_entropy(net(x), y).item()
            for leaf, g in zip(leaves, gradients, strict=True):
                leaf.sub_(g, alpha=float(distance / norm))
        return value

    slope = (loss_at(step) - loss_at(-step)) / (2 * step)
    assert slope == pytest.approx(norm.item(), rel=1e-5)


@pytest.mark.parametrize(("arch", "size"), [("convnet", {"width": 2, "depth": 2}), ("mlp", {"width": 3})])
def test_second_derivatives(arch, size):
    """FedLAP and TOFU move images along the gradient of a function of gradients."""
    net, x, y = make(arch, (1, 4, 4), size, classes=2, batch=2)
    names = [name for name, _ in net.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in net.parameters()]

    def loss(x, *values):
        return F.cross_entropy(functional_call(net, dict(zip(names, values, strict=True)), (x,)), y)

    assert torch.autograd.gradgradcheck(loss, (x.requires_grad_(), *values))
