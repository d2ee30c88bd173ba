"""TOFU's communication efficiency: how many times more a baseline sends than a run does.

The paper's count (Tables 1 to 8) is (rounds × |θ|) of the baseline by (rounds × images × (pixels + classes)), plus |θ|
for each full round. With several clients both sides count up and down; on a single device (Tables 1 and 4), where
nothing comes down, both count up alone. Tables 2 to 5 and 8 count the rounds until each is at its best, which flatters
the one that ends lower; Tables 6 and 7, more strictly, until both reach one accuracy. Both are given, in the paper's
numbers and in true bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from artifacts.errors import UsageError
from stages.evaluate.communication import Communication

_COUNTS = ("parameters_to_best", "bytes_to_best", "parameters_to_target", "bytes_to_target")
# For a run of which nothing comes down, what the baseline sends up is counted.
_UP = {"parameters_to_best": "parameters_up_to_best", "parameters_to_target": "parameters_up_to_target"}


def efficiency(baseline: Communication, baseline_rounds: int, sent: Communication, rounds: int) -> float:
    """By the paper's count."""
    return baseline.parameters(baseline_rounds, up_only=sent.one_way) / sent.parameters(rounds)


def with_efficiency(groups: Sequence[dict[str, Any]], baseline: str) -> list[dict[str, Any]]:
    """The groups, each with `efficiency`: the baseline's counts by its own; null where a target was never reached."""
    found = next((group for group in groups if group["label"] == baseline), None)
    if found is None:
        known = ", ".join(str(group["label"]) for group in groups)
        raise UsageError(f"--baseline {baseline}: no run is called that. There are: {known}.")

    def ratios(group: dict[str, Any]) -> dict[str, float | None]:
        counted = _UP if group["one_way"] else {}
        return {key: _ratio(found[counted.get(key, key)], group[key]) for key in _COUNTS}

    return [{**group, "baseline": baseline, "efficiency": ratios(group)} for group in groups]


def _ratio(theirs: int | None, own: int | None) -> float | None:
    return round(theirs / own, 4) if theirs and own else None
