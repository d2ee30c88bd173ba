"""Modules as people write them: what works of it, and what is refused in a sentence before anything is read."""

import os
import random

import numpy as np
import pytest
import torch
from own_modules import SHAPE, net
from torch import nn

from stages.methods import trials
from stages.nets.build import new_network, skeleton, with_weights
from stages.nets.called import called
from stages.nets.net import Net
from stages.nets.state import file_tensors, freeze


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(torch.relu(self.first(x.flatten(1))))


def with_tensor(name, tensor):
    def build():
        made = Plain()
        made.register_buffer(name, tensor)
        return made

    return build


def changed(forward):
    """`Plain` with another forward pass, which gets it as its first argument."""
    return lambda: type("Changed", (Plain,), {"forward": forward})()


class Counting(Plain):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.seen += len(x)
        return super().forward(x)


class Replacing(Counting):
    """It does not write into its buffer, it puts another there."""

    def forward(self, x):
        if self.training:
            self.seen = self.seen + x.detach().mean()
        return Plain.forward(self, x)


class UnderTwoNames(Plain):
    def __init__(self):
        super().__init__()
        self.middle = nn.Linear(8, 8)
        self.again = self.middle

    def forward(self, x):
        return self.last(torch.tanh(self.again(torch.tanh(self.middle(torch.relu(self.first(x.flatten(1))))))))


def by_numpy_and_python():
    made = Plain()
    if made.first.weight.device.type != "meta":
        made.first.weight.data = torch.from_numpy(np.random.randn(8, 16).astype(np.float32))
        made.last.bias.data.fill_(random.random())
    return made


def by_the_system():
    made = Plain()
    if made.first.weight.device.type != "meta":
        made.first.weight.data.fill_(int.from_bytes(os.urandom(4), "big") / 2**32)
    return made


def raising(error):
    def build():
        raise error

    return build


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (with_tensor("odd", torch.zeros(2, dtype=torch.complex64)), "tensor odd is complex64, which files do not hold"),
        (with_tensor("odd", torch.zeros(2, dtype=torch.bfloat16)), "tensor odd is bfloat16, which files do not hold"),
        (with_tensor("odd", torch.zeros(0, 3)), "tensor odd is empty"),
        (with_tensor("__metadata__", torch.zeros(3)), "needs another name"),
        (with_tensor("ä\n", torch.zeros(3)), "needs another name"),
        (changed(lambda self, x: (Plain.forward(self, x), x)), r"logits of \[2, 3\] for two images, found tuple"),
        (changed(lambda self, x: Plain.forward(self, x).squeeze()), r"\[1, 3\] for one image, found \[3\]"),
        (changed(lambda self, x: Plain.forward(self, x) * torch.nan), "not finite before any training"),
        (changed(lambda self, x: Plain.forward(self, x.mul_(0.5))), "writes into the images"),
        (
            changed(lambda self, x: Plain.forward(self, x if self.training else nn.functional.dropout(x, 0.5))),
            "draws from torch's global random state",
        ),
        (lambda: Plain().double(), "tensor first.weight is float64, which files do not hold: make it float32$"),
        (with_tensor("odd", torch.ones(2, dtype=torch.float64)), "odd is float64.*, or int64, or persistent=False$"),
        (with_tensor("odd", torch.ones(2, dtype=torch.bool)), "tensor odd is bool, which files do not hold"),
        (changed(lambda self, x: Plain.forward(self, x) * np.random.rand()), "draws from numpy's global random state"),
        (changed(lambda self, x: Plain.forward(self, x) * random.random()), "draws from Python's global random state"),
        (
            lambda: nn.Sequential(nn.Flatten(), torch.jit.script(nn.Linear(16, 3))),
            "return the one that it was made from",
        ),
        (raising(KeyError("oops")), "its build fails: KeyError: 'oops'"),
        (raising(SystemExit(0)), "its build fails: SystemExit: 0"),
        (nn.Linear, "its build fails: TypeError: .*missing"),
    ],
)
def test_refused(module, said):
    with pytest.raises(ValueError, match=said):
        new_network(net(module), SHAPE, 0)


