"""Networks are made without global randomness, and begin with torch's own scheme from the generator given."""

import math
import random

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from stages.nets.build import build, initialise, new_network
from stages.nets.convnet import convnet
from stages.nets.dropout import Dropout
from stages.nets.emnist_cnn import emnist_cnn
from stages.nets.lenet5 import lenet5
from stages.nets.params import InputShape
from stages.nets.resnet18 import resnet18
from stages.nets.small import mlp, softmax
from stages.nets.strided import strided
from stages.nets.vgg import vgg11, vgg13
from stages.registry import NETWORKS

CIFAR = InputShape(channels=3, height=32, width=32, num_classes=10)
ARCHS = [arch for arch in NETWORKS.words if not arch.startswith("torchvision:")]
CONSTRUCTORS = {
    "softmax": softmax,
    "mlp": lambda shape: mlp(shape, 64, 1),
    "convnet": lambda shape: convnet(shape, 128, 3),
    "lenet5": lenet5,
    "vgg11": vgg11,
    "vgg13": vgg13,
    "resnet18": resnet18,
    "emnist-cnn": emnist_cnn,
    "strided": lambda shape: strided(shape, 8),
}


HE_NORMAL = ("vgg11", "vgg13", "resnet18")


def made(arch, seed=0, shape=CIFAR):
    return new_network(NETWORKS.from_mapping({"arch": arch}), shape, seed)


@pytest.mark.parametrize("arch", ARCHS)
def test_global_random_state_is_left_alone(arch):
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    made(arch)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    assert (before[2] == np.random.get_state()[1]).all()


@pytest.mark.parametrize("arch", ARCHS)
def test_weights_are_nan_until_they_are_given(arch):
    net = build(NETWORKS.from_mapping({"arch": arch}), CIFAR)
    for name, tensor in net.state_dict().items():
        assert tensor.device.type == "cpu"
        assert tensor.isnan().all() if tensor.is_floating_point() else (tensor == 0).all(), name
    assert net.eval()(torch.zeros(1, 3, 32, 32)).isnan().all()
    assert all(p.requires_grad for p in net.parameters())


@pytest.mark.parametrize("arch", [arch for arch in ARCHS if arch not in HE_NORMAL])
def test_a_seed_gives_torchs_own_weights_bit_for_bit(arch):
    """The generator begins where `torch.manual_seed` would: same scheme, same order, same bits."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        torchs = CONSTRUCTORS[arch](CIFAR).state_dict()
    ours = made(arch, seed=5).state_dict()
    assert list(ours) == list(torchs)
    for name in ours:
        assert torch.equal(ours[name], torchs[name]), name


@pytest.mark.parametrize("arch", ARCHS)
def test_same_seed_same_weights_other_seed_others(arch):
    a, b, c = made(arch, 1).state_dict(), made(arch, 1).state_dict(), made(arch, 2).state_dict()
    for name in a:
        assert torch.equal(a[name], b[name]), name
        drawn = "norm" not in name and not (arch in HE_NORMAL and name.endswith("bias"))
        assert torch.equal(a[name], c[name]) != drawn, name


def test_a_second_call_goes_on_in_the_stream():
    net = build(NETWORKS.from_mapping({"arch": "softmax"}), CIFAR)
    generator = torch.Generator().manual_seed(0)
    initialise(net, generator)
    first = net.classifier[-1].weight.clone()
    initialise(net, generator)
    assert not torch.equal(first, net.classifier[-1].weight)


def fits(values: torch.Tensor) -> bool:
    """Whether values in units of 1/√fan-in are uniform on [−1, 1]: none outside, Kolmogorov-Smirnov at 1e-3."""
    v = values.detach().double().numpy()
    return bool(np.abs(v).max() <= 1 + 1e-6 and stats.kstest(v, stats.uniform(-1, 2).cdf).pvalue > 1e-3)


def scaled(layers, kind):
    """All weights or all biases of some layers, each in units of its layer's bound."""
    fan_in = {nn.Conv2d: lambda m: m.in_channels * math.prod(m.kernel_size), nn.Linear: lambda m: m.in_features}
    parts = [getattr(m, kind).flatten() * math.sqrt(fan_in[type(m)](m)) for m in layers if getattr(m, kind) is not None]
    return torch.cat(parts)


