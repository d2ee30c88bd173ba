"""What the audit found, told without a path of this machine; under secret sampling, without who took part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stages.audit import CHECKS, AuditReport
from stages.words import counted

_NAMED = 3  # places that are written out where one thing was found in many


def told(audited: AuditReport, root: Path, *, secret: bool) -> dict[str, Any]:
    """`line` is the verdict; each finding stands once, with the places where it was made."""
    if secret:
        line = "PASS" if audited.passed else "FAIL"
        return {"passed": audited.passed, "line": line, "findings": [], "checks": [], "hidden": True}
    places: dict[tuple[str, str, str], list[str]] = {}
    for finding in audited.findings:
        what = _relative(finding.what, root)
        places.setdefault((finding.level, finding.check, what), []).append(_relative(finding.where, root))
    rows = []
    for (level, check, what), where in sorted(places.items(), key=lambda item: item[0][0] != "failure"):
        more = len(where) - _NAMED
        shown = where[:_NAMED] + ([f"and {more} more"] if more > 0 else [])
        rows.append({"level": level, "check": check, "what": what, "where": shown})
    checks = [
        {"check": check, "what": CHECKS[check], "result": _result(failures, notes), "passed": not failures}
        for check, failures, notes in audited.by_check()
    ]
    line = _relative(audited.verdict, root)
    return {"passed": audited.passed, "line": line, "findings": rows, "checks": checks, "hidden": False}


def _result(failures: int, notes: int) -> str:
    if failures:
        return counted(failures, "failure")
    return counted(notes, "note") if notes else "nothing found"


def _relative(text: str, root: Path) -> str:
    """Paths as seen from the run folder: where it stands on this machine is nobody's business."""
    for name in dict.fromkeys((str(root.resolve()), str(root.absolute()), str(root))):
        if name == ".":
            continue
        text = "the run" if text == name else text.replace(f"{name}/", "")
    return "the run" if text == "." else text
