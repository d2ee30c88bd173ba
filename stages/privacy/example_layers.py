"""The layers whose per-example gradients have a fast way: linear, convolutions of two dimensions, group norm.

Each runs on a chunk of examples at once, x of [examples, …], with the one weight that all share. In the backward pass
it notes what each example's gradient of the weight is made of, and returns those of small parameters themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_WINDOW_NUMBERS = 1 << 20  # of the copies of a convolution's input that are held at a time: 4 MB


@dataclass(frozen=True, kw_only=True)
class Product:
    """The gradients of one weight of a linear layer or of a convolution: for example i, Bᵢᵀ·Aᵢ."""

    examples: int
    places: int  # where the weight was applied, for one example: the rows of Aᵢ and of Bᵢ
    shape: tuple[int, int]  # of Bᵢᵀ·Aᵢ
    factors: Callable[[], tuple[Tensor, Tensor]]  # A and B: [examples, places, …]
    dense: Callable[[slice], Tensor]  # of some examples: [rows, numbers]


class Notes:
    """What the calls that were taken over left in the two passes."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = {name: w.detach() for name, w in weights.items()}
        self.taken: dict[str, str] = {}
        self.products: dict[str, list[Product]] = {}


Slopes = tuple[Tensor | None, Tensor | None, Tensor | None]


class Layer:
    """One call. `forward` returns the output and what `backward` needs; that returns slopes of x, weight and bias.

    `way` says whose gradients it has: ours, or Opacus'.
    """

    way = "batched"

    def __init__(self, notes: Notes, name: str, bias: str | None) -> None:
        notes.taken.update({one: self.way for one in (name, bias) if one is not None})
        self._products = notes.products
        self._name = name
        self._weight = notes.weights[name]
        self._bias = None if bias is None else notes.weights[bias]

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def backward(self, slopes: Tensor, x: Tensor, kept: Sequence[Tensor], needs_x: bool) -> Slopes:
        raise NotImplementedError

    def _note(self, product: Product) -> None:
        self._products.setdefault(self._name, []).append(product)


class _Linear(Layer):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (F.linear(x, self._weight, self._bias),)

    def backward(self, slopes: Tensor, x: Tensor, _kept: Sequence[Tensor], needs_x: bool) -> Slopes:
        a, b = x.reshape(len(x), -1, x.shape[-1]), slopes.reshape(len(x), -1, slopes.shape[-1])
        self._note(
            Product(
                examples=len(x),
                places=a.shape[1],
                shape=(b.shape[2], a.shape[2]),
                factors=lambda: (a, b),
                dense=lambda rows: torch.bmm(b[rows].mT, a[rows]).flatten(1),
            )
        )
        return slopes @ self._weight if needs_x else None, None, None if self._bias is None else b.sum(1)