@pytest.mark.parametrize("arch", ["mlp", "convnet", "lenet5", "emnist-cnn"])
@pytest.mark.parametrize("kind", ["weight", "bias"])
def test_weights_and_biases_are_uniform_within_one_over_root_fan_in(arch, kind):
    nets = [made(arch, seed) for seed in range(20 if kind == "bias" else 1)]
    layers = [m for net in nets for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    values = scaled(layers, kind)
    assert len(values) > 1000
    assert fits(values)
    assert values.std().item() == pytest.approx(1 / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize("arch", HE_NORMAL)
def test_he_normal_weights_have_variance_two_over_fan_in_and_no_bias(arch):
    layers = [m for m in made(arch).modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert all((m.bias == 0).all() for m in layers if m.bias is not None)
    values = (scaled(layers, "weight").detach() / math.sqrt(2)).double()[::10].numpy()
    assert len(values) > 900_000
    assert stats.kstest(values, stats.norm.cdf).pvalue > 1e-9
    assert stats.kstest(values * 1.02, stats.norm.cdf).pvalue < 1e-12


def test_the_test_accepts_torchs_own_and_rejects_a_wrong_scale():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        torchs = scaled([nn.Conv2d(16, 64, 5), nn.Linear(300, 100)], "weight")
        same_spread = torch.randn(len(torchs)) / math.sqrt(3)
    assert fits(torchs)
    for wrong in (torchs * 1.02, torchs * 0.98, torchs * math.sqrt(6), torchs.abs(), same_spread.clamp(-1, 1)):
        assert not fits(wrong)


@pytest.mark.parametrize("arch", ["convnet", "vgg13", "resnet18"])
def test_norms_begin_as_the_identity(arch):
    norms = [m for m in made(arch).modules() if isinstance(m, nn.GroupNorm | nn.BatchNorm2d)]
    assert len(norms) == {"convnet": 3, "vgg13": 10, "resnet18": 20}[arch]
    for m in norms:
        assert (m.weight == 1).all() and (m.bias == 0).all()
        if isinstance(m, nn.BatchNorm2d):
            assert (m.running_mean == 0).all() and (m.running_var == 1).all() and m.num_batches_tracked == 0


def test_batch_norm_counts_are_reset():
    net = made("vgg13").train()
    net.trunk(torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert net.trunk.norm1.num_batches_tracked == 1
    initialise(net, torch.Generator().manual_seed(0), "he-normal")
    again = made("vgg13").state_dict()
    assert all(torch.equal(v, again[k]) for k, v in net.state_dict().items())


def test_a_layer_of_unknown_scheme_is_refused():
    initialise(nn.Sequential(nn.ReLU(), Dropout(), nn.Flatten()), torch.Generator())
    for unknown in (nn.Embedding(3, 2), nn.PReLU(), nn.BatchNorm1d(3)):
        with pytest.raises(
            TypeError, match=f"no initial weights are known for a layer of type {type(unknown).__name__}"
        ):
            initialise(nn.Sequential(nn.Linear(2, 2), unknown), torch.Generator())


@pytest.mark.parametrize("arch", ARCHS)
def test_a_state_dict_goes_into_a_new_net(arch):
    source = made(arch, 3).eval()
    target = build(NETWORKS.from_mapping({"arch": arch}), CIFAR).eval()
    target.load_state_dict(source.state_dict())
    x = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(source(x), target(x))


def test_every_declared_net_is_tested_here():
    assert set(CONSTRUCTORS) == set(ARCHS)
