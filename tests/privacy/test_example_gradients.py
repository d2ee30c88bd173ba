"""Per-example gradients: the fast way against the general one and against plain loops; what it does not know."""

import gc
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

from stages.nets.build import build, initialise
from stages.nets.dropout import set_dropout_generator
from stages.nets.params import InputShape
from stages.privacy import clipped_total, clipping
from stages.privacy.clipping import clipped_sum
from stages.privacy.example_gradients import Unfit, chunk_gradients
from stages.registry import NETWORKS


@pytest.fixture
def products(monkeypatch):
    """The names of the weights whose gradients are never formed."""
    seen = set()
    original = clipped_total._stays_a_product

    def spy(name, gradients):
        stays = original(name, gradients)
        seen.update({name} if stays else ())
        return stays

    monkeypatch.setattr(clipped_total, "_stays_a_product", spy)
    return seen


def flat(tensors):
    return torch.cat([t.double().ravel() for t in tensors.values()])


def the_general_way(monkeypatch, *arguments, **options):
    def unfit(*_, **__):
        raise Unfit

    with monkeypatch.context() as patch:
        patch.setattr(clipping, "chunk_gradients", unfit)
        return clipped_sum(*arguments, **options)


def by_a_loop(loss, weights, *examples, clip):
    total = {name: torch.zeros_like(w, dtype=torch.float64) for name, w in weights.items()}
    leaves = {name: w.clone().requires_grad_() for name, w in weights.items()}
    for row in zip(*examples, strict=True):
        found = torch.autograd.grad(loss(leaves, *row), list(leaves.values()), allow_unused=True)
        own = {n: torch.zeros_like(leaves[n]) if g is None else g for n, g in zip(leaves, found, strict=True)}
        factor = min(1.0, clip / max(1e-30, float(flat(own).norm())))
        for name, g in own.items():
            total[name] += factor * g.double()
    return total


NETS = {
    "lenet5": (
        1,
        28,
        64,
        {"arch": "lenet5"},
        {"trunk.conv3.weight", "classifier.fc1.weight", "classifier.logits.weight"},
    ),
    "convnet": (1, 28, 8, {"arch": "convnet", "width": 16, "depth": 3}, {"classifier.logits.weight"}),
    "vgg11": (3, 32, 8, {"arch": "vgg11"}, {"trunk.conv7.weight", "trunk.conv8.weight", "classifier.fc1.weight"}),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "vgg11")) for n in NETS])
