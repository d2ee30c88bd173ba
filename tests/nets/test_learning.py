"""The deep networks start to learn from their first weights, on small images."""

import pytest
import torch
from torch import nn

from stages.nets import vgg
from stages.nets.build import build, initialise, new_network
from stages.nets.dropout import set_dropout_generator
from stages.nets.params import InputShape
from stages.registry import NETWORKS

CLASSES = 4


def pictures(count, side, channels=3, seed=0):
    """Each class has a pattern of its own, under noise, in [0, 1] as pixels are."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.rand(CLASSES, channels, 8, 8, generator=generator)
    patterns = patterns.repeat_interleave(side // 8, 2).repeat_interleave(side // 8, 3)
    labels = torch.arange(count) % CLASSES
    noise = torch.rand(count, channels, side, side, generator=generator)
    return 0.7 * patterns[labels] + 0.3 * noise, labels


def accuracy_after(net, side, steps, rate=0.05, batch=16):
    """Of 64 other pictures, after SGD with momentum, dropout as the network has it."""
    torch.set_num_threads(1)
    images, labels = pictures(128, side)
    optimiser = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    set_dropout_generator(net.train(), generator)
    for _ in range(steps):
        rows = torch.randperm(len(labels), generator=generator)[:batch]
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(images[rows]), labels[rows]).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
    others = images[64:] * 0.9 + 0.1 * pictures(64, side, seed=5)[0]
    with torch.no_grad():
        return float((net.eval()(others).argmax(1) == labels[64:]).double().mean())


def shape(side):
    return InputShape(channels=3, height=side, width=side, num_classes=CLASSES)


def net(arch, side, seed=0):
    return new_network(NETWORKS.from_mapping({"arch": arch}), shape(side), seed)


@pytest.fixture
def narrow(monkeypatch):
    """An eighth of the channels; as deep as ever."""
    for name in ("_VGG11", "_VGG13"):
        groups = tuple(tuple(width // 8 for width in group) for group in getattr(vgg, name))
        monkeypatch.setattr(vgg, name, groups)


@pytest.mark.parametrize("arch", ["vgg11", "vgg13"])
def test_a_narrow_vgg_learns(arch, narrow):
    assert accuracy_after(net(arch, 32), 32, 40) > 0.9


def test_resnet18_learns():
    assert accuracy_after(net("resnet18", 8), 8, 10) > 0.9


def test_by_torchs_default_rule_vgg11_does_not_start(narrow):
    """What the scheme is for; and that the tests above can fail."""
    module = build(NETWORKS.from_mapping({"arch": "vgg11"}), shape(32))
    initialise(module, torch.Generator().manual_seed(0), "layers")
    assert accuracy_after(module, 32, 40) < 0.5


def test_the_first_logits_of_vgg11_differ_between_images():
    images, _ = pictures(8, 32)
    spread = {}
    for scheme in ("layers", "he-normal"):
        module = build(NETWORKS.from_mapping({"arch": "vgg11"}), shape(32)).eval()
        initialise(module, torch.Generator().manual_seed(0), scheme)
        with torch.no_grad():
            spread[scheme] = float(module(images).std(0).mean())
    assert spread["layers"] < 1e-3 < 0.03 < spread["he-normal"]


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["vgg11", "vgg13", "resnet18"])
def test_the_whole_network_learns(arch):
    assert accuracy_after(net(arch, 32), 32, 60, rate=0.02) > 0.9
