"""Every release with the rules in force, what was done to limit disclosure, and who decided; for several documents."""

from __future__ import annotations

import math
import os
from typing import Any

from artifacts.errors import FedsynthError
from artifacts.ledgers import gate
from artifacts.places import Place
from stages.charging.spending import BUDGET, read_budget
from stages.export.facts import Facts
from stages.policy import Policy, read_policy
from stages.report.sent_files import SentFile, cost

_EVENT = (
    "unit", "adjacency", "mechanism", "sampling", "sampling_rate", "noise_multiplier", "clip_norm", "steps", "trust",
    "shares",
)  # fmt: skip

_ELSEWHERE = "not known: its records are not here"


def rules(facts: Facts, who: str) -> dict[str, Any]:
    """The policy and the budget of a participant as they are now, with what could not be read said."""
    if who not in facts.recorded:
        return {"gate": _ELSEWHERE, "policy": _ELSEWHERE, "budget": _ELSEWHERE}
    place = facts.places[who]
    found: dict[str, Any] = {"gate": "none: what a stage sends leaves at once", "policy": None, "budget": None}
    if os.path.lexists(place.policy):
        found["gate"] = "everything waits until a rule or a person releases it"
        try:
            found["policy"] = _policy(read_policy(place.policy))
        except FedsynthError:
            found["policy"] = "not readable: nothing leaves until it is"
    try:
        budget = read_budget(place.key.with_name(BUDGET))
    except FedsynthError:
        found["budget"] = "not readable: nothing is spent until it is"
    else:
        if budget is not None:
            found["budget"] = {"unit": budget.unit, "epsilon": budget.epsilon, "delta": budget.delta}
    return found


def _policy(policy: Policy) -> dict[str, Any]:
    return {
        "delta": policy.delta,
        "rules": [
            {
                "rule": number,
                "kinds": sorted(rule.kinds),
                "max_bytes": rule.max_bytes,
                "disclosures": sorted(rule.disclosures),
                "epsilon": "inf" if rule.epsilon is not None and math.isinf(rule.epsilon) else rule.epsilon,
            }
            for number, rule in enumerate(policy.rules, start=1)
        ],
    }


def releases(facts: Facts) -> list[dict[str, Any]]:
    """One record a file that left, in the order of participants, rounds and names."""
    versions = {(who, path.name): dict(metadata.versions) for who, path, metadata in facts.metadata()}
    found = []
    for who, files in facts.sent.items():
        decided = _decisions(facts.places[who])
        for file in files:
            made = versions.get((who, file.file), {}) if not file.status else {}
            found.append(_release(file, _decision(decided, file), made, facts.said.delta))
    return found


def _decisions(place: Place) -> dict[tuple[str, str], dict[str, Any]] | None:
    """None where the log of the gate is not here, or cannot be read, of which the audit says why."""
    try:
        return gate.released(place) if place.private.is_dir() else None
    except FedsynthError:
        return None


def _decision(decided: dict[tuple[str, str], dict[str, Any]] | None, file: SentFile) -> dict[str, Any]:
    """By rules, by a person, or by the stage that made it, where no gate held it; None: not known here."""
    if decided is None:
        return {"result": "released", "by": None, "seen_private": None}
    entry = decided.get((file.file, file.sha256), {"by": "stage", "seen_private": None})
    return {"result": "released", "by": entry["by"], "seen_private": entry["seen_private"]}


def _release(file: SentFile, decision: dict[str, Any], versions: dict[str, str], delta: float | None) -> dict[str, Any]:
    return {
        "participant": file.who,
        "file": file.file,
        "sha256": file.sha256 or None,
        "bytes": file.size,
        "kind": file.kind,
        "round": file.round,
        "status": file.status or "in the outbox",
        "disclosures": list(file.disclosures),
        "perturbation": [{name: event.get(name) for name in _EVENT} for event in file.events],
        "epsilon_alone": {"∞": "inf", "–": None}.get(word := cost(file, delta), word),
        "chosen_by_someone_who_saw_private_data": file.picked,
        "decision": decision,
        "versions": versions,
    }
