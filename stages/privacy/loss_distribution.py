"""Privacy loss distributions: the tight accountant (Koskela et al. 2020; Doroshenko et al. 2022, «Connect the Dots»).

dp-accounting discretises, composes by FFT and inverts, always rounding towards more loss, so what comes out is an upper
bound. We hand it the privacy profile in closed form, as vectors: its own construction calls Python once for each of
10⁵ points and takes seconds. A test holds the two against each other. SciPy is imported where it computes: an audit
that computes no ε does without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.privacy.renyi import Charge

Vector = NDArray[np.float64]

_FINENESS = 32  # grid points within one standard deviation of a step's loss
_MOST_POINTS = 1 << 17
_LEAST_INTERVAL = 1e-7
_DELTA_SHARE = 1e-4  # of δ goes to tails that are cut off


def epsilon(charges: Sequence[Charge], delta: float, *, spread: float) -> float:
    """An ε at which the composition of all charges is (ε, δ)-DP for adding or removing one unit.

    `spread` is about the largest loss that matters (an ε for a tiny δ will do); it sets the grid, never the validity.
    """
    if not charges:
        return 0.0
    # Down to a power of 16: as rounds go by, the single steps are the same and are built once.
    tail = 16.0 ** math.floor(math.log(_DELTA_SHARE * delta / sum(steps for _, _, steps in charges), 16))
    interval = _interval(charges, spread, tail)
    # dp-accounting cuts its sums off by Chernoff bounds of orders 1 to 20 over the support's width: a support about as
    # wide as the composed loss lets it find the tightest of them.
    least_width = math.ldexp(1.0, math.floor(math.log2(spread / 8))) if spread else 0.0
    composed = None
    with np.errstate(all="ignore"):  # the library's own overflows, which it handles
        for q, sigma, steps in charges:
            part = _single(q, sigma, interval, tail, least_width).self_compose(steps)
            composed = part if composed is None else composed.compose(part)
    assert composed is not None
    return float(composed.get_epsilon_for_delta(delta))


def profile_removed(epsilons: Vector, q: float, sigma: float) -> Vector:
    """δ(ε) of M(D) against M(D without one unit): the pair (1−q)·N(0,σ²) + q·N(1,σ²), N(0,σ²).

    By the likelihood ratio of the mixture it is q·δ_G(ε'), e^{ε'} = (e^ε − (1 − q))/q, with δ_G the Gaussian's.
    """
    if q == 1:
        return _gaussian_profile(epsilons, sigma)
    certain = epsilons <= math.log1p(-q)  # below, every outcome counts
    e = np.where(certain, 1.0, epsilons)
    inner = e - math.log(q) + np.log(q * np.exp(-e) - np.expm1(-e))
    return np.where(certain, -np.expm1(np.minimum(epsilons, 0.0)), q * _gaussian_profile(inner, sigma))


def profile_added(epsilons: Vector, q: float, sigma: float) -> Vector:
    """δ(ε) the other way round: N(0,σ²), (1−q)·N(0,σ²) + q·N(1,σ²). Its loss never exceeds −log(1 − q)."""
    impossible = epsilons >= -math.log1p(-q)
    e = np.where(impossible, -1.0, epsilons)
    weight = q - (1 - q) * np.expm1(e)  # 1 − (1 − q)·e^ε
    return np.where(impossible, 0.0, weight * _gaussian_profile(e + np.log(q / weight), sigma))


def _gaussian_profile(epsilons: Vector, sigma: float) -> Vector:
    """Balle and Wang 2018, Theorem 5, for sensitivity 1."""
    from scipy.special import log_ndtr, ndtr

    shift = epsilons * sigma
    upper = ndtr(0.5 / sigma - shift)
    return np.asarray(np.maximum(upper - np.exp(epsilons + log_ndtr(-0.5 / sigma - shift)), 0.0))


def _range(q: float, sigma: float, tail: float) -> tuple[float, float]:
    """The losses of M(D) against M(D without one unit), but for tails of that mass."""
    from scipy.special import ndtri

    # Through 1 − Φ, so that no mass is too small for a float.
    width = -float(ndtri(max(tail, 1e-300)))
    largest = 0.5 / sigma**2 + width / sigma
    stay = math.log1p(-q) if q < 1 else -math.inf
    return float(np.logaddexp(stay, math.log(q) - largest)), float(np.logaddexp(stay, math.log(q) + largest))


def _interval(charges: Sequence[Charge], spread: float, tail: float) -> float:
    """A power of two, small against the standard deviation of a step's loss, but no smaller than memory allows."""
    deviations = [(_deviation(q, sigma), steps) for q, sigma, steps in charges]
    # Mean over steps, weighted by what they add to the variance: steps that hardly matter do not refine the grid.
    typical = sum(steps * d**2 for d, steps in deviations) / sum(steps * d for d, steps in deviations)
    extent = max(spread, *(high - low for low, high in (_range(q, s, tail) for q, s, _ in charges)))
    wanted = max(typical / _FINENESS, extent / _MOST_POINTS, _LEAST_INTERVAL)
    return math.ldexp(1.0, math.floor(math.log2(wanted)))


def _deviation(q: float, sigma: float) -> float:
    """About the standard deviation of one step's loss: q·√(e^{1/σ²} − 1) for small losses, and at most 1/σ."""
    return min(1 / sigma, q * math.sqrt(math.expm1(min(1 / sigma**2, 700.0))))


@lru_cache(maxsize=16)
def _single(q: float, sigma: float, interval: float, tail: float, least_width: float) -> Any:
    # Imported where it is used: dp-accounting takes a second to load.
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    low, high = _range(q, sigma, tail)
    low, high = min(low, -least_width), max(high, least_width)
    removed = _discretised(lambda e: profile_removed(e, q, sigma), low, high, interval)
    if q == 1:
        return PrivacyLossDistribution(removed)
    return PrivacyLossDistribution(removed, _discretised(lambda e: profile_added(e, q, sigma), -high, -low, interval))


def _discretised(profile: Callable[[Vector], Vector], low: float, high: float, interval: float) -> Any:
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap

    first, last = math.floor(low / interval) - 1, math.ceil(high / interval) + 1
    deltas = profile(np.arange(first, last + 1, dtype=np.float64) * interval)
    monotone = np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
    return create_pmf_pessimistic_connect_dots_fixed_gap(interval, first, last, monotone).to_dense_pmf()
