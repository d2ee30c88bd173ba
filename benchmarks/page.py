"""docs/benchmarks.md, made from what was measured. No figure in it is typed by hand; its prose is the benchmarks'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from measuring import seconds

_HEAD = """# What it costs

Written by `make bench` from its own measurements: change a benchmark in `benchmarks/`, not this page. Ratios are ours
by theirs, the median over turns that both sides took one after the other, in brackets the middle half of the turns;
below 1 is faster or smaller than the peer. `python benchmarks/run.py --only NAME` runs one of them, `--full` with
larger sizes. Every turn is in `benchmarks/measured/`. At a load above 2 both sides waited for others: look at ratios.
"""
_COLUMNS = ("what", "ours", "against", "theirs", "ratio", "goal")

Result = Mapping[str, Any]


def page(results: Sequence[Result]) -> str:
    """The whole page. Results may come from several machines: each is named. One without rows was not run."""
    everything, results = results, [result for result in results if "rows" in result]
    machines = list(dict.fromkeys(described(result["machine"]) for result in results))
    rows = [(result["name"], row) for result in results for row in result["rows"] if row["met"] is not None]
    missed = [f"- `{name}`: {row['what']}, against {row['against']}" for name, row in rows if not row["met"]]
    total = sum(result["seconds"] for result in results)
    head = [_HEAD, *(f"- {machine}" for machine in machines), "", f"All of it took {_minutes(total)}."]
    head += [f"{len(rows) - len(missed)} of {len(rows)} goals are met{'. Missed:' if missed else '.'}", ""]
    head += [*missed, ""] if missed else []
    return "\n".join(head + [_section(result, len(machines) > 1) for result in everything])


def described(machine: Mapping[str, Any]) -> str:
    """The machine and the versions on a line."""
    packages = ", ".join(f"{name} {machine[name]}" for name in machine if name not in _HARDWARE)
    memory = f"{machine['memory'] / 2**30:.0f} GB"
    return f"{machine['cores']} cores of {machine['processor']}, {memory}, {machine['system']}; {packages}"


_HARDWARE = ("processor", "cores", "memory", "system")


def cells(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Ratio, its range and its goal, in words."""
    ratio = "" if row["ratio"] is None else _ratio(row["ratio"])
    spread = f"{_ratio(row['low'])} … {_ratio(row['high'])}" if row["low"] is not None and row["turns"] > 1 else ""
    goal = "" if row["met"] is None else f"≤ {row['goal']:g}: {'met' if row['met'] else 'missed'}"
    return ratio, spread, goal


def _section(result: Result, name_machine: bool) -> str:
    lines = [f"## {result['title']} (`{result['name']}`)", result["about"], ""]
    if "rows" not in result:
        return "\n".join([*lines, f"Not run yet: `python benchmarks/run.py --only {result['name']}`.", ""])
    if result["rows"]:
        lines += [_line(_COLUMNS), _line(["---"] * len(_COLUMNS)), *map(_row, result["rows"]), ""]
    else:
        lines += ["Not measured: what it needs (`../shared/data`, or Linux) is not here.", ""]
    before, after = result["load"]
    size = " at full size" if result["size"] == "full" else ""
    where = f" on {described(result['machine'])}" if name_machine else ""
    taken = f"{seconds(result['seconds'])}{size}{where}"
    return "\n".join([*lines, f"{result['date']}, {taken}; load {before:.1f} before and {after:.1f} after.", ""])


def _row(row: Mapping[str, Any]) -> str:
    ratio, spread, goal = cells(row)
    both = f"{ratio} ({spread})" if spread else ratio
    return _line([row["what"], row["ours"], row["against"], row["theirs"], both, goal])


def _line(parts: Sequence[str]) -> str:
    return f"| {' | '.join(part.replace('|', '¦') for part in parts)} |"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _minutes(taken: float) -> str:
    return seconds(taken) if taken < 100 else f"{taken / 60:.0f} minutes"
