"""Layers whose per-example gradients are Opacus': embeddings, layer norm, convolutions of one and of three dimensions.

Opacus has a function for each kind of layer (`GradSampleModule.GRAD_SAMPLERS`) that makes per-example gradients from
the layer's input and the slopes of its output. Here it is called for one call of a layer within the two passes of
`example_gradients`; clipping and noise are ours as for all others. Which kinds are left to Opacus was measured
(benchmarks/plugin_layers.py). Recurrent layers, which `vmap` cannot run at all, are replaced by Opacus' own, made of
linear layers.
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


class _Sampled(Layer):
    """`stand_in` is the module that Opacus' function asks about the layer; it has the weights of the call."""

    way = "opacus"

    def _samples(self, stand_in: nn.Module, x: Tensor, slopes: Tensor, examples: int) -> tuple[Tensor, Tensor | None]:
        from opacus.grad_sample import GradSampleModule

        stand_in.weight = nn.Parameter(self._weight)
        stand_in.bias = None if self._bias is None else nn.Parameter(self._bias)
        found: Mapping[Any, Tensor] = GradSampleModule.GRAD_SAMPLERS[type(stand_in)](stand_in, [x], slopes)

        def of(parameter: Any) -> Tensor:
            return found[parameter].reshape(examples, -1, *parameter.shape).sum(1)

        return of(stand_in.weight), None if self._bias is None else of(stand_in.bias)


class _Embedding(_Sampled):
    def __init__(self, notes: Notes, name: str, bias: str | None, fixed: int | None) -> None:
        super().__init__(notes, name, bias)
        self._fixed = fixed  # the row that stays as it is, of which Opacus' function does not know

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (F.embedding(x, self._weight),)

    def backward(self, slopes: Tensor, x: Tensor, _kept: Sequence[Tensor], _needs_x: bool) -> Slopes:
        with torch.device("meta"):
            stand_in = nn.Embedding(*self._weight.shape)
        rows = x.reshape(len(x), -1)
        of_weight, _ = self._samples(stand_in, rows, slopes.reshape(*rows.shape, -1), len(x))
        if self._fixed is not None:
            of_weight[:, self._fixed] = 0.0
        return None, of_weight, None


class _LayerNorm(_Sampled):
    def __init__(self, notes: Notes, name: str, bias: str | None, eps: float) -> None:
        super().__init__(notes, name, bias)
        self._eps = eps

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return torch.native_layer_norm(x, self._weight.shape, self._weight, self._bias, self._eps)

    def backward(self, slopes: Tensor, x: Tensor, kept: Sequence[Tensor], needs_x: bool) -> Slopes:
        shape = self._weight.shape
        with torch.device("meta"):
            stand_in = nn.LayerNorm(shape, eps=self._eps)
        of_weight, of_bias = self._samples(stand_in, x, slopes, len(x))
        of_x = None
        if needs_x:
            wanted = (True, False, False)
            back = torch.ops.aten.native_layer_norm_backward(slopes, x, shape, *kept, self._weight, self._bias, wanted)
            of_x = back[0]
        return of_x, of_weight, of_bias


class _Convolution(_Sampled):
    """Of one or three dimensions."""

    def __init__(self, notes: Notes, name: str, bias: str | None, how: tuple[Any, ...], groups: int) -> None:
        super().__init__(notes, name, bias)
        self._how, self._groups = how, groups  # stride, padding, dilation
        self._dims = self._weight.dim() - 1  # channels included

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        stride, padding, dilation = self._how
        none = (0,) * len(stride)
        output = torch.convolution(
            self._folded(x), self._weight, self._bias, stride, padding, dilation, False, none, self._groups
        )
        return (output.reshape(*x.shape[: -self._dims], *output.shape[1:]),)

    def backward(self, slopes: Tensor, x: Tensor, _kept: Sequence[Tensor], needs_x: bool) -> Slopes:
        stride, padding, dilation = self._how
        kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(stride) - 1]
        maps, onto = self._folded(x), self._folded(slopes)
        with torch.device("meta"):
            stand_in = kind(
                maps.shape[1], onto.shape[1], self._weight.shape[2:], stride, padding, dilation, self._groups
            )
        of_weight, of_bias = self._samples(stand_in, maps, onto, len(x))
        of_x = None
        if needs_x:
            none, wanted = (0,) * len(stride), (True, False, False)
            back = torch.ops.aten.convolution_backward(
                onto, maps, self._weight, None, stride, padding, dilation, False, none, self._groups, wanted
            )
            of_x = back[0].reshape(x.shape)
        return of_x, of_weight, of_bias

    def _folded(self, x: Tensor) -> Tensor:
        return x.reshape(-1, *x.shape[-self._dims :])


def _embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,  # noqa: ARG001  (as torch has it)
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Call | None:
    """Opacus' function does not know of the other options."""
    if max_norm is not None or scale_grad_by_freq or sparse:
        return None
    return input, weight, None, lambda notes, name, own: _Embedding(notes, name, own, padding_idx)


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],  # noqa: ARG001  (the weight's)
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Call | None:
    """Opacus' function needs a bias."""
    if weight is None or bias is None:
        return None
    return input, weight, bias, lambda notes, name, own: _LayerNorm(notes, name, own, eps)


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Call | None:
    if isinstance(padding, str):
        return None
    dims = weight.dim() - 2
    how = tuple((value,) * dims if isinstance(value, int) else tuple(value) for value in (stride, padding, dilation))
    return input, weight, bias, lambda notes, name, own: _Convolution(notes, name, own, how, groups)


READERS: dict[Any, Callable[..., Call | None]] = {
    F.embedding: _embedding,
    F.layer_norm: _layer_norm,
    F.conv1d: _convolution,
    F.conv3d: _convolution,
}


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
    from opacus.layers.dp_rnn import DPRNNBase

    with torch.device("meta"), _WithoutWeights():
        module: nn.Module = DPRNNBase(
            mode, inputs, units, layers, bias=bias, batch_first=batch_first, bidirectional=both_ways
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
