"""What is tried on blank images before data is read: it leaves the network as it was, and says what is wrong."""

import pytest
import torch
from torch import nn

from stages.methods import trials
from stages.nets.adopt import Hardsigmoid, adopt
from stages.nets.net import Net
from stages.nets.params import InputShape
from stages.registry import ALGORITHMS

SHAPE = InputShape(channels=1, height=4, width=4, num_classes=3)


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.last, self.spare = nn.Linear(16, 3), nn.Linear(4, 4)

    def forward(self, x):
        return self.last(x.flatten(1))


def test_a_parameter_without_effect_is_refused_unless_it_is_frozen():
    module = Unused()
    with pytest.raises(ValueError, match=r"spare.weight has no effect .* --freeze spare.weight"):
        trials.try_training(module, SHAPE)
    module.spare.requires_grad_(False)
    trials.try_training(module, SHAPE)


def test_nothing_of_the_network_changes():
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    module = adopt(Net(trunk, nn.Sequential(nn.Linear(8, 3))), SHAPE)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    random = torch.get_rng_state()
    trials.try_training(module, SHAPE)
    trials.try_matching_gradients(module, SHAPE)
    trials.try_matching_features(module, SHAPE)
    trials.try_proxy(module, SHAPE, images_move=True)
    trials.try_example_gradients(module, SHAPE, training=False)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())
    assert all(weight.grad is None for weight in module.parameters())


def test_what_opacus_does_not_train_is_refused_but_for_what_we_can():
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.BatchNorm1d(4))
    with pytest.raises(ValueError, match=r"^2: .*BatchNorm"):
        trials.refuse_mixing(module.train())
    trials.refuse_mixing(nn.LSTM(3, 4).train())
    trials.refuse_mixing(nn.MultiheadAttention(4, 2).train())
    with pytest.raises(ValueError, match="running stats"):
        trials.refuse_mixing(nn.Sequential(nn.InstanceNorm2d(3, affine=True, track_running_stats=True)).train())


def test_the_hardsigmoid_that_has_a_second_derivative_is_torchs_to_the_last_bit():
    x = torch.cat([torch.linspace(-4, 4, 10_001), torch.tensor([-3.0, 3.0, 0.0, 1e-30, float("inf"), -float("inf")])])
    assert torch.equal(Hardsigmoid()(x), nn.functional.hardsigmoid(x))
    x = torch.linspace(-4, 4, 101, requires_grad=True)  # no edge among them
    ours, theirs = (torch.autograd.grad(f(x).sum(), x)[0] for f in (Hardsigmoid(), nn.functional.hardsigmoid))
    torch.testing.assert_close(ours, theirs)
    assert isinstance(adopt(nn.Sequential(nn.Linear(1, 1), nn.Hardsigmoid()), SHAPE)[1], Hardsigmoid)


def test_fedpvr_needs_a_classifier():
    params = ALGORITHMS.from_mapping({"algorithm": "fedpvr"})
    assert "classifier" in params.unfit({"last.weight": None})
    assert params.unfit({"trunk.0.weight": None, "classifier.0.weight": None}) is None
