"""`audit --headers SCANS`: no text of a DICOM header is in any file of what is audited, private ones included.

Names, ids, dates, times, places, descriptions and the unique numbers of studies and devices are looked for in every
byte, in the ways they may be spelt. Measures and code words (a pixel's size, CHEST) say nobody's name and are not.
"""

from __future__ import annotations

from pathlib import Path

from artifacts import limits
from artifacts.errors import UsageError
from stages.audit.findings import AuditReport
from stages.audit.secrets import spellings
from stages.data.medical import header_texts, is_dicom

_LEAST = 5  # shorter ones are everywhere by chance


def check_headers(target: Path, scans: Path, result: AuditReport) -> None:
    """Add a failure for each file below `target` that holds a text of a header below `scans`."""
    known, result.headers = _known(scans), 0
    if not known:
        raise UsageError(f"--headers {scans}: no DICOM file in it with a text in its header.")
    result.headers = len(known)
    inner = scans.resolve()
    for path in sorted(target.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.resolve().is_relative_to(inner):
            continue
        try:
            data = limits.read_bytes(path, limits.FILE)
        except (OSError, ValueError) as error:
            result.add("unknown", "headers", path, f"it could not be read ({error})")
            continue
        fields = sorted({field for text, field in known.items() if any(way in data for way in _ways(text))})
        if fields:
            result.add("failure", "headers", path, f"it holds what a DICOM header says: {', '.join(fields)}")


def _known(scans: Path) -> dict[str, str]:
    """Every text of a header, with the name of its field."""
    found: dict[str, str] = {}
    for path in sorted(scans.rglob("*")):
        if not path.is_file():
            continue
        try:
            data = limits.read_bytes(path, limits.FILE)
            texts = header_texts(data) if is_dicom(data) else {}
        except (OSError, ValueError):
            continue  # what cannot be read was not ingested
        for field, text in texts.items():
            if len(text.strip()) >= _LEAST and len(set(text.strip())) > 2:  # 000000 is in every ledger
                found.setdefault(text.strip(), field)
    return found


def _ways(text: str) -> list[bytes]:
    return spellings(text.encode())
