"""From events to ε: privacy loss distributions and Rényi together, and noise from a target ε (rules 3 to 6).

Both numbers are upper bounds of the same guarantee: for every pair of neighbouring datasets and every set S of outputs,
P[M(D) ∈ S] ≤ e^ε·P[M(D') ∈ S] + δ. The first is the tighter one. δ has no default. Never imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from stages.privacy import loss_distribution, renyi
from stages.privacy.events import LEAST_NOISE, MOST_NOISE, Adjacency, PrivacyEvent, distinct, once_per_draw
from stages.privacy.renyi import Charge

Accountant = Literal["pld", "rdp"]
Orders = Literal["fine", "papers"]

_TINY_DELTA = 1e-15
# Beyond this no one is protected, and e^−ε comes near the smallest number that float64 has.
_HOPELESS = 500.0
_MOST_KINDS = 64  # of mechanisms whose distributions are composed: each takes a tenth of a second
_DECIMALS = 4  # of a calibrated noise multiplier


@dataclass(frozen=True)
class Epsilon:
    """ε by privacy loss distributions and by Rényi; for what the events do not cover both are ∞.

    Where ε is beyond 500, δ too small for float64, or more than 64 different mechanisms were used, `pld` is the Rényi
    bound too.
    """

    pld: float
    rdp: float

    def by(self, accountant: Accountant) -> float:
        return self.pld if accountant == "pld" else self.rdp


NOTHING, INFINITE = Epsilon(0.0, 0.0), Epsilon(math.inf, math.inf)


def epsilon(events: Iterable[PrivacyEvent], *, delta: float, orders: Orders = "fine") -> Epsilon:
    """ε of all events together, each id once. Raises `ValueError` for events of two units, which do not add up."""
    return _epsilon(_charges(distinct(events)), _checked_delta(delta), orders)


def filtered(events: Iterable[PrivacyEvent], *, delta: float, order: float) -> float:
    """ε of all events at one Rényi order that was fixed before the first of them: what a privacy filter adds up."""
    return max(0.0, renyi.at_order(_charges(distinct(events)), order, _checked_delta(delta)))


def across(
    clients: Sequence[Sequence[PrivacyEvent]], *, delta: float, orders: Orders = "fine",
    of_all: Sequence[PrivacyEvent] = (),
) -> tuple[Epsilon, Epsilon]:  # fmt: skip
    """ε over all clients: if no person is in two clients' data, the maximum; if one may be in all, the composition.

    A record is not a person: one who has several records, in one client or in many, has more at stake (rule 5). Events
    `of_all` are one release of all clients' data, which each of the lists has: it happened once.
    """
    each = [epsilon(events, delta=delta, orders=orders) for events in clients] or [NOTHING]
    disjoint = Epsilon(max(e.pld for e in each), max(e.rdp for e in each))
    once = {event.id for event in of_all}
    together = [event for events in clients for event in distinct(events) if event.id not in once]
    together += distinct(of_all)
    return disjoint, _epsilon(_charges(together), _checked_delta(delta), orders)


def adjacency_of(events: Iterable[PrivacyEvent]) -> Adjacency:
    """The relation for which the total holds: replace-one if any event asks for it, since all can be read so."""
    return "replace-one" if any(e.adjacency == "replace-one" for e in events) else "add-or-remove"


def calibrated(
    target_epsilon: float,
    *,
    delta: float,
    sampling_rate: float,
    steps: int,
    adjacency: Adjacency = "add-or-remove",
    by: Accountant = "pld",
) -> float:
    """The least noise multiplier, to four decimals, with an ε of at most `target_epsilon`: rounded towards privacy."""
    if not (math.isfinite(target_epsilon) and target_epsilon > 0):
        raise ValueError(f"the target ε must be a number greater than 0, found {target_epsilon!r}")

    def reached(sigma: float, accountant: Accountant = by) -> float:
        event = planned(sampling_rate=sampling_rate, noise_multiplier=sigma, steps=steps, adjacency=adjacency)
        if accountant == "rdp":  # alone, it takes a tenth of the time
            return renyi.epsilon(_charges([event]), _checked_delta(delta))
        return epsilon([event], delta=delta).by(accountant)

    if reached(MOST_NOISE, "rdp") > target_epsilon:
        raise ValueError(f"no noise multiplier up to {MOST_NOISE:.0f} brings ε down to {target_epsilon}")
    if reached(LEAST_NOISE) <= target_epsilon:
        return LEAST_NOISE
    guess = LEAST_NOISE
    if reached(LEAST_NOISE, "rdp") > target_epsilon:  # Rényi is quick, and never far off

        def of_log(log: float) -> float:
            return min(MOST_NOISE, max(LEAST_NOISE, math.exp(log)))

        ends = math.log(LEAST_NOISE), math.log(MOST_NOISE)
        guess = of_log(_enough(lambda log: reached(of_log(log), "rdp"), target_epsilon, delta, ends, tol=1e-3))
    unit = 10.0**-_DECIMALS

    def at(count: int) -> float:
        return reached(round(count * unit, _DECIMALS))

    high = math.ceil(guess / unit)
    while at(high) > target_epsilon:
        high = math.ceil(1.1 * high)
    least = round(LEAST_NOISE / unit)
    low = max(least, math.floor(0.9 * high))
    while at(low) <= target_epsilon:
        low, high = max(least, math.floor(0.9 * low)), low
    count: int = _enough(at, target_epsilon, delta, (low, high), discrete=True)
    while at(count - 1) <= target_epsilon:  # it may be one too many
        count -= 1
    return round(count * unit, _DECIMALS)


class _Searched:
    """What dp-accounting's search takes for an accountant: ε is a function of the parameter that it tries."""

    def __init__(self, epsilon_of: Callable[[Any], float], ledger: Any) -> None:
        self._epsilon_of, self.ledger = epsilon_of, ledger
        self._parameter: Any = None

    def compose(self, parameter: Any) -> _Searched:
        self._parameter = parameter
        return self

    def get_epsilon(self, _delta: float) -> float:
        return self._epsilon_of(self._parameter)


