"""Budgets: how much ε a participant is ready to spend in all, and whether the next release stays within.

Releases follow one another, and each may be chosen after a look at the last. Composition theorems for a list that was
fixed in advance do not cover that; a Rényi filter does (Feldman and Zrnic 2021; Lécuyer 2021): go on as long as all
releases together stay within the budget at an order α that was fixed before the first. It is a function of the budget
alone; the best order in hindsight would depend on what was released. A single release was planned as a whole, and its
privacy loss distribution counts: either nothing follows it, or it is within the filter with all that does.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from stages.privacy.events import PrivacyEvent, Unit, for_unit


@dataclass(frozen=True, kw_only=True)
class Budget:
    """At most `epsilon` at `delta`, for one `unit`: a record, a person, or all of a client's data."""

    epsilon: float
    delta: float
    unit: Unit

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not math.isfinite(value) or not value > 0:
                raise ValueError(f"{name} must be a number greater than 0, found {value!r}")
        if not self.delta < 1:
            raise ValueError(f"delta must lie between 0 and 1, found {self.delta!r}")
        if self.unit not in get_args(Unit):
            raise ValueError(f"unit must be one of {', '.join(get_args(Unit))}; found {self.unit!r}")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Budget:
        known = {field.name for field in dataclasses.fields(cls)}
        unknown, missing = sorted(values.keys() - known), sorted(known - values.keys())
        if unknown or missing:
            wrong = f"unknown key {unknown[0]!r}" if unknown else f"no {missing[0]!r}"
            raise ValueError(f"{wrong}; a budget has exactly {', '.join(sorted(known))}")
        return cls(**{name: _number(value) if name != "unit" else value for name, value in values.items()})

    def spent(self, releases: Sequence[Sequence[PrivacyEvent]]) -> float:
        """ε of all releases together; ∞ where an event says nothing about this budget's unit (`for_unit`).

        A release without events, which is how a ledger marks a draw, is none.
        """
        from stages.privacy.accountant import epsilon, filtered

        releases = [release for release in releases if release]
        events = [for_unit(event, self.unit) for release in releases for event in release]
        if not events:
            return 0.0
        # Reservations carry no ids of their own yet: each counts.
        numbered = [dataclasses.replace(event, id=f"{n:064x}") for n, event in enumerate(events) if event is not None]
        if len(numbered) < len(events):
            return math.inf
        if len(releases) == 1:
            return epsilon(numbered, delta=self.delta).pld
        return filtered(numbered, delta=self.delta, order=self.order)

    @property
    def order(self) -> float:
        """The Rényi order of the filter."""
        from stages.privacy.renyi import order_for

        return order_for(self.epsilon, self.delta)

    def most_steps(self, releases: Sequence[Sequence[PrivacyEvent]], event: PrivacyEvent) -> int:
        """How many steps of `event` what is left allows: what a refusal can offer."""
        low, high = 0, event.steps
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.spent([*releases, [dataclasses.replace(event, steps=middle)]]) <= self.epsilon
            low, high = (middle, high) if fits else (low, middle)
        return low


def _number(value: Any) -> Any:
    """YAML takes 1e-5, without a point, for a text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
