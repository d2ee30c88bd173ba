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

# How a convolution's gradients are formed, measured: by a matrix product up to so many channels; above that by one
# grouped convolution for all examples, and from so many multiplications an example on by one convolution for each.
_WINDOWS_TO = 8
_ALONE_FROM = 1 << 23


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
        self.taken: set[str] = set()
        self.products: dict[str, list[Product]] = {}


_Slopes = tuple[Tensor | None, Tensor | None, Tensor | None]


class Layer:
    """One call. `forward` returns the output and what `backward` needs; that returns slopes of x, weight and bias."""

    def __init__(self, notes: Notes, name: str, bias: str | None) -> None:
        self._products = notes.products
        self._name = name
        self._weight = notes.weights[name]
        self._bias = None if bias is None else notes.weights[bias]

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def backward(self, slopes: Tensor, x: Tensor, kept: Sequence[Tensor], needs_x: bool) -> _Slopes:
        raise NotImplementedError

    def _note(self, product: Product) -> None:
        self._products.setdefault(self._name, []).append(product)


class _Linear(Layer):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (F.linear(x, self._weight, self._bias),)

    def backward(self, slopes: Tensor, x: Tensor, _kept: Sequence[Tensor], needs_x: bool) -> _Slopes:
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

    def backward(self, slopes: Tensor, x: Tensor, _kept: Sequence[Tensor], needs_x: bool) -> _Slopes:
        maps, onto = _maps(x), _maps(slopes)
        examples = len(x)
        stride, padding, dilation, transposed, _ = self._how
        # A transposed convolution is applied once for each of its input's pixels, and patches are those of its output.
        single, patches = (maps, onto) if transposed else (onto, maps)
        kernel = self._weight.shape[2:]
        shape = (self._weight.shape[0], self._weight[0].numel())
        places = single.shape[2] * single.shape[3] * (len(maps) // examples)

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
            if patches.shape[1] <= _WINDOWS_TO and len(maps) == examples:
                a = windows(patches[rows]).reshape(-1, shape[1], places)
                return torch.bmm(a, single[rows].flatten(2).mT).mT.flatten(1)
            xs, ys = (t.reshape(examples, -1, *t.shape[1:])[rows] for t in (maps, onto))
            if places * self._weight.numel() >= _ALONE_FROM:
                return torch.stack([self._of_weight(y, x, 1) for x, y in zip(xs, ys, strict=True)])
            # Examples side by side as groups of channels.
            x, y = (t.transpose(0, 1).flatten(1, 2) for t in (xs, ys))
            return self._of_weight(y, x, len(xs)).reshape(len(xs), -1)

        self._note(Product(examples=examples, places=places, shape=shape, factors=factors, dense=dense))
        of_x = None
        if needs_x:
            of_x = self._back(onto, maps, self._weight, 1, (True, False, False))[0].reshape(x.shape)
        of_bias = None if self._bias is None else onto.sum((2, 3)).reshape(examples, -1, onto.shape[1]).sum(1)
        return of_x, None, of_bias

    def _of_weight(self, y: Tensor, x: Tensor, groups: int) -> Tensor:
        # Only the shape of the weight matters to its own gradient: no number of it is read.
        like = self._weight.new_empty((groups * len(self._weight), *self._weight.shape[1:]))
        of_weight: Tensor = self._back(y, x, like, groups, (False, True, False))[1]
        return of_weight.flatten()

    def _back(self, y: Tensor, x: Tensor, weight: Tensor, groups: int, wanted: tuple[bool, ...]) -> Any:
        return torch.ops.aten.convolution_backward(y, x, weight, None, *self._how, groups, wanted)


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

    def backward(self, slopes: Tensor, x: Tensor, kept: Sequence[Tensor], needs_x: bool) -> _Slopes:
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


def _maps(x: Tensor) -> Tensor:
    return x.reshape(-1, *x.shape[-3:])


# What each known call means: its input, weight, bias and layer, or None where the call is of another kind.
_Call = tuple[Tensor, Tensor, Tensor | None, Callable[[Notes, str, str | None], Layer]]


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> _Call | None:
    return (input, weight, bias, _Linear) if weight.dim() == 2 else None


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> _Call | None:
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
) -> _Call | None:
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
) -> _Call | None:
    if weight is None:
        return None
    return input, weight, bias, lambda notes, name, own: _GroupNorm(notes, name, own, num_groups, eps)


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    first, *rest = value
    return first, rest[0] if rest else first


READERS: dict[Any, Callable[..., _Call | None]] = {
    F.linear: _linear,
    F.conv2d: _convolution,
    F.conv_transpose2d: _transposed_convolution,
    F.group_norm: _group_norm,
}
