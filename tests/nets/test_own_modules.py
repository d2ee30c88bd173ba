"""Any torch module: first weights by its own scheme from the seed, tying, buffers and dropout kept, misfits refused."""

import pytest
import torch
from own_modules import SHAPE, net
from torch import nn

from stages.nets.build import new_network, skeleton, with_weights
from stages.nets.dropout import Dropout, set_dropout_generator
from stages.nets.state import exchanged, file_tensors, freeze, trained


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.ones(2))
        self.register_buffer("computed", torch.arange(3.0), persistent=False)
        self.first = nn.Linear(16, 16, bias=False)
        self.second = nn.Linear(16, 16)
        self.second.weight = self.first.weight
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(16)
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        h = self.norm(self.drop(self.second(torch.relu(self.first(x.flatten(1))))))
        return self.last(h) + self.computed.sum() * 0 + self.kept.sum() * 0


def test_the_first_weights_are_the_modules_own_from_the_seed_alone():
    state = torch.get_rng_state()
    made = new_network(net(Tied), SHAPE, 5)
    assert torch.equal(state, torch.get_rng_state())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        wanted = Tied().state_dict()
    assert all(torch.equal(made.state_dict()[name], wanted[name]) for name in wanted)
    other = new_network(net(Tied), SHAPE, 6)
    assert not torch.equal(made.first.weight, other.first.weight)


def test_a_file_has_a_tied_weight_once_and_it_stays_tied():
    made = new_network(net(Tied), SHAPE, 1)
    tensors = {name: tensor.clone() for name, tensor in file_tensors(made).items()}
    assert "first.weight" in tensors and "second.weight" not in tensors and "computed" not in tensors
    assert set(tensors) == set(file_tensors(skeleton(net(Tied), SHAPE)))
    again = with_weights(net(Tied), SHAPE, tensors).eval()
    assert again.second.weight is again.first.weight
    assert torch.equal(again.computed, torch.arange(3.0))
    images = torch.randn(4, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again(images), made.eval()(images))
    assert set(exchanged(again)) == set(tensors) - {"norm.num_batches_tracked"}


def test_dropout_draws_from_the_generator_that_it_is_given():
    made = new_network(net(Tied), SHAPE, 1).train()
    assert type(made.drop) is Dropout and made.drop.p == 0.5
    state = torch.get_rng_state()
    images = torch.ones(4, 1, 4, 4)
    found = []
    for seed in (1, 1, 2):
        set_dropout_generator(made, torch.Generator().manual_seed(seed))
        found.append(made(images))
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])
    assert torch.equal(state, torch.get_rng_state())


def test_dropping_channels_and_examples():
    x = torch.ones(50, 6, 3, 3)
    for leading in (1, 2):
        drop = Dropout(0.5, leading=leading).train()
        drop.generator = torch.Generator().manual_seed(0)
        flat = drop(x).flatten(leading)
        assert torch.equal(flat.amin(-1), flat.amax(-1))  # whole or not at all
        assert set(flat.flatten().tolist()) == {0.0, 2.0}
        assert abs(float(flat.mean()) - 1) < 6.5 / (50 * (6 if leading == 2 else 1)) ** 0.5  # 6.5 standard deviations


class NoParameters(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :3]


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        return self.last(nn.functional.dropout(x.flatten(1), 0.5, self.training))


class WrongSize(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.last = nn.Linear(inputs, outputs)

    def forward(self, x):
        return self.last(x.flatten(1))


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (NoParameters, "has no parameters"),
        (Functional, "global random state .*use nn.Dropout"),
        (lambda: WrongSize(17, 3), "does not take two images of 1×4×4"),
        (lambda: WrongSize(16, 4), r"must return logits of \[2, 3\] for two images, found \[2, 4\]"),
        (lambda: "a string", "must return a torch.nn.Module, found str"),
    ],
)
def test_what_is_no_network_for_these_images_is_refused(module, said):
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match=said):
        new_network(net(module), SHAPE, 0)
    assert torch.equal(state, torch.get_rng_state())


def test_frozen_tensors_are_neither_trained_nor_sent_and_norms_keep_their_averages():
    made = new_network(net(Tied), SHAPE, 1)
    freeze(made, "first.*,norm.*")
    assert set(trained(made)) == {"second.bias", "last.weight", "last.bias"}
    assert set(exchanged(made)) == {"second.bias", "last.weight", "last.bias", "kept"}
    before = {name: tensor.clone() for name, tensor in file_tensors(made).items()}
    set_dropout_generator(made.train(), torch.Generator().manual_seed(0))
    assert not made.norm.training and made.last.training
    images = torch.randn(8, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    nn.functional.cross_entropy(made(images), torch.arange(8) % 3).backward()
    torch.optim.SGD(trained(made).values(), lr=0.1).step()
    changed = {name for name, tensor in file_tensors(made).items() if not torch.equal(tensor, before[name])}
    assert changed == {"second.bias", "last.weight", "last.bias"}


@pytest.mark.parametrize(("patterns", "said"), [("nothing.*", "matches no tensor"), ("*", "nothing is left to train")])
def test_a_pattern_that_freezes_nothing_or_everything_is_refused(patterns, said):
    with pytest.raises(ValueError, match=said):
        freeze(new_network(net(Tied), SHAPE, 1), patterns)
