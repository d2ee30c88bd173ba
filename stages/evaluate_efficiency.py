"""TOFU's communication efficiency: how many times more a baseline sends than a run does.

The paper's count (Tables 1 to 8) is (rounds × |θ|) of the baseline by (rounds × images × (pixels + classes)), plus |θ|
for each full round. Its Tables 2 to 5 and 8 count the rounds until each is at its best, which flatters whoever ends
lower; Tables 6 and 7, more strictly, until both reach one accuracy. Both are given, in the paper's numbers and in true
bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from artifacts.errors import UsageError
from stages.evaluate_communication import Communication

_COUNTS = ("parameters_to_best", "bytes_to_best", "parameters_to_target", "bytes_to_target")


def efficiency(baseline: Communication, baseline_rounds: int, sent: Communication, rounds: int) -> float:
    """By the paper's count."""
    return baseline.parameters(baseline_rounds) / sent.parameters(rounds)


def with_efficiency(groups: Sequence[dict[str, Any]], baseline: str) -> list[dict[str, Any]]:
    """The groups, each with `efficiency`: the baseline's counts by its own; null where a target was never reached."""
    found = next((group for group in groups if group["label"] == baseline), None)
    if found is None:
        known = ", ".join(str(group["label"]) for group in groups)
        raise UsageError(f"--baseline {baseline}: no run is called that. There are: {known}.")
    return [
        {**group, "baseline": baseline, "efficiency": {key: _ratio(found[key], group[key]) for key in _COUNTS}}
        for group in groups
    ]


def _ratio(theirs: int | None, own: int | None) -> float | None:
    return round(theirs / own, 4) if theirs and own else None
