"""`--format dpia`: a draft of a data-protection impact assessment, marked where a person must write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from stages.export.document import Document
from stages.export.text import as_markdown, plain, table
from stages.words import counted, epsilon_words, human_bytes

if TYPE_CHECKING:
    from stages.export.facts import Facts

_WRITE = "**[to be written by a person]**"


def _make(facts: Facts) -> Mapping[str, bytes]:
    text = as_markdown(_lines(facts))
    if facts.ending == ".md":
        return {"": text}
    from stages.export.pdf import as_pdf

    return {"": as_pdf(text, title=f"Data-protection impact assessment: {facts.name}")}


def _lines(facts: Facts) -> Iterator[str]:
    from stages.export.releases import rules

    yield from (f"# Data-protection impact assessment: {plain(facts.name)}", "")
    yield from ("A draft, after Article 35(7) of the GDPR. What files show is filled in; all else is marked.", "")
    yield from ("## 1. The processing and its purposes", "")
    yield from (f"- Purpose and legal basis: {_WRITE}", f"- Controllers, processors, recipients: {_WRITE}")
    yield f"- Whose data, which categories, from where, how long it is kept: {_WRITE}"
    yield "- Nature: federated learning over files. Records stay with each client; what is computed from them leaves."
    yield from _what_left(facts)
    yield from ("", "## 2. Necessity and proportionality", "")
    yield from (f"- Why the purpose needs this processing: {_WRITE}", f"- Why less would not do: {_WRITE}")
    yield from ("", "## 3. Risks to people", "")
    yield from _risks(facts)
    yield f"- Likelihood and severity, for which groups of people: {_WRITE}"
    yield from ("", "## 4. Measures", "")
    for who in facts.places:
        found = rules(facts, who)
        policy, budget = _policy(found["policy"]), _budget(found["budget"])
        yield f"- {plain(who)}: gate: {found['gate']}. Policy: {policy}. Budget: {budget}."
    audit = facts.audit
    yield f"- Records: {plain(audit['verdict'])}."
    if audit["records"] is not None:
        said = audit["records"]
        yield " ".join(("", said["sentence"], *filter(None, [said["open"]]), said["decide"]))
    yield f"- Access control, encryption at rest, training of staff: {_WRITE}"
    yield from ("", "## 5. Consultation and decision", "")
    yield from (f"- Advice of the data-protection officer: {_WRITE}", f"- Views of the people concerned: {_WRITE}")
    yield from (f"- Decision, name, date: {_WRITE}", f"- When this is looked at again: {_WRITE}")


def _what_left(facts: Facts) -> Iterator[str]:
    if facts.secret:
        yield "- Who took part and what each sent is left out: the ε holds only while that is secret."
    if facts.simulation:
        yield "- The files are of a simulation: keys were derived from a seed."
    yield from ("", "What left:", "")
    rows = []
    for who, files in facts.sent.items():
        kinds = ", ".join(sorted({file.kind for file in files}))
        rows.append([who, counted(len(files), "file"), human_bytes(sum(file.size for file in files)), kinds])
    yield from table(["who", "files", "size", "kinds"], rows)


def _risks(facts: Facts) -> Iterator[str]:
    for row in facts.disclosed:
        yield f"- Without noise, in {counted(row['files'], 'file')}: {row['sentence']}"
    picked = sum(file.picked for file in facts.files)
    if picked:
        yield f"- {counted(picked, 'file')} chosen by someone who had seen private data, which no ε covers."
    for total in facts.cost["across_clients"]:
        holds = {"if_disjoint": "if nobody is in two clients' data", "trusting_the_server": "to all but the server"}
        for name, words in holds.items():
            if total.get(name) is not None:
                value = epsilon_words(float(total[name]["pld"]))
                yield f"- ε = {value} for one {total['unit']} at δ = {facts.said.delta:g}, {words}."
    if not facts.cost["across_clients"]:
        yield "- Nothing that left carries noise: ε is ∞, there is no limit on what it discloses about a person."
    yield "- A person with several records, or in several clients' data, has more at stake than ε says."


def _policy(policy: Any) -> str:
    if not isinstance(policy, Mapping):
        return str(policy) if policy else "none"
    kinds = sorted({kind for rule in policy["rules"] for kind in rule["kinds"]})
    return f"{counted(len(policy['rules']), 'rule')} for {', '.join(kinds)}"


def _budget(budget: Any) -> str:
    if not isinstance(budget, Mapping):
        return str(budget) if budget else "none"
    return f"ε {budget['epsilon']:g} at δ {budget['delta']:g} per {budget['unit']}"


DOCUMENT = Document(
    name="dpia",
    place=8,
    text="draft of a data-protection impact assessment; .md or .pdf",
    make=_make,
    subjects=("folder",),
    endings=(".md", ".pdf"),
    needs={"delta": "the risk to a person is stated as an ε"},
)
