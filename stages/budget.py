"""`budget show`: what a participant's private data has cost until now, and what its budget has left.

It reads the spend ledger beside the data or the key. Its entries are what was charged: also of files that were thrown
away, and of computations that broke off.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from artifacts.errors import InputError, UsageError
from artifacts.formats import any_file
from artifacts.ledgers import spend
from artifacts.ledgers.gate import destination
from artifacts.places import PRIVATE
from stages.charging.spending import BUDGET, home_of, key_of, read_budget, spent_of
from stages.execution.progress import Summary
from stages.privacy.budget import Budget
from stages.privacy.events import PrivacyEvent
from stages.words import epsilon_words


def show(place: Path, *, delta: float | None = None) -> Summary:
    """Every charge of the ledger with its price, all of them together, and what is left of the budget.

    `place` is a participant's folder, its `private/`, or a file in that. Without a budget `delta` says at which δ.
    """
    home = _home(place)
    ledger, budget = spend.beside(home / "any"), read_budget(home / BUDGET)
    if budget is None and delta is None:
        raise UsageError(f"{home} has no {BUDGET}: an ε is stated at a δ, so give --delta.")
    if budget is not None and delta not in (None, budget.delta):
        raise UsageError(f"the budget in {home} is at δ {budget.delta:g}: leave out --delta {delta:g}.")
    at = budget.delta if budget is not None else float(delta or 0)
    entries = spend.read_reserved(ledger)
    events = spent_of([entry["events"] for entry in entries], ledger)
    charges = [
        {
            "stage": str(entry["stage"]),
            "unit": ", ".join(sorted({event.unit for event in release})),
            "mechanism": ", ".join(worded(event) for event in release),
            "epsilon": epsilon_words(_alone(release, at)),
        }
        for entry, release in zip(entries, events, strict=True)
        if release
    ]
    return {"ledger": str(ledger), "charges": charges, "delta": at, **_together(events, budget, at)}


def after(out: Path, key: Path | None, data: Sequence[Path], delta: float | None) -> Summary:
    """What a DP stage that wrote `out` cost, beside all that was charged before; nothing where no δ is known."""
    home = home_of(key_of(out, key), data)
    budget = read_budget(home.with_name(BUDGET))
    at = budget.delta if budget is not None else delta
    if at is None:
        return {"epsilon": "no δ was given: fedsynth budget show --delta …"}
    ledger = spend.beside(home)
    events = spent_of([entry["events"] for entry in spend.read_reserved(ledger)], ledger)
    mine = [PrivacyEvent.from_json(event) for event in any_file.scan(destination(out)).metadata.privacy]
    return {"epsilon": epsilon_words(_alone(mine, at)), "delta": at, **_together(events, budget, at)}


def worded(event: PrivacyEvent) -> str:
    """σ, q and the number of steps: what decides about the price."""
    return f"σ {event.noise_multiplier:g}, q {event.sampling_rate:g}, {event.steps:,} steps"


def _together(releases: list[list[PrivacyEvent]], budget: Budget | None, delta: float) -> Summary:
    if budget is None:
        events = [event for release in releases for event in release]
        by_unit = {unit: [e for e in events if e.unit == unit] for unit in sorted({e.unit for e in events})}
        alone = [f"{epsilon_words(_alone(some, delta))} per {unit}" for unit, some in by_unit.items()]
        return {"epsilon_in_all": ", ".join(alone) or "0", "budget": "none"}
    spent = budget.spent(releases)
    left = math.floor(1000 * max(0.0, budget.epsilon - spent)) / 1000  # never more than there is
    return {
        "epsilon_in_all": f"{epsilon_words(spent)} per {budget.unit}",
        "budget": f"{budget.epsilon:g} per {budget.unit}",
        "budget_left": f"{left:.3f}",
    }


def _alone(release: Sequence[PrivacyEvent], delta: float) -> float:
    """ε of one charge by itself; of two units in one charge the larger."""
    from stages.privacy.accountant import epsilon

    numbered = [dataclasses.replace(event, id=f"{n:064x}") for n, event in enumerate(release)]
    units = {event.unit for event in numbered}
    return max((epsilon([e for e in numbered if e.unit == u], delta=delta).pld for u in units), default=0.0)


def _home(place: Path) -> Path:
    """The folder with the ledger."""
    if not place.exists():
        raise InputError(f"{place}: no such file or folder. Check the path.")
    folders = [place / PRIVATE, place] if place.is_dir() else [place.parent]
    name = spend.beside(Path("any")).name
    for folder in folders:
        if (folder / name).exists():
            return folder
    raise InputError(
        f"no spend ledger in {folders[0]}: nothing was charged there, or it is another folder. Give the folder of a "
        "client or of the server, or the data itself."
    )
