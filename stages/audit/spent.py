"""Noise that is claimed, noise that was reserved, and the budget: what a participant's files cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifacts import spend
from artifacts.digests import canonical_json
from artifacts.errors import FedsynthError
from artifacts.ledger import Entry
from artifacts.metadata import Metadata
from artifacts.places import Place
from stages.account import account
from stages.audit.findings import Sent
from stages.audit.outbound import Problem
from stages.privacy.events import PLANNED_ID, PrivacyEvent
from stages.spending import BUDGET, read_budget, spent_of


@dataclass
class SpendBook:
    """The spend ledger beside a participant's key. `reserved` is None where there is none to look into."""

    path: Path
    reserved: set[str] | None = None
    charged: list[list[dict[str, Any]]] = field(default_factory=list)
    problem: str | None = None
    _seen: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, place: Place) -> SpendBook:
        path = spend.beside(place.key)
        if not path.exists():
            return cls(path)
        try:
            charged = spend.read_charged(path)
        except FedsynthError as error:
            return cls(path, problem=str(error))
        return cls(path, {_without_id(event) for release in charged for event in release}, charged)

    def check(self, metadata: Metadata) -> Iterator[Problem]:
        """Every event is understood, has happened, was reserved, and says the same wherever it stands."""
        for event in metadata.privacy:
            try:
                PrivacyEvent.from_json(event)
            except (ValueError, TypeError) as error:
                yield "events", f"a privacy event is not understood: {error}"
                continue
            text, name = _without_id(event), event["id"]
            if name == PLANNED_ID:
                yield "events", "a privacy event has no id: it is a plan, and never happened"
            if self._seen.setdefault(name, text) != text:
                yield "events", f"the privacy event {name[:12]}… says something else in another file"
            if self.reserved is not None and text not in self.reserved:
                yield "events", "it claims noise that was never reserved in the spend ledger"


def _without_id(event: Mapping[str, Any]) -> str:
    return canonical_json({name: value for name, value in event.items() if name != "id"})


def check_budget(place: Place, book: SpendBook, entries: list[Entry], sent: Sent) -> Iterator[str]:
    """What was reserved is within the budget, and nothing left without noise beside it."""
    path = place.key.with_name(BUDGET)
    try:
        budget = read_budget(path)
        if budget is None:
            return
        spent = budget.spent(spent_of(book.charged, book.path))
    except (FedsynthError, ValueError) as error:
        yield str(error)
        return
    shown: float | str = "inf" if math.isinf(spent) else spent
    sent.budget = {"epsilon": budget.epsilon, "delta": budget.delta, "unit": budget.unit, "spent": shown}
    if book.reserved is None and any(entry.privacy for entry in entries):
        yield f"there is a budget, but no spend ledger at {book.path}: what was spent cannot be known"
    if spent > budget.epsilon:
        yield f"ε {spent:.3f} was spent of a budget of {budget.epsilon:g} at δ {budget.delta:g} per {budget.unit}"
    bare = sorted({entry.file for entry in entries if entry.disclosures or entry.picked})
    if bare:
        yield f"there is a budget, but {bare[0]} left without noise, which costs ∞ ({len(bare)} in all)"


def epsilons(target: Path, delta: float) -> dict[str, dict[str, Any]]:
    """ε of each participant by unit, as `account` has it. An event that is not understood raises `InputError`."""
    found: dict[str, dict[str, Any]] = {}
    for row in account([target], delta=delta)["clients"]:
        found.setdefault(row["client"], {})[row["unit"] or "any"] = row["epsilon"] | {"rest": row["rest"]}
    return found
