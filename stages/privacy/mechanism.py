"""The Gaussian mechanism: one flat clip, noise from a secret stream, whole numbers on a public grid.

Guarantee (`noisy_mean`). Let F(D) be a sum of contributions, one for each unit (record or client), each clipped by
`clipped` or `clipping.clipped_sum`. Adding or removing one unit moves F by at most C = `clip_norm` in Euclidean norm;
replacing one moves it by at most 2C. What is released is a function of F(D) + N(0, σ²C²·I) alone, σ =
`noise_multiplier`: the Gaussian mechanism of Dwork and Roth (2014, App. A) and, where units were drawn by a secret
Poisson sample, the sampled Gaussian mechanism of FedLAP-DP's Definition A.3 (Mironov et al. 2019). The divisor is a
public constant, the EXPECTED number of units (rule 12): dividing by the realised number would break the bound.

Floating point (rule 10). Textbook noise in floating point leaks: which sums x + z are possible, and their low bits,
depend on x (Mironov 2012; Haney et al. 2022). Here nothing is added as a float:
1. Contributions are clipped to C·(1 − 2⁻²⁰). The margin pays for all rounding in the norm, the factor, the float64 sum
   (batches of up to 100,000 units) and in step 2, so that what step 3 sees moves by at most C.
2. The sum is rounded to whole multiples of a fine step h ≤ σC·2⁻⁴², and so is the noise.
3. The two whole numbers are added, exactly. The data only shift a distribution that does not depend on them. The sum
   is a multiple of h, so rounding the noise to h and rounding the noisy sum to h are one and the same: post-processing.
4. The result is rounded to the public grid, a power of two near σC/32, in whole numbers: post-processing again.
What stays: the noise's distribution function is off by about 1e-15 (float64's Φ⁻¹, 64-bit words, tails cut at 9.2σ),
equally for all data; relative to the mass of a grid cell that is about 1e-13.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.privacy.streams import SecretStream

CLIP_MARGIN = 2.0**-20
_FINE_BITS = 42  # h = 2^(e − 42), where 2^e ≤ σC < 2^(e + 1)
_GRID_BITS = 5  # the public grid: 2^(e − 5), which adds less than a ten-thousandth to the noise's variance
_LIMIT = 2**61  # whole numbers are cut off here; to cut off moves no two sums apart


@dataclass(frozen=True, kw_only=True)
class GaussianMechanism:
    """Public constants, from the recipe; none may be computed from private data (rule 2)."""

    clip_norm: float
    noise_multiplier: float
    expected_size: float

    def __post_init__(self) -> None:
        for name in ("clip_norm", "noise_multiplier", "expected_size"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a number greater than 0, found {value!r}")

    @property
    def scale(self) -> float:
        """σC: the standard deviation of the noise in the sum."""
        return self.noise_multiplier * self.clip_norm

    def check_dimension(self, dimension: int) -> None:
        """Raise `ValueError` for more coordinates than the margin of the clip pays for."""
        if math.sqrt(dimension) * self.noise_multiplier > 2.0 ** (_FINE_BITS - 22):
            raise ValueError(f"{dimension} coordinates with noise_multiplier {self.noise_multiplier} are too many")

    @property
    def fine_step(self) -> float:
        return math.ldexp(1.0, _exponent(self.scale) - _FINE_BITS)

    @property
    def grid(self) -> float:
        """The spacing of the released sum, before the division: a power of two in (σC/64, σC/32]."""
        return math.ldexp(1.0, _exponent(self.scale) - _GRID_BITS)


def clipped_length(clip_norm: float) -> float:
    """The length to which a contribution is clipped so that no rounding takes it beyond `clip_norm`."""
    return clip_norm * (1 - CLIP_MARGIN)


def clipped(contribution: Mapping[str, NDArray[np.floating]], clip_norm: float) -> dict[str, NDArray[np.float64]]:
    """One contribution, say a client's update, scaled so that its flat Euclidean norm is at most `clip_norm`.

    One clip over all tensors: tensor by tensor the norm could reach C·√L for L tensors. A contribution with a value
    that is not finite becomes zero, without a word (rule 11): an error would be an output too.
    """
    wide = {name: np.asarray(tensor, dtype=np.float64) for name, tensor in contribution.items()}
    # The largest value comes out first, so that no square overflows.
    largest = max((float(np.max(np.abs(tensor))) for tensor in wide.values() if tensor.size), default=0.0)
    if not math.isfinite(largest):
        return {name: np.zeros_like(tensor) for name, tensor in wide.items()}
    relative = math.sqrt(sum(float(np.sum(np.square(t / largest))) for t in wide.values())) if largest else 0.0
    limit = clipped_length(clip_norm)
    if largest * relative <= limit:
        return {name: tensor.copy() for name, tensor in wide.items()}
    return {name: (tensor / largest) * (limit / relative) for name, tensor in wide.items()}


def noisy_mean(
    total: Mapping[str, NDArray[np.float64]], mechanism: GaussianMechanism, noise: SecretStream
) -> dict[str, NDArray[np.float32]]:
    """(F + N(0, σ²C²·I)) / expected size, on the public grid. The tensors draw their noise in the order of their names.

    `total` is F: a float64 sum of contributions that were clipped to `mechanism.clip_norm`; it may be of none at all
    (an empty Poisson sample is legal, costs, and releases noise).
    """
    mechanism.check_dimension(sum(tensor.size for tensor in total.values()))
    step = mechanism.fine_step
    released = {}
    for name in sorted(total):
        drawn = noise.gaussian(total[name].shape, mechanism.scale)
        exact = _whole(total[name], step) + _whole(drawn, step)
        if _in_place is not None:
            exact = _whole(_LOUD * _in_place.gaussian(total[name].shape, mechanism.scale), step)
        shift = _FINE_BITS - _GRID_BITS
        on_grid = (exact + (1 << (shift - 1))) >> shift
        released[name] = np.asarray(on_grid * mechanism.grid / mechanism.expected_size, np.float32)
    return released


_in_place: SecretStream | None = None
# How many times the noise is its own in a comparison: what is done with classes that stand out of the noise of their
# counts (FedDM-DP, DP-MERF) is compared too; at its own size hardly one does.
_LOUD = 8.0


@contextlib.contextmanager
def noise_alone(stream: SecretStream) -> Iterator[None]:
    """For a comparison of neighbours: whatever is released is noise of this stream. The sums are computed and dropped.

    Then nothing that leaves depends on private data, or it depends on them by another way than the mechanism.
    """
    global _in_place
    before, _in_place = _in_place, stream
    try:
        yield
    finally:
        _in_place = before


def _exponent(value: float) -> int:
    """e, where 2^e ≤ value < 2^(e + 1)."""
    return math.frexp(value)[1] - 1


def _whole(values: NDArray[np.float64], step: float) -> NDArray[np.int64]:
    """The nearest whole multiples of `step`, a power of two, cut off far below the ends of int64."""
    with np.errstate(over="ignore"):
        multiples = np.nan_to_num(values / step, nan=0.0, posinf=_LIMIT, neginf=-_LIMIT)
    return np.clip(np.rint(multiples), -_LIMIT, _LIMIT).astype(np.int64)
