"""What is written after an audit ends as the audit did: exit code 5 if it failed, 6 if something was not checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def end_as_audited(summary: Mapping[str, Any], target: Path, written: str) -> None:
    """Raises what the audit found, after all was printed. `written` is what there is in either case."""
    from artifacts.errors import IncompleteError, VerificationError

    if summary["passed"]:
        return
    kind, word = (IncompleteError, "is incomplete") if summary["incomplete"] else (VerificationError, "failed")
    error = kind(f"{written} is written, and the audit of {target} {word}: {summary['verdict']}")
    error.is_reported = True
    raise error
