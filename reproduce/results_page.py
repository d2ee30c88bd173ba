"""docs/results.md, made from the claims and what was measured. No figure and no verdict in it is typed by hand."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from claims import Entry, Paper
from verdicts import Judged, Verdict, groups, judge, value_of, verdict

_HEAD = """# What the papers claim, and what we see

Written by `make reproduce`: change `reproduce/claims`, not this page. Everything here ran on CPUs, far below the scale
of the papers: smaller data and networks, fewer rounds, as each setting says. A verdict is about the claim at it:

- **reproduced**: every comparison holds with each of at least three seeds;
- **in part**: some hold, or they hold in the mean but not with every seed, or there are fewer seeds, or not all ran;
- **not reproduced**: none holds, not even in the mean;
- **not run**: nothing was measured here. The command that would is given; with a preset `paper` it needs a GPU.

Figures are mean ± standard deviation (n − 1) over the seeds. `DATA` is the folder of the datasets.
"""
_FRACTIONS = ("accuracy", "best", "target")

Measured = Mapping[tuple[str, str], Mapping[str, Mapping[str, Any]]]


def page(papers: Sequence[Paper], measured: Measured) -> str:
    judged = {
        (paper.key, entry.id): judge(entry, {n: run["rows"] for n, run in measured[paper.key, entry.id].items()})
        for paper in papers
        for entry in paper.entries
    }
    lines = [_HEAD]
    lines += ["| paper | reproduced | in part | not reproduced | not run |", "|---|---|---|---|---|"]
    for paper in papers:
        verdicts = [verdict(judged[paper.key, entry.id], entry) for entry in paper.entries]
        kinds: tuple[Verdict, ...] = ("reproduced", "in part", "not reproduced", "not run")
        lines.append(_line([paper.name, *(str(verdicts.count(kind)) for kind in kinds)]))
    for paper in papers:
        lines += ["", f"## {paper.name}", f"{paper.paper}", ""]
        lines += [_line(["where", "claim", "verdict"]), "|---|---|---|"]
        for entry in paper.entries:
            found = verdict(judged[paper.key, entry.id], entry)
            lines.append(_line([entry.where, entry.claim.strip(), f"**{found}**"]))
        for entry in paper.entries:
            runs = measured[paper.key, entry.id]
            if runs or entry.full or entry.runs:
                lines += ["", *_entry(entry, runs, judged[paper.key, entry.id])]
    return "\n".join(lines) + "\n"


def _entry(entry: Entry, runs: Mapping[str, Mapping[str, Any]], judged: Sequence[Judged]) -> list[str]:
    lines = [f"### {entry.where}: {verdict(judged, entry)}", entry.claim.strip(), ""]
    if entry.setting:
        lines += [f"Here: {entry.setting.strip()}", ""]
    for name, task in entry.runs.items():
        lines += [f"    {task.command()}", ""]
        if name not in runs:
            lines += ["Not run.", ""]
        elif entry.show.get(name):
            lines += [*_table(entry.show[name], runs[name]["rows"]), ""]
        if name in runs:
            lines += [_when(runs[name]), ""]
    if judged:
        lines += [_line(["check", "figures", "outcome"]), "|---|---|---|"]
        lines += [_line([one.what, _figures(one), one.outcome]) for one in judged]
        lines.append("")
    if entry.note:
        lines += [entry.note.strip(), ""]
    for command in entry.full:
        lines += ["At the paper's scale, not run:", "", f"    {command}", ""]
    return lines[:-1]


def _when(run: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in run["versions"].items())
    return f"{run['date']}, {run['seconds']} s at a load of {run['load']} on {run['machine']}; {versions}."


def _table(metrics: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [_line(["", *(metric.replace("_", " ") for metric in metrics), "seeds"])]
    lines.append("|" + "---|" * (len(metrics) + 2))
    for label, members in groups(rows).items():
        cells = [shown([value_of(row, metric) for row in members], metric) for metric in metrics]
        seeds = [str(row["seed"]) for row in members if row["seed"] is not None]
        lines.append(_line([label or "all", *cells, " ".join(seeds)]))
    return lines


def _figures(one: Judged) -> str:
    return ", ".join(f"{label or one.metric}: {shown(values, one.metric)}" for label, values in one.figures.items())


def shown(values: Sequence[float], metric: str) -> str:
    """Mean ± standard deviation; of rounds that were not always reached, how often they were."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < len(values):
        return f"never in {len(values) - len(finite)} of {len(values)}" + (
            f", else {_number(statistics.fmean(finite), metric)}" if finite else ""
        )
    text = _number(statistics.fmean(values), metric)
    if len(values) < 2:
        return text
    return f"{text} ± {_number(statistics.stdev(values), metric).removesuffix('%')}"


def _number(value: float, metric: str) -> str:
    if metric.rpartition(".")[2] in _FRACTIONS:
        return f"{value:.1%}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', '¦') for cell in cells)} |"
