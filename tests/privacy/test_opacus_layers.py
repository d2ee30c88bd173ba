"""Layers that our batched passes do not know: by Opacus, or by vmap, against plain autograd one example at a time."""

import math

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from stages.nets.attention import plain_attention
from stages.privacy.clipping import clipped_sum, example_ways

LAYERS = {
    "embedding": (nn.Embedding(9, 5), "vmap"),
    "embedding with padding": (nn.Embedding(9, 5, padding_idx=2), "opacus"),
    "layer norm": (nn.LayerNorm((3, 6)), "vmap"),
    "layer norm without bias": (nn.LayerNorm(6, bias=False), "vmap"),
    "1-D": (nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2), "vmap"),
    "1-D in groups": (nn.Conv1d(4, 6, 3, groups=2, bias=False), "vmap"),
    "3-D": (nn.Conv3d(2, 4, (1, 3, 2), stride=(1, 2, 1), padding=(0, 1, 0)), "vmap"),
    "padded by name": (nn.Conv3d(2, 4, 3, padding="same"), "vmap"),
    "depthwise": (nn.Conv2d(4, 8, 3, groups=4), "vmap"),
    "lstm": (nn.LSTM(6, 5, batch_first=True), "opacus"),
    "lstm, two layers, both ways": (nn.LSTM(6, 5, 2, bidirectional=True), "opacus"),
    "gru without bias": (nn.GRU(6, 5, bias=False, batch_first=True), "opacus"),
    "rnn of relu": (nn.RNN(6, 5, nonlinearity="relu", batch_first=True), "opacus"),
    "attention": (nn.MultiheadAttention(6, 2, batch_first=True), "batched"),
    "attention with a bias of its own": (nn.MultiheadAttention(6, 2, batch_first=True, add_bias_kv=True), None),
}
SHAPES = {"1": (4, 12), "3": (2, 3, 7, 6), "p": (2, 3, 4, 5), "d": (4, 7, 7)}


def example(name, layer, count):
    if isinstance(layer, nn.Embedding):
        return torch.randint(9, (count, 4))
    if isinstance(layer, nn.modules.conv._ConvNd):
        return torch.randn(count, *SHAPES[name[0]])
    return torch.randn(count, 3, 6)


def loss_of(layer):
    def loss(own, x):
        x = x[None] if not isinstance(layer, nn.RNNBase | nn.MultiheadAttention) or layer.batch_first else x[:, None]
        inputs = (x, x, x) if isinstance(layer, nn.MultiheadAttention) else (x,)
        with plain_attention():
            options = {"need_weights": False} if isinstance(layer, nn.MultiheadAttention) else {}
            out = functional_call(layer, own, inputs, options)
        out = out[0] if isinstance(out, tuple) else out
        return torch.tanh(out * 2).square().mean()

    return loss


def by_a_loop(loss, weights, x):
    """Plain autograd, one example at a time."""
    found = []
    for one in x:
        leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
        loss(leaves, one).backward()
        found.append(torch.cat([leaf.grad.flatten().double() for leaf in leaves.values()]))
    return torch.stack(found)


@pytest.mark.parametrize("name", LAYERS)
def test_clipped_sums_are_those_of_single_examples(name):
    layer, way = LAYERS[name]
    torch.manual_seed(0)
    weights = {n: torch.randn_like(w) / 3 for n, w in layer.named_parameters()}
    x, loss = example(name, layer, 5), loss_of(layer)
    each = by_a_loop(loss, weights, x)
    for clip in (1e6, float(each.norm(dim=1).median())):
        found = clipped_sum(loss, weights, (x,), clip_norm=clip, chunk_size=4)
        flat = torch.cat([part.flatten() for part in found.values()])
        factors = (clip / each.norm(dim=1)).clamp(max=1.0)
        torch.testing.assert_close(flat, factors @ each, rtol=1e-4, atol=1e-6)
    if way is not None:
        assert set(example_ways(loss, weights, (x,)).values()) == {way}


@pytest.mark.parametrize("name", [name for name, (layer, _) in LAYERS.items() if not isinstance(layer, nn.RNNBase)])
def test_the_gradients_are_vmaps(name):
    layer, _ = LAYERS[name]
    torch.manual_seed(0)
    weights = {n: torch.randn_like(w) / 3 for n, w in layer.named_parameters()}
    x, loss = example(name, layer, 4), loss_of(layer)
    wanted = vmap(grad(loss), in_dims=(None, 0))(weights, x)
    found = clipped_sum(loss, weights, (x,), clip_norm=1e9, chunk_size=4)
    for part, own in wanted.items():
        torch.testing.assert_close(found[part], own.double().sum(0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["layer norm", "1-D", "3-D", "lstm"])
def test_an_example_that_is_not_finite_counts_as_zero(name):
    layer, _ = LAYERS[name]
    torch.manual_seed(0)
    weights = {n: torch.randn_like(w) / 3 for n, w in layer.named_parameters()}
    x, loss = example(name, layer, 4), loss_of(layer)
    bad = x.clone()
    bad[2] = math.inf
    found = clipped_sum(loss, weights, (bad,), clip_norm=0.1, chunk_size=4)
    wanted = clipped_sum(loss, weights, (x[[0, 1, 3]],), clip_norm=0.1, chunk_size=4)
    for part in weights:
        torch.testing.assert_close(found[part], wanted[part], rtol=1e-6, atol=1e-9)


def test_an_embedding_moves_the_sum_by_no_more_than_the_clip():
    """One example that looks the same row up many times: its gradient adds up before it is clipped."""
    torch.manual_seed(0)
    layer = nn.Embedding(9, 5, padding_idx=0)
    weights = {"weight": torch.randn(9, 5)}
    x = torch.randint(9, (6, 50))
    x[-1] = 3

    def loss(own, rows):
        return 100 * functional_call(layer, own, (rows,)).sum()

    whole, without = (
        clipped_sum(loss, weights, (rows,), clip_norm=0.5, chunk_size=8)["weight"] for rows in (x, x[:-1])
    )
    moved = whole - without
    assert 0.49 < float(moved.norm()) <= 0.5 and set(moved.abs().sum(1).nonzero().flatten().tolist()) == {3}


def test_layers_of_one_network_go_different_ways():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.place, self.row = nn.Embedding(3, 6, padding_idx=0), nn.Linear(6, 6)
            self.recurrent, self.own = nn.GRU(6, 4, batch_first=True), nn.Parameter(torch.randn(4))

        def forward(self, x):
            return self.recurrent(self.row(x) + self.place(torch.arange(3)))[0].sum() * self.own.sum()

    module = Mixed()
    weights = {name: weight.detach() for name, weight in module.named_parameters()}
    ways = example_ways(lambda own, x: functional_call(module, own, (x[None],)), weights, (torch.randn(2, 3, 6),))
    assert ways == {
        "own": "vmap", "place.weight": "opacus", "row.weight": "batched", "row.bias": "batched",
        **{f"recurrent.{name}_l0": "opacus" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")},
    }  # fmt: skip
