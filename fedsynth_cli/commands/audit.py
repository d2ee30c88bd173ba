"""`fedsynth audit`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsynth_cli.console import Output, human_bytes, table
from fedsynth_cli.options import Json, Quiet, Received, RecipePreset, Setting, Trust
from fedsynth_cli.trials import try_canaries, try_neighbours

if TYPE_CHECKING:
    from rich.console import Console

    from stages.audit import AuditReport

_REPLAY, _TRIALS = "Replay", "A recipe in place of files"
_STYLES = {"failure": "red", "unknown": "yellow", "unchecked": "yellow", "note": "dim"}


def audit(
    target: Annotated[
        Path | None,
        typer.Argument(help="A run folder, a home, one participant's folder, or an outbox alone.", show_default=False),
    ] = None,
    delta: Annotated[float | None, typer.Option(help="Compute the ε of what left, at this δ.")] = None,
    received: Received = None,
    trust: Trust = None,
    remembered: Annotated[
        Path | None,
        typer.Option(
            help="A folder with the spend ledgers' last heads as the client's machine remembers them, by default this "
            "user's own.",
            show_default=False,
        ),
    ] = None,
    headers: Annotated[
        Path | None,
        typer.Option(
            help="A folder of DICOM files: none of the names, ids, dates and other texts of their headers may be in "
            "any file, private ones included.",
            show_default=False,
        ),
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Recompute what left, and compare the bytes.", rich_help_panel=_REPLAY)
    ] = False,
    sample: Annotated[
        int | None,
        typer.Option(min=1, help="Check this many files of each client, chosen at random.", rich_help_panel=_REPLAY),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0,
            rich_help_panel=_REPLAY,
            help="From another machine or version: let values differ by this much of a file's largest.",
        ),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(
            help="A seed that synthesize may have used, if no private file records it.", rich_help_panel=_REPLAY
        ),
    ] = None,
    neighbours: Annotated[
        str | None,
        typer.Option(
            metavar="RECIPE",
            rich_help_panel=_TRIALS,
            help="Run this recipe, shrunk, on data one record or client apart, its noise from a fixed stream: nothing "
            "that leaves may differ.",
        ),
    ] = None,
    empirical: Annotated[
        str | None,
        typer.Option(
            metavar="RECIPE",
            rich_help_panel=_TRIALS,
            help="Run this recipe, shrunk, with canaries among its records, and attack what is released: bounds ε from "
            "below. Needs --delta.",
        ),
    ] = None,
    canaries: Annotated[
        int | None,
        typer.Option(min=2, rich_help_panel=_TRIALS, help="Number of canaries (1000).", show_default=False),
    ] = None,
    preset: RecipePreset = None,
    setting: Setting = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of processes that check files, if there are many files (all cores).", show_default=False
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check exactly which bytes left, what they disclose, what they cost in ε, and how they were made.

    Exit code 5 on any failure, 6 if nothing is wrong but something could not be checked.

    With --neighbours or --empirical it tests a recipe instead of files: whether the recipe really keeps its ε.

    Example: fedsynth audit runs/first --delta 1e-5
    Example: fedsynth audit --neighbours dp-sgd
    """  # fmt: skip
    from artifacts.errors import UsageError
    from stages.audit import ReplayOptions
    from stages.audit import audit as stage

    output = Output(as_json=json, quiet=quiet)
    trials = [recipe for recipe in (neighbours, empirical) if recipe is not None]
    if len(trials) + (target is not None) != 1:
        raise UsageError("audit takes a folder, or --neighbours RECIPE, or --empirical RECIPE: one of them.")
    if not trials and (canaries is not None or preset is not None or setting):
        raise UsageError("--canaries, --preset and --set go with --neighbours or --empirical.")
    if neighbours is not None:
        try_neighbours(neighbours, preset, setting or [], output)
        return
    if empirical is not None:
        try_canaries(empirical, preset, setting or [], delta, canaries or 1000, output)
        return
    assert target is not None  # one of them is given
    if not replay and (sample is not None or tolerance is not None or seed):
        raise UsageError("--sample, --tolerance and --seed go with --replay.")
    options = ReplayOptions(sample=sample, tolerance=tolerance, seeds=tuple(seed or ())) if replay else None
    with output.progress("audit") as report:
        cores = workers or os.cpu_count() or 1
        result = stage(
            target, delta=delta, received=received or (), trust=trust, remembered=remembered, replay=options,
            headers=headers, workers=cores, report=report,
        )  # fmt: skip
    output.result(result.to_json(), lambda console: _show(console, result))
    if (error := result.error) is not None:
        error.is_reported = True
        raise error


