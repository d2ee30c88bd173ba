"""Private adaptive clipping: the clip follows a quantile of the norms of updates (Andrew et al. 2021, Alg. 1).

Beside the sum of clipped updates a round releases how many were within the clip, noised too, and the next clip is

    C ← C · exp(−η_C · (b̃ − γ)),   b̃ = ½ + (Σ (b_i − ½) + N(0, σ_b²)) / (qN),   b_i = 1 where ‖Δ_i‖ ≤ C, else 0.

Guarantee. With b_i − ½ in place of b_i a client who comes or goes moves the count by ½. The pair (Σ Δ_i / (z_Δ·C),
Σ (b_i − ½) / σ_b) then moves by at most √(z_Δ⁻² + (2σ_b)⁻²), and has noise N(0, 1) in every coordinate: one Gaussian
mechanism with the noise multiplier z, where z⁻² = z_Δ⁻² + (2σ_b)⁻². So the count costs nothing on top of z: the updates
get a little more noise, z_Δ > z. Later clips are computed from noised counts alone, and are public.
"""

from __future__ import annotations

import math

import numpy as np

from stages.privacy.mechanism import GaussianMechanism, noisy_mean
from stages.privacy.streams import SecretStream

_HALF = 0.5  # what one client adds to, or takes from, the shifted count


def update_noise(noise_multiplier: float, count_noise: float) -> float:
    """z_Δ: the noise multiplier of the updates with which they and the count together cost `noise_multiplier`."""
    left = noise_multiplier**-2 - (count_noise / _HALF) ** -2
    if left <= 0:
        raise ValueError(
            f"a count of updates with noise σ_b = {count_noise:g} costs more than σ = {noise_multiplier:g}: σ_b, that "
            f"is --count-noise times qN, must be above {noise_multiplier * _HALF:g}"
        )
    return float(left**-0.5)


def joint_noise(update_noise: float, count_noise: float) -> float:
    """z: the noise multiplier that updates and count have together."""
    return float((update_noise**-2 + (count_noise / _HALF) ** -2) ** -0.5)


def noisy_share(within: int, present: int, *, count_noise: float, expected_size: float, noise: SecretStream) -> float:
    """b̃: the noised share of clients whose update was within the clip; `present` is how many took part."""
    mechanism = GaussianMechanism(clip_norm=_HALF, noise_multiplier=count_noise / _HALF, expected_size=expected_size)
    shifted = {"count": np.array([within - _HALF * present])}  # exact in float64: no margin for rounding is needed
    return _HALF + float(noisy_mean(shifted, mechanism, noise)["count"][0])


def next_clip(clip_norm: float, share: float, *, quantile: float, rate: float) -> float:
    """The geometric update: up where fewer updates than the quantile are within the clip, down where more are."""
    return clip_norm * math.exp(-rate * (share - quantile))
