"""`--format dp-card`: what is guaranteed, to whom, under which trust, and what is not; after NIST SP 800-226."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from stages.export.document import Document
from stages.export.text import as_json, as_markdown, plain, table
from stages.words import counted, epsilon_words, human_bytes

if TYPE_CHECKING:
    from stages.export.facts import Facts

UNITS = {
    "record": "one record of one client. A person with several records, or in several clients' data, has more at stake",
    "person": "all records of one person at one client. A person who is known to several clients has more at stake",
    "client": "everything that one client has",
}
ADJACENCY = {
    "add-or-remove": "two datasets are neighbours if one has one unit more",
    "replace-one": "two datasets are neighbours if one unit is another",
}
TRUST = {
    "nobody": "each file carries all of its noise before it leaves",
    "server": "it sees what has no noise yet, or who took part, and keeps that to itself",
    "aggregate": "only the sum of the clients' files is ever seen, each of which carries a share of the noise",
}
_TO_WRITE = {
    "purpose": "What the release is for, and whom it serves.",
    "data": "Whose data it is, how it was collected, and who has access to it.",
    "parameters": "Why this ε, this δ and this unit were chosen, and by whom.",
    "utility": "How accurate the result is, and for which groups of people it is worse.",
    "contact": "Who answers questions.",
}
_IMPLEMENTATION = {
    "mechanism": "Contributions are clipped, summed in 64-bit floating point, and Gaussian noise is added.",
    "randomness": "Noise, sampling and all randomness of single records come from ChaCha20 under a secret key of "
    "the client's; the guarantee is computational, and anyone with the key can remove the "
    "noise.",
    "floating point": "Noised values are rounded to a public grid, so that their low bits tell nothing.",
    "side channels": "How long a computation takes is outside the guarantee.",
    "accounting": "dp-accounting: privacy loss distributions, and Rényi beside them; all releases of a client compose.",
    "budget": "The cost of a release is reserved in the client's spend ledger before its data is read.",
}


def _make(facts: Facts) -> Mapping[str, bytes]:
    card = _card(facts)
    return {"": as_json(card) if facts.ending == ".json" else as_markdown(_markdown(card))}


def _card(facts: Facts) -> dict[str, Any]:
    files, mechanisms = facts.files, facts.mechanisms
    units = sorted({str(mechanism["unit"]) for mechanism in mechanisms})
    trusted = sorted({str(mechanism["trust"]) for mechanism in mechanisms})
    guarantees = list(_guarantees(facts))
    return {
        "schema": "fedsynth.dp-card/1",
        "follows": ["NIST SP 800-226", "Differential Privacy Deployments Registry"],
        "about": {
            "name": facts.name,
            "participants": None if facts.secret else len(facts.sent),
            "files": len(files),
            "bytes": sum(file.size for file in files),
            "kinds": sorted({file.kind for file in files}),
            "simulation": facts.simulation,
        },
        "left_out": ["who took part and what each sent: the ε holds only while that is secret"] if facts.secret else [],
        "unit": {unit: UNITS[unit] for unit in units},
        "adjacency": {m["adjacency"]: ADJACENCY[m["adjacency"]] for m in mechanisms},
        "delta": facts.said.delta,
        "guarantees": guarantees,
        "trust": {name: TRUST[name] for name in trusted},
        "mechanisms": mechanisms,
        "composition": {
            "method": "Sequential over every release in the ledgers, whether its file is still there or not; a noised "
            "result that is in several files counts once.",
            "releases": sum(int(mechanism["releases"]) for mechanism in mechanisms),
        },
        "without_noise": {
            "disclosures": facts.disclosed,
            "chosen_by_someone_who_saw_private_data": sum(file.picked for file in files),
        },
        "implementation": {"software": facts.versions, **_IMPLEMENTATION, "audit": facts.audit},
        "empirical_bound": {
            "epsilon": None,
            "why": "Figures of attacks are measured on private data and stay there: fedsynth evaluate --attack.",
        },
        "registry": _registry(guarantees, mechanisms, trusted),
        "to_be_written": _TO_WRITE,
    }


def _guarantees(facts: Facts) -> Iterator[dict[str, Any]]:
    """Over everybody for each unit, then each participant; ε as `account` has it, «inf» where there is none."""
    for total in facts.cost["across_clients"]:
        holds = {
            "if_disjoint": "if no person is in two clients' data",
            "if_one_is_in_all": "if a person may be in every client's data",
            "trusting_the_server": "to all but the server, if no person is in two clients' data",
        }
        why = facts.relative(total["why"]) if total.get("why") else None
        for name, words in holds.items():
            if total.get(name) is not None:
                about = {"who": "all", "unit": total["unit"], "holds": words, "epsilon": total[name]}
                yield about | {"why_infinite": why if name != "trusting_the_server" else None}
    for row in facts.cost["clients"]:
        first = next(iter(row["uncovered"]), None)
        why = facts.relative(f"{first['file']}: {first['why']}") if first is not None else None
        found = {
            "epsilon": "for what it sent",
            "rest": "for the part of it that carries noise: no bound on all of it",
            "alone": "to someone who sees its files one by one",
        }
        for name, words in found.items():
            if row[name] is not None:
                about = {"who": row["client"], "unit": row["unit"], "holds": words, "epsilon": row[name]}
                yield about | {"why_infinite": why if name == "epsilon" else None}


def _registry(guarantees: list[dict[str, Any]], mechanisms: list[dict[str, Any]], trusted: list[str]) -> dict[str, Any]:
    """What the Differential Privacy Deployments Registry asks, as far as the files say it."""
    models = {"nobody": "local to each client", "server": "central", "aggregate": "distributed"}
    return {
        "dp_flavor": "approximate (ε, δ)" if mechanisms else None,
        "model": [models[name] for name in trusted],
        "privacy_unit": sorted({str(m["unit"]) for m in mechanisms}),
        "bounds_on_contribution": sorted({float(m["clip_norm"]) for m in mechanisms}),
        "epsilon": [g["epsilon"] for g in guarantees if g["who"] == "all"],
        "mechanisms": sorted({str(m["mechanism"]) for m in mechanisms}),
        "accounting": ["privacy loss distributions", "Rényi"] if mechanisms else [],
        "implementation": "fedsynth",
    }


def _markdown(card: Mapping[str, Any]) -> Iterator[str]:
    about = card["about"]
    yield f"# Privacy card: {plain(about['name'])}"
    yield ""
    yield "After NIST SP 800-226. Made by `fedsynth export` from ledgers and metadata alone."
    if about["simulation"]:
        yield "The files are of a **simulation**: keys were derived from a seed, and protect nobody."
    yield ""
    yield f"{counted(about['files'], 'file')}, {human_bytes(about['bytes'])}: {plain(', '.join(about['kinds']))}."
    yield from (f"Left out: {words}." for words in card["left_out"])
    yield from ("", "## Guarantee", "")
    if not card["guarantees"]:
        yield from ("Nothing here is charged to a client: it is public, or made from no private data.", "")
    elif not card["mechanisms"]:
        yield "Nothing that left carries noise: **ε is ∞**, there is no limit on what it discloses about a person."
        yield ""
    rows = [[g["who"], g["unit"] or "–", g["holds"], _epsilon(g["epsilon"], "pld"), _epsilon(g["epsilon"], "rdp"),
             g["why_infinite"] or ""] for g in card["guarantees"]]  # fmt: skip
    yield from table(["who", "unit", "holds", "ε (PLD)", "ε (Rényi)", "why ∞"], rows)
    yield from ("", f"δ = {card['delta']:g}.", "")
    for title, name in (("Unit", "unit"), ("Adjacency", "adjacency"), ("Trusted", "trust")):
        yield from (f"- **{title}: {key}.** {_sentence(words)}" for key, words in card[name].items())
    yield from ("", "## Mechanisms and composition", "")
    columns = ["unit", "mechanism", "sampling_rate", "noise_multiplier", "clip_norm", "steps", "shares", "releases"]
    if card["mechanisms"]:
        yield from table(columns, [[mechanism[name] for name in columns] for mechanism in card["mechanisms"]])
        yield ""
    yield card["composition"]["method"]
    yield from ("", "## What left without noise", "")
    stated = card["without_noise"]
    yield from (f"- **{d['name']}** ({counted(d['files'], 'file')}): {d['sentence']}" for d in stated["disclosures"])
    if picked := stated["chosen_by_someone_who_saw_private_data"]:
        yield f"- {counted(picked, 'file')} chosen by someone who had seen private data."
    if not stated["disclosures"] and not picked:
        yield "Nothing."
    yield from ("", "## Implementation evidence", "")
    made = card["implementation"]
    yield from (f"- {name}: {made[name]}" for name in _IMPLEMENTATION)
    versions = ", ".join(f"{name} {' and '.join(found)}" for name, found in made["software"].items())
    yield f"- software: {plain(versions)}"
    yield f"- audit: {plain(made['audit']['verdict'])}"
    if made["audit"]["checks"]:
        yield ""
        rows = [[check["check"], check["result"], check["what"]] for check in made["audit"]["checks"]]
        yield from table(["check", "result", "what it makes sure of"], rows)
    yield from ("", "## Empirical bound", "", f"None. {card['empirical_bound']['why']}", "")
    yield from ("## To be written by a person", "")
    yield from (f"- **{name}**: [to be written] {words}" for name, words in card["to_be_written"].items())


def _epsilon(value: Mapping[str, float | str], by: str) -> str:
    return epsilon_words(float(value[by]))


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


DOCUMENT = Document(
    name="dp-card",
    place=1,
    text="what is guaranteed to whom, after NIST SP 800-226; .json or .md",
    make=_make,
    subjects=("folder", "file"),
    endings=(".json", ".md"),
    needs={"delta": "the probability left to chance has no default"},
)
