"""Rényi differential privacy of the sampled Gaussian mechanism: FedLAP-DP, Theorems A.5 to A.7.

    A_α = E_{z ~ N(0, σ²)} [ (1 − q + q·e^{(2z − 1)/(2σ²)})^α ]      one step is (α, log A_α / (α − 1))-RDP
    ε = min over α of  ρ(α) + log((α − 1)/α) − (log δ + log α)/(α − 1)

ρ adds up over steps (Mironov 2017). Any order gives a bound; the grid is fine, so that little is lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

# (sampling rate q, noise multiplier σ, steps) under add-or-remove.
Charge = tuple[float, float, int]

# α − 1 from 1/128 to 1,024, each 1.5% above the one before: ε is flat about the best order.
ORDERS: tuple[float, ...] = tuple(float(1 + a) for a in np.geomspace(2.0**-7, 2.0**10, 801))
# Those on which most published figures were computed: 1.1, 1.2 … 10.9, 12, 13 … 63.
PAPERS_ORDERS: tuple[float, ...] = (*(round(1 + n / 10, 1) for n in range(1, 100)), *(float(n) for n in range(12, 64)))
_STRIDES = (64, 8, 1)
_MOST_POINTS = 20_000
_ROUNDING = 1e-14  # what float64 may have lost of log A_α; added, never hoped for


def epsilon(charges: Sequence[Charge], delta: float, orders: Sequence[float] = ORDERS) -> float:
    """The least ε over `orders` at which the charges together are (ε, δ)-DP for adding or removing one unit.

    The best of every 64th order, then of every eighth about it, then of those about that one: ε has one valley.
    """
    if not charges:
        return 0.0
    best, reach = 0, len(orders)
    for stride in _STRIDES:
        around = range(max(best % stride, best - reach), min(len(orders), best + reach + 1), stride)
        best = min(around, key=lambda i: at_order(charges, orders[i], delta))
        reach = stride
    return max(0.0, at_order(charges, orders[best], delta))


def step_cost(sampling_rate: float, noise_multiplier: float, order: float) -> float:
    """ρ(α) of one step: α/2σ² without sampling (Mironov 2017, Prop. 7), else Eq. 14."""
    if sampling_rate == 1:
        return order / (2 * noise_multiplier**2)
    return log_moment(sampling_rate, noise_multiplier, order) / (order - 1)


@lru_cache(maxsize=1 << 16)
def log_moment(q: float, sigma: float, order: float) -> float:
    """log A_α for any real α > 1 and q < 1, by the trapezoidal rule.

    The integrand is analytic within a strip of half-width πσ² about the real line (there 1 − q + q·e^{…} has its first
    zeros), so the rule converges like exp(−2π²σ²/step): with this step the error is below 1e-30, and the range leaves
    out less. Where that would take too many points, the bound (1 − q) + q·e^{α(α−1)/2σ²} is used (convexity of x^α).
    """
    step = min(sigma / 16, sigma**2 / 4)
    points = math.ceil((order + 24 * sigma) / step)
    if points > _MOST_POINTS:
        return float(np.logaddexp(math.log1p(-q), math.log(q) + order * (order - 1) / (2 * sigma**2)))
    z, spacing = np.linspace(-12 * sigma, order + 12 * sigma, points, retstep=True)
    terms = order * np.logaddexp(math.log1p(-q), math.log(q) + (2 * z - 1) / (2 * sigma**2)) - z**2 / (2 * sigma**2)
    largest = float(terms.max())
    total = float(np.exp(terms - largest).sum()) * float(spacing) / (sigma * math.sqrt(2 * math.pi))
    return max(0.0, largest + math.log(total)) + _ROUNDING


def at_order(charges: Sequence[Charge], order: float, delta: float) -> float:
    """Theorem A.6 (composition) and Theorem A.7 (Balle et al. 2020, Thm. 21) at one order."""
    return sum(steps * step_cost(q, sigma, order) for q, sigma, steps in charges) + _conversion(order, delta)


def order_for(epsilon: float, delta: float) -> float:
    """The order at which a budget of (ε, δ) lets most through, if what comes is Gaussian: ρ(α) = αρ, ρ the largest."""
    return max(ORDERS, key=lambda order: (epsilon - _conversion(order, delta)) / order)


def _conversion(order: float, delta: float) -> float:
    """What Theorem A.7 adds to ρ(α)."""
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
