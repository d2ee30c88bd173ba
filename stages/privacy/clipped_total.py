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
2. Sum within the chunks: each is off by at most n·u·Σ fᵢ·Sᵢ. The length counts as at least Sᵢ/64, so fᵢ·Sᵢ ≤ 64·C; in
   all 64·N·n·u·C, or 4.6e-8·C. (Of a formed gradient, and of one row, Sᵢ is ‖gᵢ‖.)
3. Adding to the total: L times a chunk, L ≤ n/2, so N/2 times, each off by at most u times the total's length. That is
   N·C/2 on average and, between the rows of one chunk, up to 64·n·C more: in all 2.8e-7·C + 2.3e-8·C.
4. With the example and without it, twice (2 + 3): 7.0e-7·C. Rounding to whole steps takes 2⁻²²·C (`mechanism`). All in
   all 9.4e-7·C, which the margin of 2⁻²⁰·C, 9.5e-7·C, pays for.
The rows of an example enter the sum one by one, in products of their own. So what an example adds is rounded in the
same way wherever it stands.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from stages.privacy.example_gradients import Gradients
from stages.privacy.mechanism import clipped_length

_MOST_ROWS = 16  # of a product that is not formed: measured
_ROW_COST = 4  # a number of a row, copied and widened, by a number of a gradient that is formed: measured
_MOST_COLUMNS = 1 << 18
_LENGTH_ERROR = 2.0**-32
_MOST_CANCELLING = 64.0
_FORMED_NUMBERS = 1 << 22  # formed gradients held at a time: 16 MB, which the cache holds
_SMALL = 1 << 13
_BLOCK = 1 << 16  # widened to float64 at a time: half a megabyte; all at once took six times as long


class ClippedTotal:
    """Σᵢ min(1, C/‖gᵢ‖)·gᵢ over the chunks added; an example whose gradient is not finite counts as zero."""

    def __init__(self, weights: Mapping[str, Tensor], clip_norm: float) -> None:
        self._limit = clipped_length(clip_norm)
        device = next(iter(weights.values())).device
        # With the weights, or on the CPU where their device has no float64.
        self._home = torch.device("cpu") if device.type == "mps" else device
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
        counts = torch.zeros(count, dtype=torch.bool, device=self._home)
        for rows in _slices(count, sum(self._total[name].numel() for name in formed)):
            made = _side_by_side(
                {name: g.to(self._home) for name in formed if (g := _formed(name, gradients, rows)) is not None}
            )
            square = squares[rows] + sum(_squares(g) for _, g in made)
            lengths = torch.maximum(square.sqrt(), spread[rows].sqrt() / _MOST_CANCELLING)
            counts[rows] = torch.isfinite(lengths) & is_real[rows].to(self._home)
            factors[rows] = torch.where(counts[rows], self._limit / lengths.clamp(min=self._limit), 0.0)
            for names, gradient in made:
                summed = _weighted(_zeroed(gradient, counts[rows]), factors[rows])
                for name, part in zip(names, torch.split(summed, [self._total[n].numel() for n in names]), strict=True):
                    self._total[name] += part
        for name, (a, b) in rows_of.items():
            total = self._total[name].view(unformed[name].shape)
            wide_a = _zeroed(a, counts).double()
            wide_b = _zeroed(b, counts).double() * factors[:, None, None]
            for row in range(a.shape[1]):
                total.addmm_(wide_b[:, row].T, wide_a[:, row])


def _stays_a_product(name: str, gradients: Gradients) -> bool:
    """Where that is less work; and only if nothing else adds to the gradient of this weight."""
    products = gradients.products[name]
    if len(products) != 1 or name in gradients.tensors:
        return False
    (product,) = products
    high, wide = product.shape
    rows = product.places
    few = rows == 1 or rows <= min(_MOST_ROWS, product.examples // 2)
    return few and _ROW_COST * rows * (high + wide) <= high * wide and high + wide <= _MOST_COLUMNS


def _squared_length(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """‖Bᵢᵀ·Aᵢ‖², not too small by rounding, and Sᵢ²."""
    wide_a, wide_b = a.double(), b.double()
    of_a, of_b = torch.bmm(wide_a, wide_a.mT), torch.bmm(wide_b, wide_b.mT)
    diagonals = (of_a.diagonal(dim1=1, dim2=2) * of_b.diagonal(dim1=1, dim2=2)).sqrt()
    spread = diagonals.sum(1).square()
    return (of_a * of_b).sum((1, 2)).clamp(min=0.0) + _LENGTH_ERROR * spread, spread


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
    """All of one length, so that every example meets the same kernels."""
    fits = max(1, _FORMED_NUMBERS // max(1, numbers))
    size = max(size for size in range(1, count + 1) if count % size == 0 and size <= fits)
    return [slice(start, start + size) for start in range(0, count, size)]


def _squares(gradient: Tensor) -> Tensor:
    total = torch.zeros(len(gradient), dtype=torch.float64, device=gradient.device)
    for block in torch.split(gradient, max(1, _BLOCK // len(gradient)), dim=1):
        wide = block.double()
        total += torch.linalg.vecdot(wide, wide)
    return total


def _weighted(gradient: Tensor, factors: Tensor) -> Tensor:
    blocks = torch.split(gradient, max(1, _BLOCK // len(gradient)), dim=1)
    return torch.cat([factors @ block.double() for block in blocks])


def _zeroed(gradient: Tensor, counts: Tensor) -> Tensor:
    """Rows that do not count are zero. Not times zero: a NaN would stay one."""
    if bool(counts.all()):
        return gradient
    return torch.where(counts.reshape(-1, *(1 for _ in gradient.shape[1:])), gradient, 0.0)
