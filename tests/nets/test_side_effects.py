"""What a network does besides its logits: one that does not repeat, or that writes into weights, is refused."""

import os

import pytest
import torch
from own_modules import SHAPE, net
from torch import nn

from stages.methods import trials
from stages.nets.build import new_network


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(torch.relu(self.first(x.flatten(1))))


def other(forward):
    """`Plain` with another forward pass, which gets it as its first argument."""
    return lambda: type("Other", (Plain,), {"forward": forward})()


def test_a_gradient_that_is_sparse_is_refused():
    made = new_network(net(lambda: Looking(sparse=True)), SHAPE, 0)
    with pytest.raises(ValueError, match=r"the gradient of level\.weight is torch\.sparse_coo.* leave out sparse=True"):
        trials.try_training(made, SHAPE)


class Ticking(Plain):
    """It counts where no file keeps it."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (1 + 1e-3 * self.calls)


@pytest.mark.parametrize(
    "module", [Ticking, other(lambda self, x: Plain.forward(self, x) + int.from_bytes(os.urandom(4), "big") / 2**32)]
)
def test_logits_that_are_others_the_next_time_are_refused(module):
    with pytest.raises(ValueError, match="other logits when it is called again"):
        trials.check_repeats(new_network(net(module), SHAPE, 0), SHAPE)


class Kept(Plain):
    """It counts in a buffer, and the count has an effect."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (1 + 1e-3 * self.calls)


@pytest.mark.parametrize("module", [Kept, lambda: nn.Sequential(Plain(), nn.Dropout(0.5))])
def test_logits_that_follow_from_buffers_and_streams_repeat(module):
    trials.check_repeats(new_network(net(module), SHAPE, 0), SHAPE)


class Looking(Plain):
    """Pixels are looked up in a table."""

    def __init__(self, **options):
        super().__init__()
        self.level = nn.Embedding(9, 16, **options)

    def forward(self, x):
        return super().forward(self.level((x.flatten(1) * 4 + 4).clamp(0, 8).long()).mean(1))


class Bounding(Plain):
    """As critics of images have it: `.data` is not watched by autograd."""

    def forward(self, x):
        self.last.weight.data.clamp_(-100, 100)
        return super().forward(x)


class Writing(Plain):
    """What was there already is written again."""

    def forward(self, x):
        with torch.no_grad():
            self.last.weight.mul_(1.0)
        return super().forward(x)


@pytest.mark.parametrize(
    ("module", "name"), [(lambda: Looking(max_norm=900.0), "level"), (Bounding, "last"), (Writing, "last")]
)
def test_a_network_that_writes_into_its_weights_is_refused_where_they_are_handed_in(module, name):
    """Under privacy a record would move the weights without noise: a table's row by whether it was looked up."""
    made = new_network(net(module), SHAPE, 1)
    trials.try_training(made, SHAPE)
    for trial in (
        lambda: trials.try_example_gradients(made, SHAPE, training=True),
        lambda: trials.try_matching_gradients(made, SHAPE),
        lambda: trials.try_proxy(made, SHAPE, images_move=False),
    ):
        with pytest.raises(ValueError, match=rf"writes into its weight {name}\.weight when images are seen"):
            trial()


class Straight(torch.autograd.Function):
    """Known to autograd, but not to `vmap`."""

    @staticmethod
    def forward(_ctx, x):
        return x.sign()

    @staticmethod
    def backward(_ctx, slopes):
        return slopes


def once_more(x, layer):
    return torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        (lambda self, x: self.last(Straight.apply(self.first(x.flatten(1)))), "generate_vmap_rule = True"),
        (lambda self, x: self.last(once_more(x.flatten(1), self.first)), "without activation checkpointing"),
    ],
)
def test_what_has_no_example_gradients_is_named(forward, said):
    made = new_network(net(other(forward)), SHAPE, 1)
    trials.try_training(made, SHAPE)
    with pytest.raises(ValueError, match=said):
        trials.try_example_gradients(made, SHAPE, training=True)
