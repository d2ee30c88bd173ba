"""What the audit found, without a path of this machine; under secret sampling, without who took part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from artifacts.errors import IncompleteError
from stages.audit import CHECKS, AuditReport
from stages.audit.findings import LEVELS, Level

_NAMED = 3  # places that are written out where one thing was found in many


def stated(audited: AuditReport, roots: Sequence[Path], *, secret: bool) -> dict[str, Any]:
    """`line` is the verdict; each finding occurs once, with the places where it was made."""
    unknown = isinstance(audited.error, IncompleteError)
    if secret:
        line = audited.verdict.partition(":")[0].partition(",")[0]
        return {
            "passed": audited.passed,
            "unknown": unknown,
            "line": line,
            "findings": [],
            "checks": [],
            "hidden": True,
        }
    places: dict[tuple[Level, str, str], list[str]] = {}
    for finding in audited.findings:
        what = relative(f"needs {finding.what}" if finding.level == "unchecked" else finding.what, roots)
        places.setdefault((finding.level, finding.check, what), []).append(relative(finding.where, roots))
    rows = []
    for (level, check, what), where in sorted(places.items(), key=lambda item: LEVELS.index(item[0][0])):
        more = len(where) - _NAMED
        shown = where[:_NAMED] + ([f"and {more} more"] if more > 0 else [])
        rows.append({"level": level, "check": check, "what": what, "where": shown})
    checks = [
        {
            "check": check, "what": CHECKS[check], "result": audited.result_of(check, found),
            "passed": found.total() == found["note"],
        }
        for check, found in audited.by_check()
    ]  # fmt: skip
    line = relative(audited.verdict, roots)
    return {
        "passed": audited.passed, "unknown": unknown, "line": line, "findings": rows, "checks": checks, "hidden": False
    }  # fmt: skip


def relative(text: str, roots: Sequence[Path]) -> str:
    """Paths as seen from the folder: where it is on this machine is nobody's business."""
    for root in roots:
        for name in dict.fromkeys((str(root.resolve()), str(root.absolute()), str(root))):
            if name == ".":
                continue
            text = "the folder" if text == name else text.replace(f"{name}/", "")
    return "the folder" if text == "." else text
