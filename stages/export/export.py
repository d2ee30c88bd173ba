"""`export`: one document, written whole or not at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from artifacts.errors import IncompleteError, InputError, UsageError
from artifacts.publish import prepare
from artifacts.writing import atomic
from stages.account import check_delta
from stages.audit import audit
from stages.execution.progress import Report, Summary, silent
from stages.export.document import Asked, Document, Said, documents
from stages.export.facts import Facts
from stages.report.layout import laid_out


def export(
    path: Path,
    out: Path,
    *,
    format: str,
    said: Said,
    received: Sequence[Path] = (),
    trust: str | None = None,
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Write PATH as a document of this format. A folder is audited, and the document says what came of it."""
    document = documents()[format]
    _check_said(document, said)
    ending = _check_out(document, out)
    audited = None
    if path.is_dir():
        if "folder" not in document.subjects:
            raise InputError(f"{path} is a folder: --format {format} is about one file.")
        audited = audit(path, received=received, trust=trust, report=report)
        with laid_out(path, received) as run:
            facts = Facts(path, said, ending, received=received, run=run, audited=audited)
            files = document.make(facts)
    elif "file" not in document.subjects and path.exists():
        raise InputError(f"{path} is a file: --format {format} is about a folder that `fedsynth audit` audits.")
    else:
        if received or trust is not None:
            raise UsageError(f"--received and --trust are for the audit of a folder; {path} is a file.")
        files = document.make(Facts(path, said, ending))
    written = {out / name if name else out: data for name, data in files.items()}
    for target, data in written.items():
        if not force and target.exists() and (not target.is_file() or target.read_bytes() != data):
            raise atomic.exists_error(target)
    for target, data in written.items():
        atomic.write(target, [data], force=force)
    return {
        "out": str(out),
        "format": format,
        "custody": "public",
        "files": sorted(str(target) for target in written),
        "bytes": sum(map(len, written.values())),
        "passed": audited is None or audited.passed,
        "incomplete": audited is not None and isinstance(audited.error, IncompleteError),
        "verdict": facts.audit["verdict"] if audited is not None else None,
    }


def _check_said(document: Document, said: Said) -> None:
    check_delta(said.delta)
    given = [name for name in get_args(Asked) if getattr(said, name) is not None]
    for name in given:
        if name not in document.needs and name not in document.takes:
            owners = [one.name for one in documents().values() if name in one.needs or name in one.takes]
            raise UsageError(f"--{name} goes with --format {' or '.join(owners)}, not with {document.name}.")
    for name, reason in document.needs.items():
        if name not in given:
            raise UsageError(f"--format {document.name} needs --{name}: {reason}.")
    for field in dataclasses.fields(said):
        text = getattr(said, field.name)
        if isinstance(text, str) and (not text.strip() or not text.isprintable()):
            raise UsageError(f"--{field.name} is one line of text, found {text!r}.")


def _check_out(document: Document, out: Path) -> str:
    """The ending by which OUT is written."""
    prepare(out, "public")
    if not document.endings:
        prepare(out / "file", "public")
        if out.exists() and not out.is_dir():
            raise InputError(f"{out} is a file, and --format {document.name} writes a folder. Choose another --out.")
        return ""
    ending = next((ending for ending in document.endings if out.name.endswith(ending)), None)
    if ending is None:
        raise UsageError(f"{out}: --format {document.name} writes a file whose name ends in {_or(document.endings)}.")
    if out.is_dir():
        raise InputError(f"{out} is a folder, and --format {document.name} writes one file. Choose another --out.")
    return ending


def _or(words: Sequence[str]) -> str:
    return " or ".join(words)
