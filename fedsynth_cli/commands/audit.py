"""`fedsynth audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsynth_cli.console import Output, human_bytes, table
from fedsynth_cli.options import Json, Quiet

if TYPE_CHECKING:
    from rich.console import Console

    from stages.audit import AuditReport

_REPLAY = "Replay"


def audit(
    target: Annotated[Path, typer.Argument(help="A run folder, or one participant's folder.")],
    delta: Annotated[float | None, typer.Option(help="Compute the ε of what left, at this δ.")] = None,
    received: Annotated[
        list[Path] | None,
        typer.Option(help="With one client's folder: a folder with what the server sent it, and the roster."),
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Compute what left again and compare bytes.", rich_help_panel=_REPLAY)
    ] = False,
    sample: Annotated[
        int | None, typer.Option(min=1, help="So many files of each client, drawn at random.", rich_help_panel=_REPLAY)
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0,
            rich_help_panel=_REPLAY,
            help="From another machine or version: let values differ by this much of a tensor's largest.",
        ),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(help="A seed that synthesize may have used, if no private file tells.", rich_help_panel=_REPLAY),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check exactly which bytes left, what they tell and cost, and where they come from. Exit code 5 on any failure.

    Example: fedsynth audit runs/first --delta 1e-5
    """  # fmt: skip
    from artifacts.errors import UsageError, VerificationError
    from stages.audit import ReplayOptions
    from stages.audit import audit as stage

    if not replay and (sample is not None or tolerance is not None or seed):
        raise UsageError("--sample, --tolerance and --seed go with --replay.")
    options = ReplayOptions(sample=sample, tolerance=tolerance, seeds=tuple(seed or ())) if replay else None
    output = Output(as_json=json, quiet=quiet)
    with output.progress("audit") as report:
        result = stage(target, delta=delta, received=received or (), replay=options, report=report)
    output.result(result.to_json(), lambda console: _show(console, result))
    if not result.passed:
        raise VerificationError(result.verdict)


def _show(console: Console, result: AuditReport) -> None:
    rows = []
    for sent in result.sent:
        about = sent.to_json()
        told = ", ".join(about["disclosures"]) or "none"
        rows.append([about["name"], about["files"], human_bytes(about["bytes"]), _span(about["rounds"]),
                     ", ".join(about["kinds"]), told, _epsilon(about)])  # fmt: skip
    table(console, ["who", "files", "size", "rounds", "kinds", "discloses", "ε"], rows)
    if any(sent.to_json()["epsilon"] == "finite" for sent in result.sent):
        console.print("How much: fedsynth audit --delta, with the δ of your choice.", highlight=False)
    _show_told(console, result)
    console.print()
    totals = [[_span([r for r in total.rounds if r is not None]) or "–", total.kind, total.files,
               human_bytes(total.bytes)] for total in result.totals()]  # fmt: skip
    table(console, ["rounds", "kind", "files each round", "size each round"], totals)
    console.print()
    _show_checks(console, result)
    console.print()
    for finding in result.findings:
        style = "red" if finding.level == "failure" else "dim"
        text = f"{finding.level.upper():<8} {finding.check:<12} {finding.where}: {finding.what}"
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
    style = "bold green" if result.passed else "bold red"
    console.print(result.verdict, style=style, markup=False, soft_wrap=True)


def _show_told(console: Console, result: AuditReport) -> None:
    """What the words under «discloses» mean, for a layman; and what an obscured update is not."""
    from artifacts.disclosures import DISCLOSURES
    from artifacts.kinds import KINDS

    every = [sent.to_json() for sent in result.sent]
    lines = [f"{name}: {DISCLOSURES[name]}" for name in sorted({n for each in every for n in each["disclosures"]})]
    if any("proxy" in each["kinds"] for each in every):
        lines.append(f"proxy: {KINDS['proxy'].text}.")
    for line in lines:
        console.print(line, markup=False, highlight=False)


def _show_checks(console: Console, result: AuditReport) -> None:
    from stages.audit import CHECKS

    rows = []
    for check, failures, notes in result.by_check():
        word = f"{failures} failed" if failures else f"{notes} to note" if notes else "ok"
        rows.append([check, word, CHECKS[check]])
    table(console, ["check", "result", "what it makes sure of"], rows)


def _span(rounds: list[int]) -> str:
    if not rounds:
        return ""
    return f"{rounds[0]}–{rounds[-1]}" if rounds[0] != rounds[-1] else f"{rounds[0]}"


def _epsilon(about: dict[str, Any]) -> str:
    """«∞», «finite», or numbers by unit; beside it what the budget has left."""
    value = about["epsilon"]
    if isinstance(value, dict):
        numbers = [(unit, found["pld"]) for unit, found in value.items()]
        text = ", ".join("∞" if v == "inf" else f"{v:.3f}" + f" per {unit}" * (unit != "any") for unit, v in numbers)
    else:
        text = {"inf": "∞", None: "–"}.get(value, str(value))
    budget = about["budget"]
    if budget is not None:
        spent = budget["spent"] if isinstance(budget["spent"], str) else f"{budget['spent']:.3f}"
        text += f" (spent {spent} of {budget['epsilon']:g})"
    return text
