"""`--format satre`: the record of disclosure control that SATRE 2.0 asks for, for each release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.export.document import Document
from stages.export.text import as_json

if TYPE_CHECKING:
    from stages.export.facts import Facts

# Statement of SATRE 2.0.1, and which part of the record answers it.
STATEMENTS = {
    "3.1.16": "What may be exported of a model, and under which conditions: `participants`, policy and budget.",
    "3.3.07": "Outputs that cannot be checked by hand, model weights among them: `perturbation`, `disclosures` and "
    "`epsilon_alone` of each release, and the checks of the audit.",
    "3.3.09": "The record itself: criteria, thresholds, rules and versions, bound to each output by its SHA-256.",
    "5.6.01": "Rules for what moves between members: one policy format for clients and server, and what each decided.",
}


def record(facts: Facts) -> dict[str, Any]:
    """The whole record; a Five Safes RO-Crate has it inside."""
    from stages.export.releases import releases, rules

    return {
        "schema": "fedsynth.satre/1",
        "specification": "SATRE 2.0.1",
        "statements": STATEMENTS,
        "about": {"name": facts.name, "simulation": facts.simulation, "software": facts.versions},
        "left_out": ["who took part and what each sent: the ε holds only while that is secret"] if facts.secret else [],
        "delta": facts.said.delta,
        # As they are now: the log of the gate has who decided, not the policy of that day.
        "participants": {who: rules(facts, who) for who in facts.places},
        "releases": releases(facts),
        "audit": facts.audit,
    }


def _make(facts: Facts) -> Mapping[str, bytes]:
    return {"": as_json(record(facts))}


DOCUMENT = Document(
    name="satre",
    place=2,
    text="rules, thresholds, versions and decision for each release, as SATRE 2.0 asks; .json",
    make=_make,
    subjects=("folder",),
    endings=(".json",),
    takes=("delta",),
)
