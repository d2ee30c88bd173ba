"""`--format ro-crate`: a Five Safes RO-Crate 0.4 in a BagIt folder, with sign-off and disclosure-check phases."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stages.export.document import Document
from stages.export.text import as_json

if TYPE_CHECKING:
    from stages.export.facts import Facts

SPECIFICATION, PROFILE = "https://w3id.org/ro/crate/1.2", "https://w3id.org/5s-crate/0.4"
_WORKFLOW = "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
_PHASES = "https://w3id.org/shp#"
_STATUS = "http://schema.org/{}ActionStatus"
_OUTCOMES = {"Completed": "approved", "Failed": "failed", "Potential": "pending"}
_STAGES, _RECORD, _METADATA = "stages.json", "record.json", "ro-crate-metadata.json"
_BAGIT = b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"
_DIGEST = "https://www.iana.org/assignments/named-information#sha-512"  # of the manifests of the bag
_ADDRESS = (
    "urn:fedsynth:stages"  # RO-Crate asks for one of all software; a name that is no page says no more than is so
)
_SOFTWARE, _POLICY, _RUN, _LANGUAGE = "#fedsynth", "#policy", "#run", "#stages"


def _make(facts: Facts) -> Mapping[str, bytes]:
    from stages.export.formats.satre import record

    found = record(facts)
    stages = as_json(_stages(facts))
    payload = {
        f"workflow/{_STAGES}": stages,
        f"workflow/{_METADATA}": as_json(_workflow_crate(facts)),
        _RECORD: as_json(found),
        _METADATA: as_json(_crate(facts, found)),
    }
    files = {f"data/{name}": data for name, data in sorted(payload.items())}
    identifier = uuid.uuid5(uuid.NAMESPACE_URL, hashlib.sha256(b"".join(files.values())).hexdigest())
    manifest = _manifest(files)
    tags = {
        "bag-info.txt": f"External-Identifier: urn:uuid:{identifier}\n".encode(),
        "bagit.txt": _BAGIT,
        "manifest-sha512.txt": manifest,
    }
    return files | tags | {"tagmanifest-sha512.txt": _manifest(tags)}


def _manifest(files: Mapping[str, bytes]) -> bytes:
    return "".join(f"{hashlib.sha512(data).hexdigest()}  {name}\n" for name, data in files.items()).encode()


def _stages(facts: Facts) -> dict[str, Any]:
    """Each way in which a file was made, once."""
    made = {}
    for _, _, metadata in facts.metadata():
        about = {"stage": metadata.stage, "method": metadata.method, "params": dict(metadata.params)}
        made[repr(sorted(about.items(), key=lambda item: item[0]))] = about
    return {"software": facts.versions, "stages": [made[key] for key in sorted(made)]}


def _workflow_crate(facts: Facts) -> dict[str, Any]:
    """The workflow that was run, as a Workflow RO-Crate of its own: the stages with their parameters."""
    workflow = {
        "@id": _STAGES,
        "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow"],
        "name": "Stages of fedsynth",
        "encodingFormat": "application/json",
        "programmingLanguage": _to(_LANGUAGE),
    }
    language = {
        "@id": _LANGUAGE,
        "@type": "ComputerLanguage",
        "name": "Stages of fedsynth with their parameters",
        "url": _ADDRESS,
    }
    root = _root(facts, "Stages that made the files", [_to(_STAGES)]) | {
        "conformsTo": _to(_WORKFLOW),
        "mainEntity": _to(_STAGES),
    }
    about = [{"@id": _WORKFLOW, "@type": "CreativeWork", "name": "Workflow RO-Crate", "version": "1.0"}]
    return _graph([root, workflow, language, *about, _license(facts)])


def _crate(facts: Facts, found: Mapping[str, Any]) -> dict[str, Any]:
    said = facts.said
    publisher, project, person = "#publisher", "#project", "#person"
    failed = facts.audited is not None and facts.audited.count("failure") > 0
    mine = _mine(facts, found)
    outputs = [] if failed else [_document("release", number, one) for number, one in enumerate(mine)]
    others = [one for one in found["releases"] if one not in mine]
    inputs = [_document("received", number, one) for number, one in enumerate(others)]
    actions = [_run(person, inputs, outputs, failed=failed), *_phases(facts, found, mine, publisher, failed=failed)]
    root = _root(facts, f"Release of {facts.name}", [_to("workflow/"), _to(_RECORD)]) | {
        "conformsTo": _to(PROFILE),
        "mainEntity": _to("workflow/"),
        "mentions": [_to(action["@id"]) for action in actions],
        "sourceOrganization": _to(project),
        "publisher": _to(publisher),
    }
    workflow = {
        "@id": "workflow/",
        "@type": "Dataset",
        "name": "Stages that made the files",
        "conformsTo": _to(_WORKFLOW),
    }
    record = {
        "@id": _RECORD,
        "@type": "File",
        "name": "Disclosure-control record",
        "description": "Rules, thresholds, noise, versions and decision for each release (SATRE 2.0, 3.3.09).",
        "encodingFormat": "application/json",
    }
    people: list[dict[str, Any]] = [
        {"@id": publisher, "@type": "Organization", "name": said.publisher},
        {"@id": project, "@type": "Project", "name": said.project, "member": [_to(publisher)]},
        {
            "@id": person,
            "@type": "Person",
            "name": said.person,
            "affiliation": _to(publisher),
            "memberOf": [_to(project)],
        },
    ]
    things: list[dict[str, Any]] = [
        {"@id": PROFILE, "@type": "Profile", "name": "Five Safes RO-Crate profile"},
        {"@id": _WORKFLOW, "@type": "CreativeWork", "name": "Workflow RO-Crate", "version": "1.0"},
        {"@id": _SOFTWARE, "@type": "SoftwareApplication", "name": "fedsynth", "url": _ADDRESS,
         "provider": _to(publisher), "version": ", ".join(facts.versions.get("fedsynth", []))},
        {"@id": _DIGEST, "@type": "DefinedTerm", "name": "sha-512 algorithm"},
        {"@id": _POLICY, "@type": "CreativeWork", "name": "Policies of the participants, in record.json"},
        _license(facts),
    ]  # fmt: skip
    return _graph([root, workflow, record, *actions, *inputs, *outputs, *people, *things])


def _mine(facts: Facts, found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What the crate releases. At a home that is the owner's: what others sent to it went into the run."""
    return [one for one in found["releases"] if not facts.recorded or one["participant"] in facts.recorded]