def test_on_each_network_it_is_the_general_way(name, products, monkeypatch):
    channels, side, chunk, net, unformed = NETS[name]
    module = build(NETWORKS.from_mapping(net), InputShape(channels=channels, height=side, width=side, num_classes=10))
    initialise(module, torch.Generator().manual_seed(1))
    module.train()
    weights = {n: w.detach() for n, w in module.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(5, channels, side, side, generator=generator)
    labels = torch.randint(10, (5,), generator=generator)
    images[1], images[3, 0, 0, 0] = math.nan, math.inf
    shared = torch.Generator().manual_seed(7)
    set_dropout_generator(module, shared)

    def loss(own, image, label):
        return F.cross_entropy(functional_call(module, own, (image[None],)), label[None])

    options = {"clip_norm": 0.5, "chunk_size": chunk, "shared": shared}
    before = shared.get_state()
    found = clipped_sum(loss, weights, (images, labels), **options)
    assert unformed <= products
    shared.set_state(before)
    expected = the_general_way(monkeypatch, loss, weights, (images, labels), **{**options, "chunk_size": 5})
    assert float(flat(expected).norm()) > 0.5
    for n in weights:
        scale = float(flat(expected).abs().max())
        torch.testing.assert_close(found[n], expected[n], rtol=1e-4, atol=1e-5 * scale)


def test_a_case_worked_by_hand():
    """A linear map: (1,2)⊗(3,4), of length √5·5; and a convolution, whose gradient is the sum of its windows."""
    weights = {"w": torch.zeros(2, 2), "k": torch.zeros(1, 1, 2, 2)}

    def loss(own, row, image):
        return F.linear(row, own["w"]) @ torch.tensor([1.0, 2.0]) + F.conv2d(image[None], own["k"]).sum()

    rows = torch.tensor([[3.0, 4.0]])
    image = torch.tensor([[[[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]]])
    found = clipped_sum(loss, weights, (rows, image), clip_norm=1e9)
    assert found["w"].tolist() == [[3.0, 4.0], [6.0, 8.0]]
    assert found["k"].tolist() == [[[[3.0, 2.0], [2.0, 2.0]]]]
    # Squared lengths: 125 and 9 + 4 + 4 + 4.
    half = clipped_sum(loss, weights, (rows, image), clip_norm=math.sqrt(146) / 2)
    torch.testing.assert_close(half["w"], found["w"] / 2, rtol=2e-6, atol=0)
    torch.testing.assert_close(half["k"], found["k"] / 2, rtol=2e-6, atol=0)


def tied(own, x):
    """One weight in two layers, and once more outside of any."""
    return (F.linear(torch.tanh(F.linear(x, own["w"])), own["w"]).square().sum() + own["w"].sin().sum()) * x.mean()


def of_its_slope(own, x):
    slope = torch.func.grad(lambda y: torch.tanh(F.linear(y, own["w"], own["b"])).sum())(x)
    return slope.square().sum() + F.linear(x, own["w"]).sum()


def a_vmap_within(own, x):
    return torch.func.vmap(lambda y: F.linear(y, own["w"], own["b"]).square().sum())(x).sum()


def scaled(own, x):
    return torch.tanh(F.linear(x, own["w"] * 2, own["b"])).sum()


def of_one_row_of_the_weight(own, x):
    return torch.tanh(F.linear(x, own["w"][0])).sum()


def of_a_constant(own, x):
    """The layer's input is the same for all examples."""
    return (F.linear(torch.ones(2, 40), own["w"], own["b"]).sin() * x).sum()


def of_nothing(own, x):
    return x.sum()


@pytest.mark.parametrize(
    "loss", [tied, of_its_slope, a_vmap_within, scaled, of_one_row_of_the_weight, of_a_constant, of_nothing]
)
@pytest.mark.parametrize("clip", [0.3, 1e6])
def test_what_is_not_a_plain_layer_counts_too(loss, clip):
    torch.manual_seed(0)
    weights = {"w": torch.randn(40, 40) / 6, "b": torch.randn(40), "unused": torch.randn(3)}
    x = torch.randn(5, 2, 40)
    found = clipped_sum(loss, weights, (x,), clip_norm=clip, chunk_size=8)
    expected = (
        by_a_loop(loss, weights, x, clip=clip) if loss is not of_nothing else {n: w * 0 for n, w in weights.items()}
    )
    torch.testing.assert_close(flat(found), flat(expected), rtol=1e-4, atol=1e-4)


LAYERS = {
    "strided": nn.Conv2d(3, 8, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
    "many channels": nn.Conv2d(12, 8, 3, padding=1),
    "much work": nn.Conv2d(12, 300, 3, padding=1),
    "few places": nn.Conv2d(64, 64, 5),
    "in groups": nn.Conv2d(6, 6, 3, groups=3),
    "padded by name": nn.Conv2d(3, 8, 3, padding="same"),
    "transposed": nn.ConvTranspose2d(5, 7, 4, stride=2, padding=1, output_padding=1),
    "transposed, few places": nn.ConvTranspose2d(200, 70, 2, stride=8),
    "group norm": nn.GroupNorm(2, 6),
    "layer norm": nn.LayerNorm(6),
    "embedded": nn.Embedding(4, 6),
    "without bias": nn.Linear(6, 5, bias=False),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("times", [1, 3])
def test_each_layer_with_one_and_with_several_draws(name, times):
    layer = LAYERS[name]
    torch.manual_seed(0)
    weights = {n: torch.randn_like(w) / 5 for n, w in layer.named_parameters()}
    side = {"few places": 5, "transposed, few places": 1, "much work": 20}.get(name, 8)
    if isinstance(layer, nn.Embedding):
        x = torch.randint(4, (3, times, 2))
    elif isinstance(layer, nn.LayerNorm | nn.Linear):
        x = torch.randn(3, times, 4, 6)
    else:
        x = torch.randn(3, times, getattr(layer, "in_channels", 6), side, side)

    def loss(own, image):
        return torch.tanh(functional_call(layer, own, (image,))).square().mean()

    found = clipped_sum(loss, weights, (x,), clip_norm=1e6, chunk_size=4)
    expected = by_a_loop(loss, weights, x, clip=1e6)
    torch.testing.assert_close(flat(found), flat(expected), rtol=1e-3, atol=1e-6)


def rows_and_slopes(own, a, b):
    """Its gradient is Σ b⊗a over the rows, whatever the weight."""
    return (F.linear(a, own["w"]) * b).sum()


SQUARE = {"w": torch.zeros(24, 24)}
numbers = st.sampled_from([0.0, 1.0, -1.0, 1e-45, 1e-20, 3.4e38, -3.4e38, 1e19, 0.1, math.inf, math.nan])
few = st.lists(numbers, min_size=4, max_size=4)


def spread_out(values):
    """[rows, 2, 24] from four numbers a row of the batch."""
    return torch.tensor(values, dtype=torch.float32).reshape(-1, 2, 2).repeat(1, 1, 12)


@settings(max_examples=150)
@given(st.lists(st.tuples(few, few), max_size=5), few, few, st.booleans(), st.floats(1e-5, 1e5))
def test_a_product_never_moves_the_sum_by_more_than_the_clip(others, a, b, cancel, clip):
    """Whatever the rows: huge, denormal, not finite, or such that they all but cancel out."""
    if cancel:
        a, b = [*a[:2], *a[:2]], [*b[:2], *(-x * (1 + 1e-6) for x in b[:2])]
    left = spread_out([row for row, _ in others] + [a])
    right = spread_out([row for _, row in others] + [b])
    options = {"clip_norm": clip, "chunk_size": 8}
    with_it = flat(clipped_sum(rows_and_slopes, SQUARE, (left, right), **options))
    without = flat(clipped_sum(rows_and_slopes, SQUARE, (left[:-1], right[:-1]), **options))
    moved = (with_it - without).tolist()
    assert math.sqrt(math.fsum(x * x for x in moved)) <= clip
    if not (left[-1].isfinite().all() and right[-1].isfinite().all()):
        assert not any(moved), "what is not finite counts as zero"


def test_rows_that_cancel_out_are_clipped_by_what_they_are_made_of(products):
    """g is 1/4096 of what its rows would make without cancelling out: its rounding would not be paid for."""
    a = torch.ones(1, 2, 24)
    b = torch.stack([torch.ones(24), torch.full((24,), -1 + 2**-11)])[None]
    found = clipped_sum(rows_and_slopes, SQUARE, (a, b), clip_norm=1e-3, chunk_size=8)
    assert products == {"w"}
    spread = 24 * (2 - 2**-11)
    assert float(flat(found).norm()) == pytest.approx(24 * 2**-11 * 1e-3 / (spread / 64), rel=1e-5)


def test_a_product_counts_the_same_wherever_it_stands_and_whoever_stands_beside_it(products):
    """To the last bit, with several rows too."""
    torch.manual_seed(0)
    weights = {"w": torch.randn(64, 96)}

    def loss(own, a):
        return torch.tanh(F.linear(a, own["w"])).sum()

    a = torch.randn(30, 4, 96)
    alone = flat(clipped_sum(loss, weights, (a[:1],), clip_norm=1.0, chunk_size=16))
    assert products == {"w"}
    silent = a.clone()
    silent[1:] = math.nan
    for place in (1, 7, 15, 16, 29):
        order = torch.cat([torch.arange(1, place + 1), torch.tensor([0]), torch.arange(place + 1, 30)])
        assert torch.equal(flat(clipped_sum(loss, weights, (silent[order],), clip_norm=1.0, chunk_size=16)), alone)


def test_gradients_are_formed_for_few_examples_at_a_time(monkeypatch):
    assert clipped_total._slices(64, 1 << 16) == [slice(0, 64)]
    assert clipped_total._slices(64, 1 << 20) == [slice(i, i + 4) for i in range(0, 64, 4)]
    assert clipped_total._slices(6, 1 << 20) == [slice(0, 3), slice(3, 6)]
    assert len(clipped_total._slices(8, 1 << 30)) == 4, "no fewer than two: each is added to the total"
    torch.manual_seed(0)
    weights, x = {"w": torch.randn(8, 8)}, torch.randn(8, 3, 8)

    def loss(own, a):
        return torch.tanh(F.linear(a, own["w"])).sum()

    whole = clipped_sum(loss, weights, (x,), clip_norm=1.0, chunk_size=8)
    monkeypatch.setattr(clipped_total, "_FORMED_NUMBERS", 128)
    torch.testing.assert_close(clipped_sum(loss, weights, (x,), clip_norm=1.0, chunk_size=8), whole, rtol=1e-6, atol=0)


def test_many_weights_of_unknown_layers_are_left_to_the_general_way():
    def loss(own, x):
        return (own["w"] * x).sum()

    with pytest.raises(Unfit, match="10 weights"):
        chunk_gradients(
            loss, {"w": torch.ones(10)}, (torch.ones(8, 10),), examples=8, randomness="error", most_numbers=79
        )


def test_nothing_of_a_chunk_outlives_its_sum():
    """Held in a ring, activations and slopes would wait for Python's collector: memory would not be bounded."""
    module = build(
        NETWORKS.from_mapping({"arch": "convnet", "width": 4, "depth": 2}),
        InputShape(channels=1, height=8, width=8, num_classes=3),
    )
    weights = {n: w.detach() for n, w in module.named_parameters()}
    images, labels = torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])

    def loss(own, image, label):
        return F.cross_entropy(functional_call(module, own, (image[None],)), label[None])

    clipped_sum(loss, weights, (images, labels), clip_norm=1.0, chunk_size=4)
    gc.collect()
    gc.disable()
    try:
        before = sum(type(thing) is torch.Tensor for thing in gc.get_objects())
        clipped_sum(loss, weights, (images, labels), clip_norm=1.0, chunk_size=4)
        assert sum(type(thing) is torch.Tensor for thing in gc.get_objects()) == before
    finally:
        gc.enable()


def test_a_network_may_add_in_place_to_what_a_layer_gave():
    """As torchvision's residual blocks do, after group norm and after a convolution."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(2, 2, 3, padding=1), nn.GroupNorm(1, 2)

        def forward(self, x):
            out = self.norm(x)
            out += x
            seen = self.conv(out)
            seen *= 2
            return seen.sum()

    torch.manual_seed(0)
    module, x = Block(), torch.randn(3, 1, 2, 4, 4)
    weights = {name: torch.randn_like(weight) for name, weight in module.named_parameters()}

    def loss(own, image):
        return torch.tanh(functional_call(module, own, (image,)) / 50)

    found = clipped_sum(loss, weights, (x,), clip_norm=0.3, chunk_size=4)
    torch.testing.assert_close(flat(found), flat(by_a_loop(loss, weights, x, clip=0.3)), rtol=1e-4, atol=1e-6)
