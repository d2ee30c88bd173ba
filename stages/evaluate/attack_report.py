"""Reports of `evaluate --attack suite` in a participant's `private/attacks/`: how far attacks on a file came."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from artifacts.formats.plain_data import read_json

FOLDER = "attacks"
REACHED = ("identified", "auc", "psnr")


def reached(private: Path, sha256: str) -> dict[str, float] | None:
    """The most that any attack on the file reached, over all reports; None where none is about this very file.

    A number that is missing, because no such attack fits the file, is 0; one that is none is ∞.
    """
    mine = [row for path in sorted((private / FOLDER).glob("*.json")) for row in _rows(path) if _about(row, sha256)]
    if not mine:
        return None
    return {name: max(_number(row.get(name, 0.0)) for row in mine) for name in REACHED}


def _rows(path: Path) -> list[Any]:
    try:
        report = read_json(path)
    except (OSError, ValueError):
        return []  # no report at all: the file waits
    rows = report.get("rows") if isinstance(report, Mapping) and report.get("attack") == "suite" else None
    return rows if isinstance(rows, list) else []


def _about(row: Any, sha256: str) -> bool:
    return isinstance(row, Mapping) and row.get("sha256") == sha256


def _number(value: Any) -> float:
    known = type(value) in (int, float) and not math.isnan(value)
    return float(value) if known else math.inf
