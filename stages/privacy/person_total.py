"""Clipping and summing what each person contributes: the sum of the gradients of all of their records, clipped once.

Clipping record by record would let a person with n records move the total by n·C (privacy contract, rule 32). A
record's gradient has bits of its own, wherever it is in its chunk (`clipping`); they are added in float64 in the order
of the person's records, so that a person's sum depends on nobody else's. From there on a person is what a record is to
`ClippedTotal`, whose bound on rounding holds: the sums are formed, and come in groups of one size, two at the least.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from stages.privacy.clipped_total import ClippedTotal, formed_rows, home_of_sums
from stages.privacy.example_gradients import Gradients

_MOST_PEOPLE = 16  # in a group
_NUMBERS = 1 << 22  # of a group's sums: 32 MB in float64


class PersonTotal:
    """Σₚ min(1, C/‖sₚ‖)·sₚ, sₚ the sum of a person's gradients; one that is not finite counts as zero.

    `people` has a number for each example, in the order in which chunks will bring them; those of a person are side by
    side, in one chunk or in several.
    """

    def __init__(self, weights: Mapping[str, Tensor], clip_norm: float, people: Tensor) -> None:
        self._total = ClippedTotal(weights, clip_norm)
        self._people: list[int] = people.tolist()
        if any(b < a for a, b in zip(self._people, self._people[1:], strict=False)):
            raise ValueError("the examples of a person must be side by side")
        self._numbers = {name: weight.numel() for name, weight in weights.items()}
        size = max(2, min(_MOST_PEOPLE, _NUMBERS // max(1, sum(self._numbers.values()))))
        home = home_of_sums(next(iter(weights.values())).device)
        self._sums = {
            name: torch.zeros(size, count, dtype=torch.float64, device=home) for name, count in self._numbers.items()
        }
        self._size, self._done = size, 0
        self._group: list[int] = []

    @torch.no_grad()
    def add(self, gradients: Gradients, is_real: Tensor) -> None:
        """The examples that are not real fill up the chunk, and are left out."""
        count = int(is_real.sum())
        for rows, made in formed_rows(gradients, len(is_real), self._numbers):
            for row in range(rows.start, min(rows.stop, count)):
                slot = self._slot(self._people[self._done])
                self._done += 1
                for name, found in made.items():
                    self._sums[name][slot] += found[row - rows.start].to(self._sums[name].device).double()

    def _slot(self, person: int) -> int:
        """Where the sum of this person is made; a group that is full is clipped and added first."""
        if not self._group or self._group[-1] != person:
            if len(self._group) == self._size:
                self._flush()
            self._group.append(person)
        return len(self._group) - 1

    def _flush(self) -> None:
        real = torch.arange(self._size) < len(self._group)
        self._total.add(Gradients(tensors=self._sums, products={}, ways={}), real)
        for found in self._sums.values():
            found.zero_()
        self._group.clear()

    def tensors(self) -> dict[str, Tensor]:
        if self._done != len(self._people):
            raise ValueError(f"{len(self._people)} examples were expected, {self._done} came")
        if self._group:
            self._flush()
        return self._total.tensors()
