"""Clipping and summing a chunk's per-example gradients, in float64.

A gradient that is a product Bᵢᵀ·Aᵢ of few rows is never formed: its length comes from the rows' inner products,
‖Bᵢᵀ·Aᵢ‖² = Σ (Aᵢ·Aᵢᵀ)∘(Bᵢ·Bᵢᵀ) (ghost clipping: Li et al. 2022, Bu et al. 2022), and the sum of the clipped ones is a
product of all examples' rows. Ghost clipping proper goes back a second time, and sums in float32; here the sum is
float64 as that of all other gradients, and gᵢ is the exact product of float32 numbers.

That no example moves the sum by more than C, rounding included. u = 2⁻⁵³; N ≤ 100,000 examples in chunks of n, from 2
to 64; fᵢ the factor of example i; Sᵢ the sum over its rows of ‖a‖·‖b‖, which is at least ‖gᵢ‖, and more where rows
cancel out.
1. Length. An inner product of k numbers is off by at most k·u·‖x‖·‖y‖. So the length of a formed gradient is right up
   to its own number of weights times u/2: 1e-9 for ten million. The squared length of a product is off by at most
   (k + k' + L² + 4)·u·Sᵢ² with k and k' columns and L rows, less than 2⁻³³·Sᵢ², as k + k' is at most 2¹⁸ here;
   2⁻³²·Sᵢ² is added to it, so that it is never too small.
2. Sum within a product: of at most 128 rows, in whatever order, it is off by at most 128·u·Σ fᵢ·Sᵢ. The length counts
   as at least Sᵢ/64, so fᵢ·Sᵢ ≤ 64·C; in all 128·64·N·u·C, or 9.1e-8·C. Of a formed gradient, and of one row, Sᵢ is
   ‖gᵢ‖, and there is 64 times less to be off by.
3. Adding to the total, each time off by at most u times the total's length. That is N·C/2 on average and, within one
   chunk, up to 64·n·C more. With one row, and where gradients are formed, at least two examples are added at a time:
   N/2 times, 2.8e-7·C in all, and (2) is nothing. With more rows there is a product for every 8 examples at most, which
   BLAS adds in at most two parts: N/4 times, 1.5e-7·C, and with (2) 2.4e-7·C.
4. With the example and without it, twice the larger: 5.7e-7·C. Rounding to whole steps takes 2⁻²²·C (`mechanism`). All
   in all 8.1e-7·C, which the margin of 2⁻²⁰·C, 9.5e-7·C, pays for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from stages.privacy.example_gradients import Gradients
from stages.privacy.example_layers import even_size
from stages.privacy.mechanism import clipped_length

_MOST_ROWS = 16  # of an example whose gradient is not formed: measured
_ROWS_TOGETHER = 128  # in a product of several examples' rows: see (2) above
_LEAST_TOGETHER = 8  # examples in such a product: see (3)
_ROW_COST = 4  # a number of a row, copied and widened, by a number of a gradient that is formed: measured
_MOST_COLUMNS = 1 << 18
_LENGTH_ERROR = 2.0**-32
_MOST_CANCELLING = 64.0
_FORMED_NUMBERS = 1 << 22  # formed gradients held at a time: 16 MB, which the cache holds
_SMALL = 1 << 13
_BLOCK = 1 << 16  # widened to float64 at a time: half a megabyte; all at once took six times as long


def home_of_sums(device: torch.device) -> torch.device:
    """With the weights, or on the CPU where their device has no float64."""
    return torch.device("cpu") if device.type == "mps" else device


class ClippedTotal:
    """Σᵢ min(1, C/‖gᵢ‖)·gᵢ over the chunks added; an example whose gradient is not finite counts as zero."""

    def __init__(self, weights: Mapping[str, Tensor], clip_norm: float) -> None:
        self._limit = clipped_length(clip_norm)
        device = next(iter(weights.values())).device
        self._home = home_of_sums(device)
        self._shapes = {name: w.shape for name, w in weights.items()}
        self._total = {
            name: torch.zeros(w.numel(), dtype=torch.float64, device=self._home) for name, w in weights.items()
        }

    def tensors(self) -> dict[str, Tensor]:
        return {name: total.reshape(self._shapes[name]) for name, total in self._total.items()}

    @torch.no_grad()
    def add(self, gradients: Gradients, is_real: Tensor) -> None:
        """The examples that are not real fill up the chunk, and count as zero."""
        count = len(is_real)
        unformed = {name: ps[0] for name, ps in gradients.products.items() if _stays_a_product(name, gradients)}
        formed = [name for name in self._total if name not in unformed]
        squares = torch.zeros(count, dtype=torch.float64, device=self._home)
        spread = torch.zeros_like(squares)  # Σ Sᵢ²
        rows_of = {}
        for name, product in unformed.items():
            a, b = (t.detach().to(self._home) for t in product.factors())
            rows_of[name] = a, b
            square, at_most = _squared_length(a, b)
            squares += square
            spread += at_most
        factors = torch.zeros_like(squares)
        finite = torch.zeros(count, dtype=torch.bool, device=self._home)
        for rows, found in formed_rows(gradients, count, {name: self._total[name].numel() for name in formed}):
            made = _side_by_side({name: gradient.to(self._home) for name, gradient in found.items()})
            square = squares[rows] + sum(_squares(g) for _, g in made)
            lengths = torch.maximum(square.sqrt(), spread[rows].sqrt() / _MOST_CANCELLING)
            finite[rows] = torch.isfinite(lengths)
            counts = finite[rows] & is_real[rows].to(self._home)
            factors[rows] = torch.where(counts, self._limit / lengths.clamp(min=self._limit), 0.0)
            for names, gradient in made:
                self._add_weighted(names, _zeroed(gradient, finite[rows]), factors[rows])
        for name, (a, b) in rows_of.items():
            total = self._total[name].view(unformed[name].shape)
            wide_a = _zeroed(a, finite).double()
            wide_b = _zeroed(b, finite).double() * factors[:, None, None]
            together = max(_LEAST_TOGETHER, _ROWS_TOGETHER // a.shape[1])
            for some_a, some_b in zip(*(torch.split(t, together) for t in (wide_a, wide_b)), strict=True):
                total.addmm_(some_b.flatten(0, 1).T, some_a.flatten(0, 1))

    def _add_weighted(self, names: Sequence[str], gradient: Tensor, factors: Tensor) -> None:
        parts = torch.split(gradient, [self._total[name].numel() for name in names], dim=1)
        for name, part in zip(names, parts, strict=True):
            width = max(1, _BLOCK // len(gradient))
            for block, into in zip(torch.split(part, width, 1), torch.split(self._total[name], width), strict=True):
                into += factors @ block.double()  # not `addmv_`, which adds to the total once for each example


def _stays_a_product(name: str, gradients: Gradients) -> bool:
    """Where that is less work; and only if nothing else adds to the gradient of this weight."""
    products = gradients.products[name]
    if len(products) != 1 or name in gradients.tensors:
        return False
    (product,) = products
    high, wide = product.shape
    rows = product.places
    few = rows == 1 or (rows <= _MOST_ROWS and product.examples % _LEAST_TOGETHER == 0)
    return few and _ROW_COST * rows * (high + wide) <= high * wide and high + wide <= _MOST_COLUMNS


def _squared_length(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """‖Bᵢᵀ·Aᵢ‖², not too small by rounding, and Sᵢ²."""
    wide_a, wide_b = a.double(), b.double()
    of_a, of_b = torch.bmm(wide_a, wide_a.mT), torch.bmm(wide_b, wide_b.mT)
    diagonals = (of_a.diagonal(dim1=1, dim2=2) * of_b.diagonal(dim1=1, dim2=2)).sqrt()
    spread = diagonals.sum(1).square()
    return (of_a * of_b).sum((1, 2)).clamp(min=0.0) + _LENGTH_ERROR * spread, spread


def formed_rows(
    gradients: Gradients, count: int, numbers: Mapping[str, int]
) -> Iterator[tuple[slice, dict[str, Tensor]]]:
    """Gradients of weights of so many numbers, [examples, numbers], for a part of the `count` examples at a time."""
    for rows in _slices(count, sum(numbers.values())):
        yield rows, {name: g for name in numbers if (g := _formed(name, gradients, rows)) is not None}


def _formed(name: str, gradients: Gradients, rows: slice) -> Tensor | None:
    parts = [product.dense(rows) for product in gradients.products.get(name, ())]
    if name in gradients.tensors:
        parts.append(gradients.tensors[name][rows])
    return sum(parts[1:], start=parts[0]) if parts else None


def _side_by_side(gradients: Mapping[str, Tensor]) -> list[tuple[list[str], Tensor]]:
    """The small ones in one tensor: a network has hundreds of them, and each costs some calls."""
    small = [name for name, g in gradients.items() if g.shape[1] <= _SMALL]
    made = [([name], g) for name, g in gradients.items() if g.shape[1] > _SMALL]
    return [*made, (small, torch.cat([gradients[name] for name in small], dim=1))] if small else made


def _slices(count: int, numbers: int) -> list[slice]:
    """All of one length, so that every example meets the same kernels; two examples at the least: see (3) above."""
    size = even_size(count, max(2, _FORMED_NUMBERS // max(1, numbers)))
    return [slice(start, start + size) for start in range(0, count, size)]


def _squares(gradient: Tensor) -> Tensor:
    total = torch.zeros(len(gradient), dtype=torch.float64, device=gradient.device)
    for block in torch.split(gradient, max(1, _BLOCK // len(gradient)), dim=1):
        wide = block.double()
        total += torch.linalg.vecdot(wide, wide)
    return total


def _zeroed(gradient: Tensor, finite: Tensor) -> Tensor:
    """Rows that are not finite are zero. A factor of zero would not do: a NaN would stay one."""
    if bool(finite.all()):
        return gradient
    return torch.where(finite.reshape(-1, *(1 for _ in gradient.shape[1:])), gradient, 0.0)
