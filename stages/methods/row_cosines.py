"""The angle between two gradients, row by row, with its derivative written out.

Methods that move images until their gradient points somewhere (FedLAP, TOFU) differentiate such an angle thousands of
times. All rows are one vector here: autograd over dozens of small operations would cost half of a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class RowCosines:
    """Σ over rows of share · (1 − cos) to a fixed vector. `lengths` are those of its rows, which follow each other.

    `least` is added to the product of the norms: rows whose product is far below it have no direction, and no say.
    """

    def __init__(self, target: Tensor, lengths: Sequence[int], shares: Sequence[float], *, least: float) -> None:
        self._target, self._least = target, least
        self._row_of = torch.repeat_interleave(torch.tensor(lengths, device=target.device))
        self._shares = torch.tensor(shares, dtype=target.dtype, device=target.device)
        self._norms = self._by_row(target.square()).sqrt()

    def distance(self, found: Tensor) -> tuple[Tensor, Tensor]:
        """The distance, and how it changes with each number of `found`."""
        long = self._by_row(found.square()).sqrt()
        norms = self._norms * long + self._least
        cosines = self._by_row(self._target * found) / norms
        # d cos/db = a/n − cos·|a|·b/(n·|b|), where n = |a|·|b| and a little
        # Divided twice: where both are zero, the product of the two divisors would be zero too.
        along = cosines * self._norms / norms / long.clamp(min=torch.finfo(long.dtype).tiny)
        slope = (self._shares * along)[self._row_of] * found - (self._shares / norms)[self._row_of] * self._target
        return (self._shares * (1 - cosines)).sum(), slope

    def _by_row(self, values: Tensor) -> Tensor:
        return torch.zeros_like(self._shares).index_add_(0, self._row_of, values)


def flat(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.detach().flatten() for part in parts])


def shaped(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """A flat vector in the shapes of `like`."""
    parts = torch.split(vector, [part.numel() for part in like])
    return [part.view(one.shape) for part, one in zip(parts, like, strict=True)]
