"""Runs that differ by the seed alone: which belong together, what they are called, and their means."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stages.evaluate.runs import Run


def groups_of(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs of one recipe under several seeds belong together. One seed twice: by their labels, or not at all."""
    by_recipe: dict[str, list[Run]] = {}
    for run in runs:
        known = {key: value for key, value in run.recipe.items() if key not in ("seed", "about")}
        key = json.dumps(known, sort_keys=True, default=str) if run.seed is not None else f"only {run.label}"
        by_recipe.setdefault(key, []).append(run)
    result: dict[str, list[Run]] = {}
    for members in by_recipe.values():
        parts: dict[str, list[Run]] = {"": members}
        if len({run.seed for run in members}) < len(members):
            parts = {}
            for run in members:
                parts.setdefault(_without_seed(run), []).append(run)
        for part in parts.values():
            label = _group_label(part)
            result[label if label not in result else f"{label} ({part[0].label})"] = part
    return result


def _group_label(members: Sequence[Run]) -> str:
    """What the labels have in common once the seed is out of them; else the recipe's name."""
    if len(members) == 1:
        return members[0].label
    common = {_without_seed(run) for run in members}
    return next(iter(common)) if len(common) == 1 and "" not in common else str(members[0].recipe.get("name"))


def meant(label: str, grouped: Mapping[str, Sequence[Run]]) -> str:
    """The group of that label; with one seed only, the one that would have it if there were several."""
    alike = [name for name, members in grouped.items() if _without_seed(members[0]) == label]
    return alike[0] if label not in grouped and len(alike) == 1 else label


def _without_seed(run: Run) -> str:
    """`shuffled-seed-1` and `shuffled/seed=1` → `shuffled`; a bare number at the end counts if it is the seed."""
    seed = re.escape(str(run.seed))
    marked = re.sub(rf"(^|[-_ ,./]+)(seed|s)[-_= ]?{seed}(?=$|[-_ ,./])", "", run.label, flags=re.IGNORECASE)
    if marked == run.label:
        marked = re.sub(rf"(^|[-_ /]+){seed}$", "", run.label)
    return marked.strip("-_ ,./")


def means_of(label: str, rows: Sequence[dict[str, Any]], target: float | None) -> dict[str, Any]:
    """Means over the seeds. A mean of rounds of which one was never reached would be a lie: it is null."""
    accuracies = [row["accuracy"] for row in rows]
    reached = [row["rounds_to_target"] for row in rows] if target is not None else []
    return {
        "label": label,
        "runs": len(rows),
        "rounds": max(row["rounds"] for row in rows),
        "accuracy": _mean(accuracies),
        "accuracy_min": min(accuracies),
        "accuracy_max": max(accuracies),
        "best": _mean([row["best"] for row in rows]),
        "rounds_to_target": _mean(reached),
        "rounds_to_target_min": min((r for r in reached if r is not None), default=None),
        "rounds_to_target_max": None if None in reached else max(reached, default=None),
        "rounds_to_target_all": reached,
        "parameters": _whole([row["parameters"] for row in rows]),
        "parameters_to_target": _whole([row["parameters_to_target"] for row in rows]),
        "bytes": _whole([row["bytes"] for row in rows]),
        "bytes_to_target": _whole([row["bytes_to_target"] for row in rows]),
        "parameters_to_best": _whole([row["parameters_to_best"] for row in rows]),
        "parameters_up_to_best": _whole([row["parameters_up_to_best"] for row in rows]),
        "parameters_up_to_target": _whole([row["parameters_up_to_target"] for row in rows]),
        "one_way": all(row["one_way"] for row in rows),
        "bytes_to_best": _whole([row["bytes_to_best"] for row in rows]),
        # Of an ε there is no mean: the largest is the one that holds for all.
        **{key: _largest([row[key] for row in rows]) for key in ("epsilon_at_end", "epsilon_at_end_rdp")},
        "epsilon_basis": rows[0]["epsilon_basis"],
    }


def _largest(values: Sequence[float | str | None]) -> float | str | None:
    return None if None in values else max(values, key=lambda value: float(value or 0))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 6) if known and len(known) == len(values) else None


def _whole(values: Sequence[float | None]) -> int | None:
    """The mean of counts, which nobody needs to a fraction."""
    mean = _mean(values)
    return None if mean is None else round(mean)
