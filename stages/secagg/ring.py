"""Whole numbers modulo 2³² or 2⁶⁴: how an update becomes a vector that masks can hide, and a sum becomes an update.

Plain updates. Values in ±`reach` are rounded to multiples of `step` = reach/(2^(bits − 1) − 1). A value outside is an
error, never cut off in silence. Rounding moves each value by at most step/2, and so the mean.

Noise shares (privacy contract, rule 23). The mechanism has put contribution plus noise on its public grid, a power of
two; `step` is that grid, so nothing is rounded here at all and the ring's sum is exactly the sum of what the clients
noised: nothing is added to the sensitivity. Values are taken modulo 2^modulus without looking: no value, however large,
makes a client abort after noise was added. That the sum does not wrap around is known beforehand from public numbers:
a contribution is at most C, a draw of the noise at most 9.2 standard deviations (`SecretStream.gaussian`).

Either way `most` bounds what one client adds to a coordinate, in steps, and n·most must stay below 2^(modulus − 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.privacy.mechanism import GaussianMechanism
from stages.secagg.terms import LEAST_BITS, MODULI, MOST_BITS

_TAIL = 10.0  # standard deviations, above the 9.2 at which the noise is cut off
_WORDS: dict[int, Any] = {32: np.dtype("<u4"), 64: np.dtype("<u8")}
_SIGNED: dict[int, Any] = {32: np.dtype("<i4"), 64: np.dtype("<i8")}
_HALF = 2.0**63  # where int64 ends
_PIECE = 1 << 16  # values at a time, so that wide copies stay in the cache


@dataclass(frozen=True)
class Ring:
    """`reach` is None where values wrap by design."""

    modulus: int
    step: float
    most: int
    reach: float | None

    @classmethod
    def plain(cls, *, modulus: int, reach: float, bits: int) -> Ring:
        _check_modulus(modulus)
        if not (math.isfinite(reach) and reach > 0):
            raise ValueError(f"the range must be a number above 0, found {reach!r}")
        if type(bits) is not int or not LEAST_BITS <= bits <= MOST_BITS:
            raise ValueError(f"the bits must be a whole number from {LEAST_BITS} to {MOST_BITS}, found {bits!r}")
        most = 2 ** (bits - 1) - 1
        return cls(modulus, reach / most, most, reach)

    @classmethod
    def for_noise(cls, *, modulus: int, clip_norm: float, noise_multiplier: float) -> Ring:
        """For messages that carry noise of `noise_multiplier`·C each, on the grid of the mechanism that made them."""
        _check_modulus(modulus)
        mechanism = GaussianMechanism(clip_norm=clip_norm, noise_multiplier=noise_multiplier, expected_size=1.0)
        most = math.ceil((clip_norm + _TAIL * mechanism.scale) / mechanism.grid) + 1
        return cls(modulus, mechanism.grid, most, None)

    def check_fits(self, clients: int) -> None:
        """Raise `ValueError` if the sum of so many clients could wrap around."""
        if clients * self.most >= 2 ** (self.modulus - 1):
            raise ValueError(
                f"the sum of {clients} clients, each up to {self.most:,} steps, does not fit into {self.modulus} bits"
            )

    def quantised(self, values: NDArray[np.floating]) -> NDArray[np.unsignedinteger]:
        """The values in steps, modulo 2^modulus. `ValueError` for one out of range, but never under noise."""
        flat = values.reshape(-1)
        words = np.empty(flat.size, _WORDS[self.modulus])
        for start in range(0, flat.size, _PIECE):
            here = slice(start, start + _PIECE)
            words[here] = self._whole(flat[here].astype(np.float64))
        return words.reshape(values.shape)

    def _whole(self, wide: NDArray[np.float64]) -> NDArray[np.int64]:
        """The nearest whole numbers of steps, or others that are the same modulo 2^modulus and fit into int64."""
        largest = float(np.max(np.abs(wide), initial=0.0))
        if self.reach is not None and not largest <= self.reach:
            raise ValueError(f"a value of size {largest:g} lies outside the declared range ±{self.reach:g}")
        whole = np.rint(wide / self.step)
        if largest / self.step >= _HALF / 2:
            whole = np.fmod(whole, 2.0**self.modulus)
            whole[whole >= _HALF] -= 2 * _HALF
            whole[whole < -_HALF] += 2 * _HALF
        return whole.astype(np.int64)

    def holds(self, total: NDArray[np.signedinteger], clients: int) -> bool:
        """Whether so many clients can have made this sum."""
        most = clients * self.most
        return -most <= int(np.min(total, initial=0)) and int(np.max(total, initial=0)) <= most

    def signed(self, words: NDArray[np.unsignedinteger]) -> NDArray[np.signedinteger]:
        """A sum in steps, negative where it is past the middle of the ring; a view."""
        return words.view(_SIGNED[self.modulus])

    def zeros(self, count: int) -> NDArray[np.unsignedinteger]:
        return np.zeros(count, _WORDS[self.modulus])


def _check_modulus(modulus: int) -> None:
    if modulus not in MODULI:
        raise ValueError(f"the modulus has 32 or 64 bits, found {modulus!r}")
