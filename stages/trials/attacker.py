"""What an attacker sees of canaries, and how likely it makes that each was there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import UsageError

Scores = NDArray[np.float64]
LOUD = 1e6  # how long a canary's contribution is before it is clipped
# The attacker looks for contributions that are too long: between the right length and √2 of it. That costs little where
# they are right, and finds more where they are not.
LONGER = 1.2


class Attacker:
    """Every release, at the canaries' coordinates, in clips; with the noise and the rate that it was made with."""

    def __init__(self, canaries: int) -> None:
        self.canaries = canaries
        self.seen: list[Scores] = []
        self.noise: list[float] = []
        self.length = 1.0  # of a canary's contribution, in clips

    def saw(self, values: Scores, noise_multiplier: float) -> None:
        self.seen.append(values)
        self.noise.append(noise_multiplier)

    def coordinates(self, size: int) -> NDArray[np.int64]:
        """One for each canary, spread over all tensors."""
        if size < self.canaries:
            raise UsageError(f"{size} numbers are released at a time: give at most that as --canaries.")
        return np.arange(self.canaries, dtype=np.int64) * size // self.canaries

    def scores(self, rates: Sequence[float]) -> Scores:
        """How likely each canary's releases are if it was there, over how likely if it was not; the logarithm."""
        total = np.zeros(self.canaries)
        for values, sigma, q in zip(self.seen, self.noise, rates, strict=True):
            total += likelihood(values, sigma, q, self.length)
        return total


def likelihood(values: Scores, sigma: float, q: float, length: float) -> Scores:
    """log P(values | there)/P(values | not there), for contributions `LONGER` than they should be."""
    expected = LONGER * length
    ratio: Scores = (2 * expected * values - expected**2) / (2 * sigma**2)
    return np.logaddexp(math.log1p(-q), math.log(q) + ratio) if q < 1 else ratio