def _enough(
    epsilon_of: Callable[[Any], float], target: float, delta: float, ends: tuple[float, float], **settings: Any
) -> Any:
    """A parameter between the ends, as near to the target as `tol` says and never beyond it, by dp-accounting's search.

    Its own accountants are not asked: ours cap, round and halve as `_charges` and `_epsilon` say.
    """
    # Imported where it is used: dp-accounting takes a second to load.
    from dp_accounting import ExplicitBracketInterval, NoOpDpEvent, calibrate_dp_mechanism

    return calibrate_dp_mechanism(
        lambda: _Searched(epsilon_of, NoOpDpEvent()), lambda parameter: parameter, target, delta,
        ExplicitBracketInterval(*ends), **settings,
    )  # fmt: skip


def planned(
    *, sampling_rate: float, noise_multiplier: float, steps: int, adjacency: Adjacency = "add-or-remove"
) -> PrivacyEvent:
    """An event that has not happened, about records at a client that trusts nobody."""
    return PrivacyEvent.planned(
        unit="record",
        adjacency=adjacency,
        sampling_rate=sampling_rate,
        noise_multiplier=noise_multiplier,
        clip_norm=1.0,
        steps=steps,
        trust="nobody",
    )


def _charges(events: Sequence[PrivacyEvent]) -> tuple[Charge, ...]:
    """What the accountants need: steps of equal rate and noise together, all Gaussians without sampling as one.

    A draw of clients amplifies one release.

    Replace-one doubles the sensitivity of a clipped sum, from C to 2C: the noise multiplier is halved. With sampling
    that is more than the pair of dp-accounting's REPLACE_ONE asks for (a test compares them). One such event, and the
    total is under replace-one.
    """
    units = sorted({event.unit for event in events})
    if len(units) > 1:
        raise ValueError(f"events of the units {' and '.join(units)} do not add up: account for each apart")
    halved = 0.5 if adjacency_of(events) == "replace-one" else 1.0
    sampled: dict[tuple[float, float], int] = {}
    precision = 0.0
    for event in once_per_draw(events):
        sigma = event.noise_multiplier * halved
        if event.sampling_rate == 1:
            precision += event.steps / sigma**2
        else:
            sampled[event.sampling_rate, sigma] = sampled.get((event.sampling_rate, sigma), 0) + event.steps
    charges: list[Charge] = [(q, sigma, steps) for (q, sigma), steps in sorted(sampled.items())]
    if precision:
        # Gaussians compose to a Gaussian: 1/σ² adds up.
        charges.append((1.0, 1 / math.sqrt(precision), 1))
    return tuple(charges)


@lru_cache(maxsize=4096)
def _epsilon(charges: tuple[Charge, ...], delta: float, orders: Orders) -> Epsilon:
    rdp = renyi.epsilon(charges, delta, renyi.ORDERS if orders == "fine" else renyi.PAPERS_ORDERS)
    if rdp > _HOPELESS or len(charges) > _MOST_KINDS:
        return Epsilon(rdp, rdp)
    spread = renyi.epsilon(charges, min(delta, _TINY_DELTA))
    pld = loss_distribution.epsilon(charges, delta, spread=spread)
    return Epsilon(pld if math.isfinite(pld) else rdp, rdp)


def _checked_delta(delta: float) -> float:
    if not 0 < delta < 1:
        raise ValueError(f"δ must lie between 0 and 1, found {delta!r}")
    return float(delta)
