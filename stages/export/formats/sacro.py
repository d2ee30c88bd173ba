"""`--format sacro`: what left as ACRO's results.json (pass, fail, review), and a target.yaml for SACRO-ML's attacks.

No pickle. Probabilities of the model on private records are private: the environment that holds the records adds them
to the folder as CSV, and target.yaml has the places for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.export.document import Document
from stages.export.text import as_json

if TYPE_CHECKING:
    from stages.export.facts import Facts

ACRO = "1.0.2"  # whose viewer reads only files that say its own version
ARRAYS = (
    "X_train", "y_train", "X_test", "y_test", "X_train_orig", "y_train_orig", "X_test_orig", "y_test_orig",
    "proba_train", "proba_test", "indices_train", "indices_test",
)  # fmt: skip


def _make(facts: Facts) -> Mapping[str, bytes]:
    import yaml

    from stages.export.releases import releases

    found = releases(facts)
    results = {str(number): _result(number, release, facts) for number, release in enumerate(found)}
    tool = {"name": "fedsynth", "version": ", ".join(facts.versions.get("fedsynth", []))}
    target = yaml.safe_dump(_target(facts), sort_keys=False, allow_unicode=True).encode()
    return {"results.json": as_json({"version": ACRO, "tool": tool, "results": results}), "target.yaml": target}


def _target(facts: Facts) -> dict[str, Any]:
    """What SACRO-ML loads; under `safemodel` what the files guarantee."""
    guarantees = [
        {"unit": total["unit"], "delta": facts.said.delta, "epsilon": _epsilons(total)}
        for total in facts.cost["across_clients"]
    ]
    return {
        "dataset_name": facts.name,
        "dataset_module_path": "",
        "features": {},
        "generalisation_gap": None,
        "safemodel": [{"tool": "fedsynth", "differential_privacy": guarantees, "audit": facts.audit["verdict"]}],
        **{f"{name}_path": "" for name in ARRAYS},
    }


def _epsilons(total: Mapping[str, Any]) -> dict[str, Any]:
    names = ("if_disjoint", "if_one_is_in_all", "trusting_the_server")
    return {name: total[name]["pld"] for name in names if total.get(name) is not None}


def _result(number: int, release: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    status, why = _status(release, facts)
    return {
        "uid": str(number),
        "status": status,
        "type": "custom",
        "properties": {name: release[name] for name in ("participant", "kind", "round", "bytes", "sha256")},
        "files": [{"name": release["file"], "sdc": {"disclosures": release["disclosures"]}}],
        "outcome": {},
        "command": "fedsynth export",
        "summary": f"{status}: {why}",
        "timestamp": "",
        "comments": [],
        "exception": "",
        "fair": {"perturbation": release["perturbation"], "decision": release["decision"]},
    }


def _status(release: Mapping[str, Any], facts: Facts) -> tuple[str, str]:
    """fail: the audit found a failure in it; review: something in it has no ε; pass: all of it has, or needs none."""
    findings = facts.audited.findings if facts.audited is not None else []
    owner = f"/{release['participant']}/" if len(facts.sent) > 1 else "/"
    for finding in findings:
        where = f"/{finding.where}"
        if finding.level == "failure" and owner in where and where.endswith(f"/{release['file']}"):
            return "fail", f"{finding.check}: {facts.relative(finding.what)}"
    if release["chosen_by_someone_who_saw_private_data"]:
        return "review", "someone who had seen private data chose that it leaves"
    if release["disclosures"]:
        return "review", f"discloses {', '.join(release['disclosures'])} without noise"
    if release["epsilon_alone"] == "inf":
        return "review", "no noise is named"
    if release["epsilon_alone"] is None:
        return "review", "made from what clients sent: see theirs"
    return "pass", f"ε of this file alone: {release['epsilon_alone']}"


DOCUMENT = Document(
    name="sacro",
    place=6,
    text="ACRO's results.json and SACRO-ML's target.yaml; a folder",
    make=_make,
    subjects=("folder",),
    needs={"delta": "pass or review follows from an ε"},
)
