"""Whether figures bear a claim out: each check by the rule below, an entry by its checks. Nothing is judged by hand.

A check compares two groups seed by seed, or holds a figure against an interval. It *holds* if it does so with each of
at least three seeds (one figure is enough where there is no seed), *in part* if it does so in the mean or with fewer
seeds. An entry is reproduced if all its checks were run and hold, not reproduced if none does, not even in part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from claims import Entry

Row = Mapping[str, Any]
Outcome = Literal["holds", "in part", "fails"]
Verdict = Literal["reproduced", "in part", "not reproduced", "not run"]
_ENOUGH = 3


@dataclass(frozen=True)
class Judged:
    """One comparison: of which check, the figures of each group by seed, and what came of it."""

    check: int
    what: str
    metric: str
    figures: Mapping[str, Sequence[float]]
    outcome: Outcome


def parts(label: str) -> frozenset[str]:
    return frozenset(part for part in label.split(",") if part)


def verdict(judged: Sequence[Judged], entry: Entry) -> Verdict:
    """A claim without a check may have figures, but no verdict on them: it counts as not run."""
    if not judged:
        return "not run"
    outcomes = {one.outcome for one in judged}
    if outcomes == {"fails"}:
        return "not reproduced"
    is_whole = {one.check for one in judged} == set(range(len(entry.checks)))
    return "reproduced" if outcomes == {"holds"} and is_whole else "in part"


def judge(entry: Entry, measured: Mapping[str, Sequence[Row]]) -> list[Judged]:
    """Every comparison that the checks ask for, of the runs that were measured."""
    found = []
    for number, check in enumerate(entry.checks):
        others = check.get("than_run", check["run"])
        if check["run"] in measured and others in measured:
            found += _compared(number, check, measured[check["run"]], measured[others])
    return found


def _compared(number: int, check: Mapping[str, Any], rows: Sequence[Row], others: Sequence[Row]) -> list[Judged]:
    metric = check["metric"]
    mine, theirs = groups(rows), groups(others)
    if "from" in check or "to" in check or "below" in check:
        return _within(number, check, mine)
    better = check["more"] if "more" in check else check["less"]
    sign = 1.0 if "more" in check else -1.0
    known = {parts(label): label for label in theirs}
    found = []
    for label, members in mine.items():
        if not parts(better) <= parts(label):
            continue
        other = known.get(parts(label) - parts(better) | parts(check["than"]))
        if other is None or (other == label and rows is others):
            continue
        by_seed = {row["seed"]: value_of(row, metric) for row in theirs[other]}
        both = [(value_of(row, metric), by_seed[row["seed"]]) for row in members if row["seed"] in by_seed]
        gains = [sign * (a - b) - check.get("by", 0.0) for a, b in both]
        names = (label, other) if rows is others else (f"{check['run']} {label}", f"{check['than_run']} {other}")
        figures = {names[0].strip(): [a for a, _ in both], names[1].strip(): [b for _, b in both]}
        what = check.get("what") or ("more" if sign > 0 else "less")
        found.append(Judged(number, what, metric, figures, outcome_of(gains, members[0]["seed"] is None)))
    if not found:
        raise ValueError(f"a check finds nothing to compare: {dict(check)}; there are {', '.join(mine)}")
    return found


def _within(number: int, check: Mapping[str, Any], mine: Mapping[str, Sequence[Row]]) -> list[Judged]:
    low, high = check.get("from", -math.inf), check.get("to", math.inf)
    below = check.get("below")
    what = check.get("what") or (f"from {low:g} to {high:g}" if below is None else f"below {below}")
    found = []
    for label, members in mine.items():
        if parts(check.get("of", "")) <= parts(label):
            values = [value_of(row, check["metric"]) for row in members]
            gains = [min(value - low, high - value) for value in values]
            figures = {label: values}
            if below is not None:
                others = [value_of(row, below) for row in members]
                gains = [other - value for value, other in zip(values, others, strict=True)]
                figures = {check["metric"]: values, below: others}
            outcome = outcome_of(gains, members[0]["seed"] is None, or_equal=below is None)
            found.append(Judged(number, what, check["metric"], figures, outcome))
    if not found:
        raise ValueError(f"a check finds nothing to hold: {dict(check)}; there are {', '.join(mine)}")
    return found


def outcome_of(gains: Sequence[float], without_seeds: bool, *, or_equal: bool = False) -> Outcome:
    """From what was gained with each seed. Two that both never arrived (∞ − ∞) show nothing."""
    if not gains or any(math.isnan(gain) for gain in gains):
        return "fails"
    if all(gain > 0 or (or_equal and gain == 0) for gain in gains):
        return "holds" if without_seeds or len(gains) >= _ENOUGH else "in part"
    return "in part" if sum(gains) > 0 else "fails"


def groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["group"], []).append(row)
    return found


def value_of(row: Row, metric: str) -> float:
    """A round that was never reached is null in the file, and comes after all others."""
    value = row["figures"][metric]
    return math.inf if value is None or value == "inf" else float(value)
