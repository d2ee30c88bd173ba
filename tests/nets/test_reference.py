"""The networks compute what the papers describe: each against a second, independent statement of it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from stages.nets.build import build, initialise
from stages.nets.params import InputShape
from stages.nets.torchvision_door import torchvision
from stages.registry import NETWORKS


def make(arch, channels, side, seed=0):
    net = build(
        NETWORKS.from_mapping({"arch": arch}), InputShape(channels=channels, height=side, width=side, num_classes=10)
    )
    generator = torch.Generator().manual_seed(seed)
    initialise(net, generator)
    with torch.no_grad():
        for p in net.parameters():  # norms begin as ones and zeros: move them, or a missing one would not show
            if p.ndim == 1:
                p.add_(torch.randn(p.shape, generator=generator), alpha=0.1)
    return net.eval()


def images(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def tensors(net):
    return [p.detach() for p in net.parameters()]


def transplant(source, target):
    """Load by order: names are free, the order of tensors is that of the forward pass."""
    state = list(source.state_dict().values())
    assert [v.shape for v in state] == [v.shape for v in target.state_dict().values()]
    target.load_state_dict(dict(zip(target.state_dict(), state, strict=True)))
    return target.eval()


def test_convnet_is_fedlaps_listing():
    """FedLAP-DP App. B.1, the listing, line by line."""
    listing = nn.Sequential(
        nn.Conv2d(3, 128, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1)),
        nn.GroupNorm(128, 128, eps=1e-05, affine=True),
        nn.ReLU(inplace=True),
        nn.AvgPool2d(kernel_size=2, stride=2, padding=0),
        nn.Conv2d(128, 128, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1)),
        nn.GroupNorm(128, 128, eps=1e-05, affine=True),
        nn.ReLU(inplace=True),
        nn.AvgPool2d(kernel_size=2, stride=2, padding=0),
        nn.Conv2d(128, 128, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1)),
        nn.GroupNorm(128, 128, eps=1e-05, affine=True),
        nn.ReLU(inplace=True),
        nn.AvgPool2d(kernel_size=2, stride=2, padding=0),
        nn.Flatten(),
        nn.Linear(in_features=2048, out_features=10, bias=True),
    )
    net = make("convnet", 3, 32)
    x = images(2, 3, 32, 32)
    torch.testing.assert_close(net(x), transplant(net, listing)(x))


def test_convnet_pads_28_to_32():
    small, large = make("convnet", 1, 28), make("convnet", 1, 32)
    transplant(small, large)
    x = images(2, 1, 28, 28)
    torch.testing.assert_close(small(x), large(F.pad(x, (2, 2, 2, 2))))


def test_lenet5_by_hand():
    net = make("lenet5", 1, 28)
    c1, b1, c2a, b2a, c2b, b2b, c3, b3, f1, d1, f2, d2 = tensors(net)
    x = images(2, 1, 28, 28)
    h = F.max_pool2d(F.conv2d(F.pad(x, (2, 2, 2, 2)), c1, b1).clamp(min=0), 2)
    assert h.shape == (2, 6, 14, 14)
    h = F.max_pool2d(F.conv2d(h, c2a, b2a).clamp(min=0), 2) + F.max_pool2d(F.conv2d(h, c2b, b2b).clamp(min=0), 2)
    assert h.shape == (2, 16, 5, 5)
    h = F.conv2d(h, c3, b3).clamp(min=0)
    assert h.shape == (2, 120, 1, 1)
    h = (h[:, :, 0, 0] @ f1.T + d1).clamp(min=0)
    torch.testing.assert_close(net(x), h @ f2.T + d2)


@pytest.mark.parametrize(("side", "before", "after"), [(8, 12, 12), (31, 0, 1), (1, 15, 16)])
def test_lenet5_pads_up_to_32(side, before, after):
    small = make("lenet5", 2, side)
    x = images(2, 2, side, side)
    large = transplant(small, make("lenet5", 2, 32))
    torch.testing.assert_close(small(x), large(F.pad(x, (before, after, before, after))))


def test_emnist_cnn_by_hand():
    net = make("emnist-cnn", 1, 28)
    c1, b1, c2, b2, f1, d1, f2, d2 = tensors(net)
    x = images(2, 1, 28, 28)
    h = F.max_pool2d(F.conv2d(x, c1, b1, padding=2).clamp(min=0), 2)
    h = F.max_pool2d(F.conv2d(h, c2, b2, padding=2).clamp(min=0), 2)
    assert h.shape == (2, 64, 7, 7)
    h = (h.flatten(1) @ f1.T + d1).clamp(min=0)
    torch.testing.assert_close(net(x), h @ f2.T + d2)


def test_vgg11_is_torchvisions_configuration_a():
    net = make("vgg11", 3, 32)
    theirs = transplant(net.trunk, torchvision().models.vgg11().features)
    x = images(2, 3, 32, 32)
    h = theirs(x).flatten(1)
    torch.testing.assert_close(net.trunk(x), h)
    f1, d1, f2, d2, f3, d3 = tensors(net.classifier)
    h = ((h @ f1.T + d1).clamp(min=0) @ f2.T + d2).clamp(min=0)
    torch.testing.assert_close(net(x), h @ f3.T + d3)


@pytest.mark.parametrize("training", [True, False])
def test_vgg13_is_torchvisions_configuration_b(training):
    net = make("vgg13", 3, 32).train(training)
    theirs = transplant(net.trunk, torchvision().models.vgg13_bn().features).train(training)
    x = images(2, 3, 64, 64)  # in training a norm needs more than one value a channel: 2×2 maps in the last stage
    torch.testing.assert_close(net.trunk(x), theirs(x).flatten(1))


def test_resnet18_is_torchvisions_but_for_stem_and_norm():
    net = make("resnet18", 3, 16)
    theirs = torchvision().models.resnet18(num_classes=10, norm_layer=lambda c: nn.GroupNorm(32, c))
    theirs.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
    theirs.maxpool = nn.Identity()
    x = images(2, 3, 16, 16)
    torch.testing.assert_close(net(x), transplant(net, theirs)(x))


def test_softmax_and_mlp_by_hand():
    x = images(4, 1, 8, 8)
    weight, bias = tensors(softmax := make("softmax", 1, 8))
    torch.testing.assert_close(softmax(x), x.reshape(4, 64) @ weight.T + bias)
    w1, b1, w2, b2 = tensors(mlp := make("mlp", 1, 8))
    torch.testing.assert_close(mlp(x), (x.reshape(4, 64) @ w1.T + b1).clamp(min=0) @ w2.T + b2)
