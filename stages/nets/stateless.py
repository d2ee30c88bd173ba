"""Networks as pure functions of their weights: built without memory, called with the weights handed in.

Generators are trained so that differential privacy can be added: the loss of one example is a function of (weights,
example, draws), which `torch.func` differentiates example by example. So the module holds no weights. It lives on the
meta device, where building it allocates nothing and draws nothing from global random state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

_AFFINE = (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)


def initial_weights(module: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """First weights by torch's own schemes, drawn in the order in which the layers were registered.

    `reset_parameters` of torch's layers: convolutions and linear layers uniform within 1/√fan-in (He et al. 2015
    with a=√5), embeddings standard normal, norms one and zero.
    """
    weights: dict[str, Tensor] = {}
    for prefix, layer in module.named_modules():
        own = {f"{prefix}.{name}": tensor for name, tensor in layer.named_parameters(recurse=False)}
        for name, tensor in own.items():
            weights[name] = _drawn(layer, name.rpartition(".")[2], tensor.shape, generator)
    return weights


def initial_parts(nets: Mapping[str, nn.Module], generator: torch.Generator) -> dict[str, Tensor]:
    """First weights of several networks in one mapping, each under its name; `part_of` finds them again."""
    return {
        f"{part}.{name}": tensor
        for part, net in nets.items()
        for name, tensor in initial_weights(net, generator).items()
    }


def call(module: nn.Module, weights: Mapping[str, Tensor], *inputs: Any, **named: Any) -> Any:
    """The module's output under these weights (and buffers, if any are named); nothing of the module changes."""
    return functional_call(module, dict(weights), inputs, named, strict=False)


def part_of(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Those whose names begin with the prefix, without it: the weights of one network among several."""
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}


def _drawn(layer: nn.Module, name: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
    if isinstance(layer, _AFFINE):
        # For transposed convolutions too torch takes the second dimension as fan-in.
        bound = 1 / math.sqrt(layer.weight[0].numel())
        return (2 * torch.rand(shape, generator=generator) - 1) * bound
    if isinstance(layer, nn.Embedding):
        return torch.randn(shape, generator=generator)
    if isinstance(layer, nn.GroupNorm):
        return torch.ones(shape) if name == "weight" else torch.zeros(shape)
    raise TypeError(f"no initial weights are known for a layer of type {type(layer).__name__}")
