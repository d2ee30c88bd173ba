"""`evaluate RUN…`: the options and the table of `stages.evaluate.runs`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from stages.evaluate.measurement import CSV, PICTURE, Measurement, Option, Shown, Table
from stages.words import human_bytes

_COMMON = ("one record",)  # the protected unit where nothing else is said


def table(summary: Mapping[str, Any]) -> Shown:
    """Accuracy, rounds to the target and bytes, a row for each group of runs."""
    target = summary["target"]
    suffix = "_to_target" if target is not None else ""
    rows = []
    for group in summary["groups"]:
        spread = f" ({group['accuracy_min']:.1%}–{group['accuracy_max']:.1%})" if group["runs"] > 1 else ""
        rounds = [] if target is None else [_rounds(group)]
        numbers, size = group[f"parameters{suffix}"], group[f"bytes{suffix}"]
        sent = ["–", "–"] if size is None else [f"{numbers:,}", human_bytes(size)]
        cost = [] if summary["delta"] is None else [_epsilon(group["epsilon_at_end"])]
        rows.append([group["label"], group["runs"], f"{group['accuracy']:.1%}{spread}", *cost, *rounds, *sent])
    columns = [] if summary["delta"] is None else ["ε (PLD)"]
    columns += [] if target is None else [f"to {100 * target:g}%"]
    yield Table(["run", "seeds", "accuracy", *columns, "numbers", "sent"], rows)
    until = f" until {100 * target:g}% was reached" if target is not None else ""
    yield (
        f"numbers: what one client sends and gets{until} (2·M_s + 2·R·M_c; with synthetic sets in place of models "
        "R·(M_c + M_k), with proxies images × (pixels + classes) each way); sent: all files, up and down."
    )
    if any("efficiency" in group for group in summary["groups"]):
        yield from _efficiency(summary)
    if summary["delta"] is not None:
        yield f"ε: after the last round, for one record of the client that spent most, δ = {summary['delta']:g}."
    for group in summary["groups"]:
        if group["epsilon_basis"] not in (None, *_COMMON):
            yield f"{group['label']}: ε for {group['epsilon_basis']}."
    for difference in summary["differences"]:
        yield f"Not comparable as they are: {difference}."
    for run in summary["runs"]:
        if run["rounds"] < run["planned_rounds"]:
            yield f"{run['label']} is not finished: {run['rounds']} of {run['planned_rounds']} rounds."


def _efficiency(summary: Mapping[str, Any]) -> Shown:
    """How many times more the baseline sent: until each was at its best, and until all reached the target."""
    views = {"to its best": "to_best"} | ({} if summary["target"] is None else {"to the target": "to_target"})
    columns = [f"{what} {name}" for name in views for what in ("numbers", "bytes")]
    keys = [f"{what}_{suffix}" for suffix in views.values() for what in ("parameters", "bytes")]
    rows = [[group["label"], *(_times(group["efficiency"][key]) for key in keys)] for group in summary["groups"]]
    yield Table(["efficiency", *columns], rows)
    yield f"efficiency: how many times more {summary['groups'][0]['baseline']} sends."


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}×"


def _epsilon(value: float | str) -> str:
    """Three decimals, rounded up: an ε is never shown smaller than it is."""
    return "∞" if isinstance(value, str) else f"{math.ceil(value * 1000) / 1000:.3f}"


def _rounds(group: Mapping[str, Any]) -> str:
    """`3`, `3.3 (3–4)`, `> 10`, or `3–> 10` where some seeds never got there."""
    known = [rounds for rounds in group["rounds_to_target_all"] if rounds is not None]
    never = f"> {group['rounds']}"
    if len(known) < group["runs"]:
        return f"{min(known)}–{never}" if known else never
    mean = f"{group['rounds_to_target']:.1f}".removesuffix(".0")
    return f"{mean} ({min(known)}–{max(known)})" if min(known) < max(known) else mean


MEASUREMENT = Measurement(
    place=3,
    subject="RUN…",
    function="stages.evaluate.runs:evaluate_runs",
    options=(
        Option(name="target", type=float, text="Count the rounds to this accuracy (0.9 is 90%)."),
        Option(name="delta", type=float, text="δ: also ε after each round, and the accuracy that it buys."),
        Option(name="against_bytes", type=bool, text="In the picture: accuracy against bytes, too."),
        Option(
            name="baseline", type=str, metavar="NAME",
            text="How many times more this run sent than each (TOFU's efficiency): to its best, and to --target.",
        ),
        Option(
            name="name", type=str, argument="names", repeated=True,
            text="What to call a run, once for each; else its folder's name.",
        ),
        CSV,
        PICTURE,
    ),
    help="""
    Runs side by side: accuracy, rounds to a target, what was sent; runs that differ by the seed alone are averaged.

    Example: fedsynth evaluate runs/fedavg runs/fedssyn --target 0.9 -o comparison.json --picture comparison.png

    With δ also what they cost in ε.

    Example: fedsynth evaluate runs/fedlap-dp runs/dp-sgd --delta 1e-5 -o comparison.json --picture comparison.png
    """,
    reports=False,
    table=table,
)  # fmt: skip