def test_first_weights_follow_from_the_seed_whichever_generator_draws_them():
    before = random.getstate(), np.random.get_state()[1].tolist()
    made, again = (new_network(net(by_numpy_and_python), SHAPE, 4) for _ in range(2))
    trials.check_first_weights(made, again)
    assert before == (random.getstate(), np.random.get_state()[1].tolist())
    other = new_network(net(by_numpy_and_python), SHAPE, 5)
    assert not torch.equal(made.first.weight, other.first.weight)
    assert not torch.equal(made.last.bias, other.last.bias)


def test_first_weights_that_do_not_follow_from_it_are_refused():
    with pytest.raises(ValueError, match=r"first\.weight differs when the network is built again"):
        trials.check_first_weights(*(new_network(net(by_the_system), SHAPE, 4) for _ in range(2)))


def test_first_weights_that_are_not_finite_are_refused():
    made = new_network(net(Plain), SHAPE, 4)
    made.last.bias.data[1] = torch.inf
    with pytest.raises(ValueError, match=r"last\.bias holds NaN or infinity"):
        trials.check_first_weights(made, made)


def test_a_network_without_a_slope_is_refused():
    made = new_network(net(changed(lambda self, x: Plain.forward(self, x).detach())), SHAPE, 0)
    with pytest.raises(ValueError, match="no parameter has an effect on the logits"):
        trials.try_training(made, SHAPE)


def test_layers_that_learn_their_size_from_images_have_weights_from_the_seed():
    lazy = net(lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(3)))
    made, again = (new_network(lazy, SHAPE, 4) for _ in range(2))
    tensors = file_tensors(made)
    assert [list(tensor.shape) for tensor in tensors.values()] == [[8, 16], [8], [3, 8], [3]]
    trials.check_first_weights(made, again)
    assert set(file_tensors(skeleton(lazy, SHAPE))) == set(tensors)
    loaded = with_weights(lazy, SHAPE, tensors)
    assert all(torch.equal(value, tensors[name]) for name, value in file_tensors(loaded).items())


def test_a_layer_under_two_names_is_called_with_what_is_handed_in_and_stays_as_it_was():
    made = new_network(net(UnderTwoNames), SHAPE, 1).eval()
    own = dict(made.named_parameters())
    values = {name: torch.full_like(weight, 0.1) for name, weight in own.items()}
    images = torch.ones(2, 1, 4, 4)
    wanted = new_network(net(UnderTwoNames), SHAPE, 2).eval()
    with torch.no_grad():
        for weight in wanted.parameters():
            weight.fill_(0.1)
    assert torch.equal(called(made, values, images), wanted(images))
    assert all(weight is own[name] for name, weight in made.named_parameters())
    assert made.again.weight is made.middle.weight is own["middle.weight"]
    assert trials.try_example_gradients(made, SHAPE, training=True)


@pytest.mark.parametrize("module", [Counting, Replacing])
def test_a_buffer_that_changes_with_the_images_is_refused_under_privacy(module):
    made = new_network(net(module), SHAPE, 1)
    with pytest.raises(ValueError, match=r"buffer seen changes when images are seen.* --freeze seen"):
        trials.try_example_gradients(made, SHAPE, training=True)
    frozen = new_network(net(module), SHAPE, 1)
    freeze(frozen, "seen")
    trials.try_example_gradients(frozen, SHAPE, training=True)


class Mixing(nn.Module):
    def forward(self, x):
        return x - x.mean(0, keepdim=True)


class Remembering(nn.Module):
    last = 0.0

    def forward(self, x):
        made = x + 0.1 * self.last
        self.last = float(x.detach().mean())
        return made


@pytest.mark.parametrize("layer", [Mixing, Remembering])
def test_features_that_depend_on_other_images_are_refused_under_privacy(layer):
    def build(*between):
        return Net(nn.Sequential(nn.Flatten(), nn.Linear(16, 8), *between, nn.ReLU()), nn.Sequential(nn.Linear(8, 3)))

    trials.try_features_alone(new_network(net(build), SHAPE, 1).eval(), SHAPE)
    made = new_network(net(lambda: build(layer())), SHAPE, 1).eval()
    with pytest.raises(ValueError, match="depend on the images beside or before it"):
        trials.try_features_alone(trials.try_matching_features(made, SHAPE), SHAPE)
