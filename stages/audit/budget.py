"""Noise that is claimed, noise that was reserved, and the budget: what a participant's files cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifacts.digests import canonical_json
from artifacts.errors import FedsynthError
from artifacts.ledgers import spend
from artifacts.ledgers.egress import Entry
from artifacts.metadata import Metadata
from artifacts.places import Place
from stages.account import account
from stages.audit.findings import Sent
from stages.audit.obstacles import obstacle
from stages.audit.outbound import Problem
from stages.charging.spending import BUDGET, read_budget, spent_of
from stages.privacy.events import PLANNED_ID, PrivacyEvent, distinct
from stages.words import epsilon_words

_ROUNDING = 1e-6  # of an ε that is the sum of the same events in another order


@dataclass
class SpendBook:
    """The spend ledger beside a participant's key. `released` is None where there is none to look into."""

    path: Path
    released: dict[str, list[dict[str, Any]]] | None = None
    charged: list[list[dict[str, Any]]] = field(default_factory=list)
    problem: FedsynthError | None = None
    _seen: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, place: Place) -> SpendBook:
        path = spend.beside(place.key)
        if not path.exists():
            return cls(path)
        try:
            charged, released = spend.read_charged(path), spend.reserved_by_event(path)
        except FedsynthError as error:
            return cls(path, problem=error)
        return cls(path, released, charged)

    def check(self, metadata: Metadata) -> Iterator[Problem]:
        """Every event is understood, has happened, was reserved, and says the same wherever it is, once a file."""
        if len({event.get("id") for event in metadata.privacy}) < len(metadata.privacy):
            yield "events", "a privacy event is there twice"
        for event in metadata.privacy:
            try:
                spelt = PrivacyEvent.from_json(event).to_json()
            except (ValueError, TypeError) as error:
                yield "events", f"a privacy event is not understood: {error}"
                continue
            if canonical_json(spelt) != canonical_json(dict(event)):
                yield "events", "a privacy event is not spelt as fedsynth spells it"
            text, name = _without_id(event), event["id"]
            if name == PLANNED_ID:
                yield "events", "a privacy event has no id: it is a plan, and never happened"
            if self._seen.setdefault(name, text) != text:
                yield "events", f"the privacy event {name[:12]}… says something else in another file"
            # What the server passes on is charged to the clients that made it; its own noise to its own ledger.
            own = metadata.custody != "downlink" or event["trust"] == "server"
            if own and self.released is not None and not _reserves(self.released.get(name, []), event):
                yield "events", "it claims noise that was never reserved in the spend ledger"


def _reserves(reserved: list[dict[str, Any]], event: Mapping[str, Any]) -> bool:
    """Whether the computation that gave out this very event had reserved it, or the same with more steps."""
    return any(
        _without_id({**plan, "steps": event["steps"]}) == _without_id(event) and event["steps"] <= plan["steps"]
        for plan in reserved
    )


def _without_id(event: Mapping[str, Any]) -> str:
    return canonical_json({name: value for name, value in event.items() if name != "id"})


def check_budget(
    place: Place, book: SpendBook, entries: list[Entry], sent: Sent, inherited: Set[str] | None
) -> Iterator[str]:
    """What was reserved is within the budget, covers what left, and nothing left without noise beside it.

    `inherited` are ids of events that came with what the participant was given; None where that is not known.
    """
    if book.released is None and book.problem is None and any(entry.privacy for entry in entries):
        yield f"files claim noise, but there is no spend ledger at {book.path}: what was spent cannot be known"
    path = place.key.with_name(BUDGET)
    try:
        budget = read_budget(path)
        if budget is None:
            return
        spent = budget.spent(spent_of(book.charged, book.path))
        left = budget.spent(_left(entries, inherited)) if inherited is not None else 0.0
    except (FedsynthError, ValueError) as error:
        if obstacle(error) is not None:
            raise
        yield str(error)
        return
    shown: float | str = "inf" if math.isinf(spent) else spent
    sent.budget = {"epsilon": budget.epsilon, "delta": budget.delta, "unit": budget.unit, "spent": shown}
    if left > spent + _ROUNDING:
        said = f"what left costs ε {epsilon_words(left)}, but {epsilon_words(spent)} was entered as spent"
        yield f"{said}: the spend ledger is not complete"
    if spent > budget.epsilon:
        of = f"a budget of {budget.epsilon:g} at δ {budget.delta:g} per {budget.unit}"
        yield f"ε {epsilon_words(spent)} was spent of {of}"
    bare = sorted({entry.file for entry in entries if entry.disclosures or entry.picked})
    if bare:
        yield f"there is a budget, but {bare[0]} left without noise, which costs ∞ ({len(bare)} in all)"


def _left(entries: list[Entry], inherited: Set[str]) -> list[list[PrivacyEvent]]:
    """Every event of its own that left, once, each a release."""
    events = (PrivacyEvent.from_json(event) for entry in entries for event in entry.privacy)
    return [[event] for event in distinct(event for event in events if event.id not in inherited)]


def epsilons(targets: Sequence[Path], delta: float) -> dict[str, dict[str, Any]]:
    """ε of each participant by unit, as `account` has it. An event that is not understood raises `InputError`."""
    found: dict[str, dict[str, Any]] = {}
    for row in account(targets, delta=delta)["clients"]:
        found.setdefault(row["client"], {})[row["unit"] or "any"] = row["epsilon"] | {"rest": row["rest"]}
    return found
