"""The gradients of a chunk of examples, each example's own, from one batched pass forward and one backward.

`vmap` runs the loss on all examples at once, each with weights of its own: the same numbers, a view for each. So no
layer can mix examples, and autograd hands back one gradient an example whatever the loss does with a weight. That is
slow for convolutions and linear layers, as torch takes their weights to differ. Calls of these are therefore taken over
(`_TakeOver`): computed with the one weight that all share, and in the backward pass what the gradient is made of is
noted: inputs A and slopes B, one row for each place where the weight was applied, gᵢ = Bᵢᵀ·Aᵢ. A call that is not
recognised, or a weight used elsewhere too, goes the slow way; nothing is left out. What cannot be done so at all
(a loss that differentiates within itself) raises `Unfit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.func import grad, vmap
from torch.overrides import TorchFunctionMode

from stages.privacy import opacus_layers
from stages.privacy.example_layers import READERS, Layer, Notes, Product

try:
    from torch._C._functorch import _add_batch_dim, _unwrap_batched
    from torch._functorch.pyfunctorch import VmapInterpreter, retrieve_current_functorch_interpreter

    _HAS_FAST_WAY = True
except ImportError:  # another torch, with other names for its insides: the general way works with any
    _HAS_FAST_WAY = False


class Unfit(Exception):
    """The loss does something that only the general way can do."""


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """Of each weight a gradient an example: a tensor [examples, numbers], or a product not yet made, or both added."""

    tensors: Mapping[str, Tensor]
    products: Mapping[str, Sequence[Product]]
    ways: Mapping[str, str]  # whose they are: batched (ours), opacus, or vmap


def chunk_gradients(
    loss: Callable[..., Tensor],
    weights: Mapping[str, Tensor],
    chunk: Sequence[Any],
    *,
    examples: int,
    randomness: str,
    most_numbers: int,
) -> Gradients:
    """Raises `Unfit`, also where more than `most_numbers` would be held for weights that are not taken over."""
    if not _HAS_FAST_WAY:
        raise Unfit("this version of torch is not known")
    leaves = {name: w.detach().expand(examples, *w.shape).requires_grad_() for name, w in weights.items()}
    notes = Notes(weights)

    def one(own: dict[str, Tensor], *parts: Any) -> Tensor:
        recurrent = opacus_layers.TakenApart()
        with _TakeOver(notes, own), recurrent:
            found = loss(own, *parts)
        notes.taken.update({n: "opacus" for n, w in own.items() if any(w is one for one in recurrent.weights)})
        return found

    with torch.enable_grad():
        losses = vmap(one, in_dims=(0, *(0 for _ in chunk)), randomness=randomness)(leaves, *chunk)
    if losses.dim() != 1:
        raise Unfit("the loss of an example is not a number")
    left = sum(w.numel() for name, w in weights.items() if name not in notes.taken)
    if examples * left > most_numbers:
        raise Unfit(f"{left} weights are used by calls that are not known")
    found: Sequence[Tensor | None] = [None] * len(leaves)
    if losses.requires_grad:
        found = torch.autograd.grad(losses, list(leaves.values()), torch.ones_like(losses), allow_unused=True)
    tensors = {
        name: gradient.detach().reshape(examples, -1)
        for name, gradient in zip(leaves, found, strict=True)
        if gradient is not None
    }
    ways = {name: notes.taken.get(name, "vmap") for name in weights}
    return Gradients(tensors=tensors, products=notes.products, ways=ways)


def general_gradients(
    loss: Callable[..., Tensor], weights: Mapping[str, Tensor], chunk: Sequence[Any], *, examples: int, randomness: str
) -> Gradients:
    """The same for any loss that `torch.func` can differentiate."""

    def one(own: dict[str, Tensor], *parts: Any) -> Tensor:
        with opacus_layers.TakenApart():
            return loss(own, *parts)

    of_each = vmap(grad(one), in_dims=(None, *(0 for _ in chunk)), randomness=randomness)
    found = of_each(dict(weights), *chunk)
    tensors = {name: found[name].detach().reshape(examples, -1) for name in weights}
    return Gradients(tensors=tensors, products={}, ways=dict.fromkeys(weights, "vmap"))


_READERS = {**READERS, **opacus_layers.READERS}


class _TakeOver(TorchFunctionMode):
    """Within it, calls of the known layers with weights of `own` run as `Layer`s; all others run as they are."""

    def __init__(self, notes: Notes, own: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._notes = notes
        self._own = own  # holds the tensors, so that no other can get the identity of one of them
        self._names = {id(tensor): name for name, tensor in own.items()}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        reader = _READERS.get(func)
        call = None if reader is None else reader(*args, **options)
        if call is not None:
            x, weight, bias, layer = call
            name = self._names.get(id(weight))
            bias_name = None if bias is None else self._names.get(id(bias))
            if name is not None and (bias is None or bias_name is not None):
                return _on_all(layer(self._notes, name, bias_name), x, weight, bias)
        return func(*args, **options)


def _on_all(layer: Layer, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The layer on all examples at once.

    As the `vmap` rule of an `autograd.Function` has it, which is public and takes 0.4 ms a call, a quarter of the time
    of a small network.
    """
    interpreter = retrieve_current_functorch_interpreter()
    if not isinstance(interpreter, VmapInterpreter):
        raise Unfit("the loss differentiates within itself")
    level = interpreter.level()
    x, at = _unwrap_batched(x, level)
    weight, weight_at = _unwrap_batched(weight, level)
    bias, bias_at = (None, 0) if bias is None else _unwrap_batched(bias, level)
    if weight_at != 0 or bias_at != 0:
        raise Unfit("a vmap within the loss")
    x = x.expand(interpreter.batch_size(), *x.shape) if at is None else x.movedim(at, 0)
    apply: Callable[..., Tensor] = _Batched.apply
    with interpreter.lower():
        output = apply(layer, x, weight, bias)
    wrapped: Tensor = _add_batch_dim(output, 0, level)
    return wrapped


# Typed here: torch 2.6 does not.
_once_differentiable: Callable[[Callable[..., Any]], Callable[..., Any]] = torch.autograd.function.once_differentiable


class _Batched(Function):
    """A layer on a chunk. The weight and the bias, a view an example, are there for autograd: their numbers are one."""

    @staticmethod
    def forward(ctx: Any, layer: Layer, x: Tensor, *_weight_and_bias: Tensor | None) -> Tensor:
        ctx.layer = layer
        output, *kept = layer.forward(x)
        ctx.save_for_backward(x, *kept)
        # No view, though a reshaped tensor is one: networks add to it in place (torchvision's `out += identity`), which
        # autograd does not allow with a view that a function made. Nobody else has the memory.
        whole: Tensor = torch.ops.aten._unsafe_view(output, output.shape)
        return whole

    @staticmethod
    @_once_differentiable
    def backward(ctx: Any, slopes: Tensor) -> Any:
        # Without its history: what is noted outlives this pass, and would hold the graph, which holds the notes.
        x, *kept = (saved.detach() for saved in ctx.saved_tensors)
        return None, *ctx.layer.backward(slopes, x, kept, ctx.needs_input_grad[1])