def _show(console: Console, result: AuditReport) -> None:
    rows = []
    for sent in result.sent:
        about = sent.to_json()
        stated = ", ".join(about["disclosures"]) or "none"
        name = about["name"] if about["role"] == "own" else f"{about['name']} ({about['role']})"
        rows.append([name, about["files"], human_bytes(about["bytes"]), _span(about["rounds"]),
                     ", ".join(about["kinds"]), stated, _epsilon(about)])  # fmt: skip
    table(console, ["who", "files", "size", "rounds", "kinds", "discloses", "ε"], rows)
    if any(sent.to_json()["epsilon"] == "finite" for sent in result.sent):
        console.print("How much: fedsynth audit --delta, with the δ of your choice.")
    _show_disclosed(console, result)
    console.print()
    totals = [[_span([r for r in total.rounds if r is not None]) or "–", total.kind, total.files,
               human_bytes(total.bytes)] for total in result.totals()]  # fmt: skip
    table(console, ["rounds", "kind", "files each round", "size each round"], totals)
    console.print()
    _show_checks(console, result)
    console.print()
    for finding in result.findings:
        style = _STYLES[finding.level]
        what = f"needs {finding.what}" if finding.level == "unchecked" else finding.what
        text = f"{finding.level.upper():<9} {finding.check:<12} {finding.where}: {what}"
        console.print(text, style=style, soft_wrap=True)
    style = "bold green" if result.passed else "bold red" if result.count("failure") else "bold yellow"
    console.print(result.verdict, style=style, soft_wrap=True)


def _show_disclosed(console: Console, result: AuditReport) -> None:
    """What the words under «discloses» mean, for a layman; and what an obscured update is not."""
    from artifacts.disclosures import DISCLOSURES
    from artifacts.kinds import KINDS

    every = [sent.to_json() for sent in result.sent]
    lines = [f"{name}: {DISCLOSURES[name]}" for name in sorted({n for each in every for n in each["disclosures"]})]
    kinds = sorted({name for each in every for name in each["kinds"] if name in KINDS})
    lines += [f"{name}: {KINDS[name].text}." for name in kinds if KINDS[name].encoded]
    for line in lines:
        console.print(line)


def _show_checks(console: Console, result: AuditReport) -> None:
    from stages.audit import CHECKS

    rows = [[check, result.result_of(check, found), CHECKS[check]] for check, found in result.by_check()]
    table(console, ["check", "result", "what it makes sure of"], rows)


def _span(rounds: list[int]) -> str:
    if not rounds:
        return ""
    return f"{rounds[0]}–{rounds[-1]}" if rounds[0] != rounds[-1] else f"{rounds[0]}"


def _epsilon(about: dict[str, Any]) -> str:
    """«∞», «finite», or numbers by unit; beside it what the budget has left."""
    from stages.words import epsilon_words

    value = about["epsilon"]
    if isinstance(value, dict):
        numbers = [(unit, found["pld"]) for unit, found in value.items()]
        text = ", ".join(
            epsilon_words(float(v)) + f" per {unit}" * (unit != "any" and v != "inf") for unit, v in numbers
        )
    else:
        text = {"inf": "∞", None: "–"}.get(value, str(value))
    budget = about["budget"]
    if budget is not None:
        text += f" (spent {epsilon_words(float(budget['spent']))} of {budget['epsilon']:g})"
    return text
