"""How two files differ: what they say of themselves, field by field, and what they hold."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.formats import dataset_file
from stages.execution.progress import Summary
from stages.inspect.describe import inspect
from stages.inspect.numbers import RawTensor, pieces, read_table

_WORDS = {"file", "about", "note", "privacy_in_words", "tensors", "columns", "class_counts", "epsilon"}
_ABSENT = "–"


def difference(one: Path, other: Path) -> Summary:
    """Describe both, and what is not the same."""
    first, second = inspect(one), inspect(other)
    fields = [
        {"field": name, "first": mine, "second": theirs}
        for name, mine, theirs in _fields(_flat(first), _flat(second))
        if mine != theirs
    ]
    result: Summary = {
        "files": [str(one), str(other)],
        "identical": first["sha256"] == second["sha256"],
        "fields": fields,
    }
    if "tensors" in first and "tensors" in second:
        result["tensors"] = _tensors(one, other)
    elif first.get("kind") == second.get("kind") == "dataset":
        result["rows"] = _rows(one, other)
    return result


def _flat(about: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields by a name with dots; lists whole."""
    found: dict[str, Any] = {}
    for name, value in about.items():
        if prefix or name not in _WORDS:
            found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def _fields(first: dict[str, Any], second: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    return [(n, first.get(n, _ABSENT), second.get(n, _ABSENT)) for n in dict.fromkeys([*first, *second])]


def _tensors(one: Path, other: Path) -> list[dict[str, Any]]:
    mine, theirs = ({t.name: t for t in read_table(path)[1]} for path in (one, other))
    rows = []
    for name in sorted(mine.keys() | theirs.keys()):
        a, b = mine.get(name), theirs.get(name)
        row: dict[str, Any] = {"name": name, "first": _shape(a), "second": _shape(b)}
        if a is not None and b is not None and (a.shape, a.dtype) == (b.shape, b.dtype):
            row |= _apart(one, a, other, b)
        rows.append(row)
    return rows


def _shape(tensor: RawTensor | None) -> str | None:
    return None if tensor is None else f"{tensor.dtype} {'×'.join(map(str, tensor.shape)) or 'scalar'}"


def _apart(one: Path, mine: RawTensor, other: Path, theirs: RawTensor) -> dict[str, Any]:
    """The largest difference of two numbers, and the cosine of the two as vectors."""
    largest, dot, squares, same = 0.0, 0.0, [0.0, 0.0], True
    for a, b in zip(pieces(one, mine), pieces(other, theirs), strict=True):
        same &= a.tobytes() == b.tobytes()
        x, y = a.astype(np.float64), b.astype(np.float64)
        with np.errstate(invalid="ignore"):
            largest = max(largest, float(np.abs(x - y).max())) if x.size else largest
        dot += float(x @ y)
        squares = [squares[0] + float(x @ x), squares[1] + float(y @ y)]
    length = math.sqrt(squares[0]) * math.sqrt(squares[1])
    cosine = dot / length if length and math.isfinite(length) else None
    return {"identical": same, "max_difference": largest, "cosine": cosine}


def _rows(one: Path, other: Path) -> dict[str, Any]:
    """How many images, and how many labels, are the same at the same place."""
    a, b = dataset_file.read(one), dataset_file.read(other)
    both = min(len(a), len(b))
    images = sum(x == y for x, y in zip(a.pngs[:both], b.pngs[:both], strict=True))
    return {
        "first": len(a), "second": len(b), "same_images": images,
        "same_labels": int((a.labels[:both] == b.labels[:both]).sum()),
    }  # fmt: skip
