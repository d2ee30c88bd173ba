"""`fedsynth report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsynth_cli.console import Output, human_bytes
from fedsynth_cli.options import Force, Json, Out, Quiet, Received, Trust
from fedsynth_cli.verdicts import end_as_audited

if TYPE_CHECKING:
    from rich.console import Console


def report(
    run: Annotated[Path, typer.Argument(help="A run folder, a home, one participant's folder, or an outbox alone.")],
    out: Out,
    received: Received = None,
    trust: Trust = None,
    delta: Annotated[
        float | None, typer.Option(help="δ, for the ε over rounds if noise was added. No default.", show_default=False)
    ] = None,
    round: Annotated[
        int | None,
        typer.Option(
            "--round", min=0, help="The round whose lineage is drawn; the last one if not given.", show_default=False
        ),
    ] = None,
    private: Annotated[
        bool,
        typer.Option(
            "--private",
            help="Include what was measured on private data, and who took part. Such a page must not leave.",
        ),
    ] = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write one page: verdicts on records and exposure, accuracy, ε, what left and what it discloses, images, lineage.

    Exit code 5 if the audit fails, 6 if something could not be checked; the page is written in either case. It is a
    single HTML file without scripts, which can be read without a network and without fedsynth.

    Example: fedsynth report runs/first --delta 1e-5 -o report.html
    """
    from stages.report.page import report as stage

    output = Output(as_json=json, quiet=quiet)
    with output.progress("report") as progress:
        summary = stage(
            run,
            out,
            received=received or (),
            trust=trust,
            delta=delta,
            round=round,
            private=private,
            force=force,
            progress=progress,
        )
    output.result(summary, lambda console: _show(console, summary))
    end_as_audited(summary, run, "the page")


def _show(console: Console, summary: dict[str, Any]) -> None:
    lines = [f"{summary['out']}: {human_bytes(summary['bytes'])}, {summary['custody']}", summary["verdict"]]
    lines += [f"Left out: {words}." for words in summary["left_out"]]
    for line in lines:
        console.print(line, soft_wrap=True)