def _run(
    person: str, inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]], *, failed: bool
) -> dict[str, Any]:
    """What failed the disclosure check is not listed, as the profile asks."""
    about = {
        "@id": _RUN,
        "@type": "CreateAction",
        "name": "Files that left the participants",
        "agent": _to(person),
        "instrument": _to("workflow/"),
        "actionStatus": _STATUS.format("Failed" if failed else "Completed"),
    }
    ends = {"object": [_to(one["@id"]) for one in inputs], "result": [_to(one["@id"]) for one in outputs]}
    return about | {name: linked for name, linked in ends.items() if linked}


def _document(what: str, number: int, release: Mapping[str, Any]) -> dict[str, Any]:
    stated = ", ".join(release["disclosures"]) or "nothing"
    about = {
        "@id": f"#{what}-{number}",
        "@type": "DigitalDocument",
        "name": f"{release['participant']}: {release['file']}",
        "description": f"A {release['kind']} of {release['bytes']} bytes; discloses without noise: {stated}.",
    }
    return about | ({"identifier": f"urn:sha256:{release['sha256']}"} if release["sha256"] else {})


def _phases(
    facts: Facts, found: Mapping[str, Any], mine: Sequence[Mapping[str, Any]], publisher: str, *, failed: bool
) -> list[dict[str, Any]]:
    policies = [about["policy"] for who, about in found["participants"].items() if who in facts.recorded]
    agreed = bool(policies) and all(isinstance(policy, dict) for policy in policies)
    decided = [release["decision"]["by"] for release in mine]
    passed = facts.audited is not None and facts.audited.passed
    checked = passed and bool(decided) and all(by in ("rules", "person") for by in decided)
    by_person = "person" in decided
    check = "Completed" if passed else "Failed" if failed else "Potential"
    sign_off = "Completed" if agreed else "Potential"
    disclosure = "Failed" if failed else "Completed" if checked else "Potential"
    checker = publisher if by_person else _SOFTWARE
    also, policy = [_to("workflow/"), _to("#project")], {"instrument": _to(_POLICY)}
    return [
        _assess("check", "CheckValue", "Digests of all files against the ledgers", check, _SOFTWARE)
        | {"instrument": _to(_DIGEST)},
        _assess("signoff", "SignOff", "Sign-off by the participants' policies", sign_off, publisher, also) | policy,
        _assess("disclosure", "DisclosureCheck", "Disclosure check of what left", disclosure, checker) | policy,
    ]


def _assess(
    name: str, phase: str, words: str, status: str, agent: str, also: Sequence[Mapping[str, str]] = ()
) -> dict[str, Any]:
    return {
        "@id": f"#{name}",
        "@type": "AssessAction",
        "additionalType": _to(f"{_PHASES}{phase}"),
        "name": f"{words}: {_OUTCOMES[status]}",
        "object": [_to("./"), *also],
        "agent": _to(agent),
        "actionStatus": _STATUS.format(status),
    }


def _root(facts: Facts, name: str, parts: list[dict[str, str]]) -> dict[str, Any]:
    return {
        "@id": "./",
        "@type": "Dataset",
        "name": name,
        "description": "Written by fedsynth from ledgers, gate, policies and metadata; no private data is in it.",
        "datePublished": facts.said.date,
        "license": _to(str(facts.said.license)),
        "hasPart": parts,
    }


def _license(facts: Facts) -> dict[str, Any]:
    return {"@id": facts.said.license, "@type": "CreativeWork", "name": "Licence", "description": "As linked."}


def _graph(entities: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    descriptor = {
        "@id": _METADATA,
        "@type": "CreativeWork",
        "about": _to("./"),
        "conformsTo": _to(SPECIFICATION),
    }
    return {"@context": f"{SPECIFICATION}/context", "@graph": [descriptor, *entities]}


def _to(identifier: str) -> dict[str, str]:
    return {"@id": identifier}


DOCUMENT = Document(
    name="ro-crate",
    place=5,
    text="Five Safes RO-Crate 0.4 with sign-off and disclosure check; a BagIt folder",
    make=_make,
    subjects=("folder",),
    needs={
        "license": "a crate states its conditions of access",
        "date": "a published crate has one, and no file of ours has a time",
        "publisher": "which environment publishes it",
        "project": "the crate names the responsible project",
        "person": "the crate names who asked for the run",
    },
    takes=("delta",),
)
