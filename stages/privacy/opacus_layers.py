"""Layers whose per-example gradients are Opacus': recurrent ones, and embeddings with a row that stays as it is.

`vmap` cannot run torch's recurrent layers, and gives a gradient to the padding row of all examples but the first.
Opacus has layers of its own for the former, made of linear ones, and a function for the latter, which makes per-example
gradients from the layer's input and the slopes of its output (`GradSampleModule.GRAD_SAMPLERS`). Both run within the
two passes of `example_gradients`; clipping and noise are ours as for all others. Opacus' functions for convolutions,
layer norm and plain embeddings, called in this way, took up to four times as long as `vmap`, and none took less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from stages.privacy.example_layers import Call, Layer, Notes, Slopes


class _PaddedEmbedding(Layer):
    way = "opacus"

    def __init__(self, notes: Notes, name: str, bias: str | None, padding: int) -> None:
        super().__init__(notes, name, bias)
        self._padding = padding

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (F.embedding(x, self._weight),)

    def backward(self, slopes: Tensor, x: Tensor, _kept: Sequence[Tensor], _needs_x: bool) -> Slopes:
        from opacus.grad_sample import GradSampleModule

        layer = nn.Embedding.from_pretrained(self._weight, freeze=False)
        rows = x.reshape(len(x), -1)
        sampler: Callable[..., Mapping[Any, Tensor]] = GradSampleModule.GRAD_SAMPLERS[nn.Embedding]
        found = sampler(layer, [rows], slopes.reshape(*rows.shape, -1))[layer.weight]
        found[:, self._padding] = 0.0  # of which Opacus' function does not know
        return None, found, None


def _embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,  # noqa: ARG001  (as torch has it)
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Call | None:
    if padding_idx is None or max_norm is not None or scale_grad_by_freq or sparse:
        return None
    return input, weight, None, lambda notes, name, own: _PaddedEmbedding(notes, name, own, padding_idx)


READERS: dict[Any, Callable[..., Call | None]] = {F.embedding: _embedding}


class TakenApart(TorchFunctionMode):
    """Within it, attention and recurrent layers run as the linear layers that they are made of.

    A recurrent layer runs as Opacus' own, step by step, with the same weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Tensor] = []  # of the layers that were replaced

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.multi_head_attention_forward:
            found = _attended(*args, **(kwargs or {}))
            return func(*args, **(kwargs or {})) if found is None else found
        mode = _RECURRENT.get(func)
        # A packed sequence comes with its batch sizes in the second place.
        if mode is None or (len(args) > 2 and not isinstance(args[2], list | tuple)):
            return func(*args, **(kwargs or {}))
        x, start, weights, has_bias, layers, _, _, both_ways, batch_first = args
        a_layer = (4 if has_bias else 2) * (2 if both_ways else 1)
        if len(weights) != a_layer * layers:
            raise RuntimeError(f"Batching rule not implemented for aten::{mode.lower()} with a projection")
        module = _recurrent(mode, x.shape[-1], weights[1].shape[1], layers, has_bias, batch_first, both_ways)
        self.weights += weights
        named = dict(zip(_names(layers, has_bias, both_ways), weights, strict=True))
        output, end = functional_call(module, named, (x, start))
        return (output, *end) if isinstance(end, tuple) else (output, end)


def _attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,  # noqa: ARG001  (as torch has it)
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    **options: Any,
) -> tuple[Tensor, None] | None:
    """Plain self-attention, of [places, 1, size]; None for every other kind."""
    asked = [options.get(name) is not None for name in ("key_padding_mask", "attn_mask", "static_k", "static_v")]
    other = [bias_k is not None, bias_v is not None, add_zero_attn, training and dropout_p > 0, query.dim() != 3]
    other += [options.get("need_weights", True)]
    other += [options.get(name, False) for name in ("is_causal", "use_separate_proj_weight")]
    if in_proj_weight is None or query is not key or key is not value or any((*asked, *other)):
        return None
    places, count, size = query.shape
    parts = F.linear(query, in_proj_weight, in_proj_bias).chunk(3, dim=-1)
    q, k, v = (part.reshape(places, count, num_heads, -1).permute(1, 2, 0, 3) for part in parts)
    mixed = F.scaled_dot_product_attention(q, k, v)
    return F.linear(mixed.permute(2, 0, 1, 3).reshape(places, count, size), out_proj_weight, out_proj_bias), None


_RECURRENT = {torch.lstm: "LSTM", torch.gru: "GRU", torch.rnn_tanh: "RNN_TANH", torch.rnn_relu: "RNN_RELU"}


@cache
def _recurrent(
    mode: str, inputs: int, units: int, layers: int, bias: bool, batch_first: bool, both_ways: bool
) -> nn.Module:
    from opacus.layers import DPGRU, DPLSTM, DPRNN

    kind = {"LSTM": DPLSTM, "GRU": DPGRU}.get(mode, DPRNN)
    options = {"nonlinearity": mode.removeprefix("RNN_").lower()} if kind is DPRNN else {}
    with torch.device("meta"), _WithoutWeights():
        module: nn.Module = kind(
            inputs, units, layers, bias=bias, batch_first=batch_first, bidirectional=both_ways, **options
        )
    return module


class _WithoutWeights(TorchFunctionMode):
    """Nothing is drawn for layers that are built within it: within `vmap` to draw is an error."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if kwargs and "tensor" in kwargs else args[0]
        return func(*args, **(kwargs or {}))


def _names(layers: int, bias: bool, both_ways: bool) -> list[str]:
    """In the order in which torch hands the weights over."""
    kinds = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if bias else [])]
    ends = [f"l{layer}{way}" for layer in range(layers) for way in ("", "_reverse")[: 2 if both_ways else 1]]
    return [f"{kind}_{end}" for end in ends for kind in kinds]
