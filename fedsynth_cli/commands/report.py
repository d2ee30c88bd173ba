"""`fedsynth report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsynth_cli.console import Output, human_bytes
from fedsynth_cli.options import Force, Json, Out, Quiet

if TYPE_CHECKING:
    from rich.console import Console


def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Out,
    delta: Annotated[
        float | None, typer.Option(help="δ, for ε over rounds where noise was added. No default.", show_default=False)
    ] = None,
    round: Annotated[
        int | None,
        typer.Option("--round", min=0, help="The round whose lineage is drawn; else the last.", show_default=False),
    ] = None,
    private: Annotated[
        bool,
        typer.Option("--private", help="Also what was measured on private data, and who took part. May not leave."),
    ] = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a run as one page: verdict of the audit, accuracy, ε, what left and what it tells, images, lineage.

    Exit code 5 if the audit fails; the page is written all the same. It is one HTML file without
    scripts; it needs no network and no fedsynth to be read.

    Example: fedsynth report runs/first --delta 1e-5 -o report.html
    """
    from artifacts.errors import VerificationError
    from stages.report.page import report as stage

    output = Output(as_json=json, quiet=quiet)
    with output.progress("report") as progress:
        summary = stage(run, out, delta=delta, round=round, private=private, force=force, progress=progress)
    output.result(summary, lambda console: _show(console, summary))
    if not summary["passed"]:
        raise VerificationError(f"the page is written, and the audit of {run} failed: {summary['verdict']}")


def _show(console: Console, summary: dict[str, Any]) -> None:
    lines = [f"{summary['out']}: {human_bytes(summary['bytes'])}, {summary['custody']}", summary["verdict"]]
    lines += [f"Left out: {words}." for words in summary["left_out"]]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
