"""Dropout that draws from the generator it is given, and from nothing else."""

import copy
import pickle

import pytest
import torch
from torch.func import vmap

from stages.nets.build import build, initialise
from stages.nets.dropout import Dropout, set_dropout_generator
from stages.nets.params import InputShape
from stages.registry import NETWORKS


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def layer(p=0.5, seed=0):
    dropout = Dropout(p)
    set_dropout_generator(dropout, generator(seed))
    return dropout


def test_the_mask_is_the_generators():
    x = torch.arange(1.0, 13.0).reshape(3, 4)
    kept = torch.rand(3, 4, generator=generator(7)) >= 0.25
    assert torch.equal(layer(0.25, seed=7)(x), torch.where(kept, x / 0.75, 0.0))


def test_rate_and_scale():
    """A million units: the rate within 5 standard deviations, and the mean kept by the scaling."""
    n, p = 1_000_000, 0.2
    out = layer(p)(torch.ones(n))
    assert set(out.unique().tolist()) == {0.0, 1.25}
    dropped = (out == 0).sum().item()
    bound = 5 * (n * p * (1 - p)) ** 0.5
    assert abs(dropped - n * p) < bound
    assert abs(dropped - n * 0.203) > bound  # a rate off by 0.003 would show


def test_each_call_draws_anew_and_a_seed_repeats_it():
    x = torch.ones(64)
    first, again = layer(), layer()
    a, b = first(x), first(x)
    assert not torch.equal(a, b)
    assert torch.equal(a, again(x)) and torch.equal(b, again(x))
    assert not torch.equal(a, layer(seed=1)(x))


def test_global_random_state_plays_no_part():
    x = torch.ones(64)
    before = torch.get_rng_state()
    a = layer()(x)
    assert torch.equal(before, torch.get_rng_state())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(123)
        assert torch.equal(layer()(x), a)


def test_the_mask_does_not_depend_on_precision():
    x = torch.ones(1000)
    single, double = layer()(x), layer()(x.double())
    assert double.dtype == torch.float64
    assert torch.equal(single == 0, double == 0)


def test_training_without_a_generator_is_refused():
    with pytest.raises(RuntimeError, match="needs a generator: call set_dropout_generator"):
        Dropout()(torch.ones(2))


def test_evaluation_passes_everything_and_needs_no_generator():
    x = torch.randn(5, generator=generator())
    assert torch.equal(Dropout().eval()(x), x)


def test_zero_drops_nothing_and_one_is_refused():
    x = torch.ones(100)
    assert torch.equal(layer(0.0)(x), x)
    for p in (1.0, -0.1):
        with pytest.raises(ValueError, match="dropout probability"):
            Dropout(p)


def test_the_gradient_goes_through_the_kept_units_only():
    x = torch.ones(50, requires_grad=True)
    out = layer(0.5)(x)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_does_not_share_the_stream(copied):
    original = layer()
    twin = copied(original)
    assert original.generator is not None and twin.generator is None and twin.p == original.p
    with pytest.raises(RuntimeError, match="needs a generator"):
        twin(torch.ones(2))


def test_under_vmap_each_example_has_its_own_mask():
    dropout = layer()
    x = torch.ones(4, 1, 32)
    out = vmap(dropout, randomness="different")(x)
    assert len({tuple(row.flatten().tolist()) for row in out}) == 4
    assert torch.equal(out, vmap(layer(), randomness="different")(x))


def vgg11(seed=0):
    net = build(NETWORKS.from_mapping({"arch": "vgg11"}), InputShape(channels=3, height=32, width=32, num_classes=10))
    initialise(net, generator(seed))
    return net


def test_vgg11_trains_with_a_generator_and_only_with_one():
    net = vgg11().train()
    x = torch.randn(2, 3, 32, 32, generator=generator(1))
    with pytest.raises(RuntimeError, match="needs a generator"):
        net(x)
    before = torch.get_rng_state()
    set_dropout_generator(net, generator(2))
    a, b = net(x), net(x)
    set_dropout_generator(net, generator(2))
    assert torch.equal(net(x), a) and not torch.equal(a, b)
    assert torch.equal(before, torch.get_rng_state())
    set_dropout_generator(net, None)
    with pytest.raises(RuntimeError, match="needs a generator"):
        net(x)
    assert net.eval()(x).isfinite().all()


def test_vgg11_draws_its_two_masks_one_after_the_other():
    net = vgg11().train()
    stream = generator(2)
    set_dropout_generator(net, stream)
    net(torch.randn(2, 3, 32, 32, generator=generator(1)))
    expected = generator(2)
    for _ in range(2):
        torch.rand(2, 512, generator=expected)
    assert torch.equal(stream.get_state(), expected.get_state())


def test_a_net_without_dropout_takes_a_generator_in_silence():
    set_dropout_generator(torch.nn.Linear(2, 2), generator())
