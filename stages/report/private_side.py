"""What only a private report shows: how the data was dealt out, and what was measured on it (privacy contract, 17)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from artifacts.formats.plain_data import read_json
from artifacts.places import RunFolder

_MOST_NUMBERS = 8  # of one measurement; the file has all
_NOT_MEASURED = ("round",)


def read(run: RunFolder) -> dict[str, Any]:
    """The metrics that say that they are private, wherever they are; and each client's records by class."""
    folders = [("–", run.metrics), *((name, run.clients / name / "private") for name in run.client_names())]
    measured, attacks = [], 0
    for who, folder in folders:
        for path in sorted(folder.glob("*.json")):
            found = _object(path)
            attacks += "attack" in found
            if found.get("custody") == "private" and (numbers := list(_numbers(found))):
                measured.append({"client": who, "file": path.name, "numbers": ", ".join(numbers[:_MOST_NUMBERS])})
    return {
        "measured": measured,
        "attacks": attacks,
        "partition": _partition(_object(run.simulation / "partition.json")),
    }


def _object(path: Path) -> dict[str, Any]:
    """Empty for what is no metrics file: others may keep JSON there too."""
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _numbers(values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, list) and value and all(_is_number(part) for part in value):
            yield f"{name}: {value[0]:.4g} … {value[-1]:.4g}"
        elif _is_number(value) and name not in _NOT_MEASURED:
            yield f"{name}: {value:.4g}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _partition(record: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        names, rows = list(map(str, record["class_names"])), dict(record["clients"])
        return {"classes": names, "rows": [(str(who), [int(n) for n in counts]) for who, counts in rows.items()]}
    except (KeyError, TypeError, ValueError):
        return None
