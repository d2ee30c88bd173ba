"""`fedsynth audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsynth_cli.console import Output, human_bytes, table
from fedsynth_cli.options import Json, Quiet

if TYPE_CHECKING:
    from rich.console import Console

    from stages.audit import AuditReport


def audit(
    target: Annotated[Path, typer.Argument(help="A run folder, or one participant's folder.")],
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check exactly which bytes left: ledgers, digests, lineage, custody, disclosures. Exit code 5 on any failure.

    Example: fedsynth audit runs/first
    """
    from artifacts.errors import VerificationError
    from stages.audit import audit as stage

    output = Output(as_json=json, quiet=quiet)
    with output.progress("audit") as report:
        result = stage(target, report=report)
    output.result(result.to_json(), lambda console: _show(console, result))
    if not result.passed:
        raise VerificationError(result.verdict)


def _show(console: Console, result: AuditReport) -> None:
    rows = []
    for sent in result.sent:
        about = sent.to_json()
        rounds = about["rounds"]
        span = f"{rounds[0]}–{rounds[-1]}" if len(rounds) > 1 else "".join(map(str, rounds))
        epsilon = {"inf": "∞", None: "–"}.get(about["epsilon"], about["epsilon"])
        rows.append([about["name"], about["files"], human_bytes(about["bytes"]), span, ", ".join(about["kinds"]),
                     ", ".join(about["disclosures"]) or "none", epsilon])  # fmt: skip
    table(console, ["who", "files", "size", "rounds", "kinds", "discloses", "ε"], rows)
    if any(sent.to_json()["epsilon"] == "finite" for sent in result.sent):
        console.print("How much: fedsynth account, with the δ of your choice.", highlight=False)
    console.print()
    for finding in result.findings:
        style = "red" if finding.level == "failure" else "dim"
        text = f"{finding.level.upper():<8} {finding.check:<12} {finding.where}: {finding.what}"
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
    console.print(result.verdict, style="bold green" if result.passed else "bold red", markup=False)