class _Convolution(Layer):
    """Of two dimensions, without groups, plain or transposed."""

    def __init__(self, notes: Notes, name: str, bias: str | None, how: tuple[Any, ...]) -> None:
        super().__init__(notes, name, bias)
        self._how = how  # stride, padding, dilation, transposed, output padding

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        stride, padding, dilation, transposed, extra = self._how
        output = torch.convolution(_maps(x), self._weight, self._bias, stride, padding, dilation, transposed, extra, 1)
        return (output.reshape(*x.shape[:-3], *output.shape[-3:]),)

    def backward(self, slopes: Tensor, x: Tensor, _kept: Sequence[Tensor], needs_x: bool) -> Slopes:
        maps, onto = _maps(x), _maps(slopes)
        examples = len(x)
        stride, padding, dilation, transposed, _ = self._how
        # A transposed convolution is applied once for each of its input's pixels, and patches are those of its output.
        single, patches = (maps, onto) if transposed else (onto, maps)
        # No function below holds `self`, which holds the notes: in a ring, memory would wait for the next collection.
        kernel = self._weight.shape[2:]
        shape = (self._weight.shape[0], self._weight[0].numel())
        pixels, draws = single.shape[2] * single.shape[3], len(maps) // examples
        places = pixels * draws

        def windows(images: Tensor) -> Tensor:
            """[images, channels, kernel, places], a view; torch's own `unfold` takes five times as long to copy it."""
            (down, right), (high, wide) = dilation, kernel
            padded = F.pad(images, (padding[1], padding[1], padding[0], padding[0]))
            seen = padded.unfold(2, down * (high - 1) + 1, stride[0]).unfold(3, right * (wide - 1) + 1, stride[1])
            return seen[..., ::down, ::right].permute(0, 1, 4, 5, 2, 3)

        def factors() -> tuple[Tensor, Tensor]:
            a = windows(patches).permute(0, 4, 5, 1, 2, 3).reshape(examples, places, -1)
            return a, single.flatten(2).mT.reshape(examples, places, -1)

        def dense(rows: slice) -> Tensor:
            """By a matrix product for each image: a grouped convolution took up to twice as long."""
            ys = single.reshape(examples, -1, shape[0], pixels)[rows].flatten(0, 1)
            xs = patches.reshape(examples, -1, *patches.shape[1:])[rows].flatten(0, 1)
            made = ys.new_empty((len(ys), *shape))
            size = even_size(len(ys), _WINDOW_NUMBERS // (shape[1] * pixels))
            for y, x, into in zip(*(torch.split(t, size) for t in (ys, xs, made)), strict=True):
                torch.bmm(y, windows(x).reshape(len(x), shape[1], pixels).mT, out=into)
            return made.reshape(-1, draws, shape[0] * shape[1]).sum(1) if draws > 1 else made.flatten(1)

        self._note(Product(examples=examples, places=places, shape=shape, factors=factors, dense=dense))
        of_x = None
        if needs_x:
            wanted = (True, False, False)
            back = torch.ops.aten.convolution_backward(onto, maps, self._weight, None, *self._how, 1, wanted)
            of_x = back[0].reshape(x.shape)
        of_bias = None if self._bias is None else onto.sum((2, 3)).reshape(examples, -1, onto.shape[1]).sum(1)
        return of_x, None, of_bias


class _GroupNorm(Layer):
    def __init__(self, notes: Notes, name: str, bias: str | None, groups: int, eps: float) -> None:
        super().__init__(notes, name, bias)
        self._groups, self._eps = groups, eps

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        maps = self._folded(x)
        images, channels, pixels = maps.shape
        output, mean, rstd = torch.native_group_norm(
            maps, self._weight, self._bias, images, channels, pixels, self._groups, self._eps
        )
        return output.reshape(x.shape), mean, rstd

    def backward(self, slopes: Tensor, x: Tensor, kept: Sequence[Tensor], needs_x: bool) -> Slopes:
        maps, onto = self._folded(x), self._folded(slopes)
        images, channels, pixels = maps.shape
        # To torch's kernel all is one image, and each example's channels are channels of their own.
        mean, rstd = (t.reshape(1, -1) for t in kept)
        sizes = (1, images * channels, pixels, images * self._groups, (needs_x, True, self._bias is not None))
        weight = self._weight.repeat(images)
        of_x, of_weight, of_bias = torch.ops.aten.native_group_norm_backward(
            onto.view(1, -1, pixels), maps.view(1, -1, pixels), mean, rstd, weight, *sizes
        )
        return (
            of_x.reshape(x.shape) if needs_x else None,
            of_weight.reshape(len(x), -1, channels).sum(1),
            None if self._bias is None else of_bias.reshape(len(x), -1, channels).sum(1),
        )

    def _folded(self, x: Tensor) -> Tensor:
        return x.reshape(-1, self._weight.numel(), math.prod(x.shape[3:])).contiguous()


def even_size(count: int, most: int) -> int:
    """The largest size up to `most` that divides `count`: all parts of one size, so that all meet the same kernels."""
    return max(size for size in range(1, count + 1) if count % size == 0 and size <= max(1, most))


def _maps(x: Tensor) -> Tensor:
    return x.reshape(-1, *x.shape[-3:])


# What each known call means: its input, weight, bias and layer, or None where the call is of another kind.
Call = tuple[Tensor, Tensor, Tensor | None, Callable[[Notes, str, str | None], Layer]]


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Call | None:
    return (input, weight, bias, _Linear) if weight.dim() == 2 else None


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Call | None:
    if isinstance(padding, str) or groups != 1:
        return None
    how = (_pair(stride), _pair(padding), _pair(dilation), False, (0, 0))
    return input, weight, bias, lambda notes, name, own: _Convolution(notes, name, own, how)


def _transposed_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Call | None:
    if groups != 1:
        return None
    how = (_pair(stride), _pair(padding), _pair(dilation), True, _pair(output_padding))
    return input, weight, bias, lambda notes, name, own: _Convolution(notes, name, own, how)


def _group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Call | None:
    if weight is None:
        return None
    return input, weight, bias, lambda notes, name, own: _GroupNorm(notes, name, own, num_groups, eps)


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    first, *rest = value
    return first, rest[0] if rest else first


READERS: dict[Any, Callable[..., Call | None]] = {
    F.linear: _linear,
    F.conv2d: _convolution,
    F.conv_transpose2d: _transposed_convolution,
    F.group_norm: _group_norm,
}
