"""`fedsynth export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from fedsynth_cli.console import Output, human_bytes
from fedsynth_cli.options import Force, Json, Out, Quiet, Received, Trust
from fedsynth_cli.urls import KEPT
from fedsynth_cli.verdicts import end_as_audited
from stages.export.document import Said, documents

if TYPE_CHECKING:
    from rich.console import Console

_SAID = "What only a person can say"
_FORMATS = "; ".join(f"{one.name}: {one.text}" for one in documents().values())


def export(
    target: Annotated[Path, typer.Argument(metavar="PATH", help="What `fedsynth audit` audits, or one file of it.")],
    format: Annotated[
        str,
        typer.Option("--format", help=f"{_FORMATS}.", click_type=click.Choice(list(documents())), show_default=False),
    ],
    out: Out,
    delta: Annotated[
        float | None, typer.Option(help="δ, wherever an ε is printed. No default.", show_default=False)
    ] = None,
    received: Received = None,
    trust: Trust = None,
    date: Annotated[
        str | None,
        typer.Option(help="When it is published: 2026-01-31.", show_default=False, rich_help_panel=_SAID),
    ] = None,
    license: Annotated[
        str | None,
        typer.Option(help="Under which licence: its URL.", show_default=False, rich_help_panel=_SAID),
    ] = None,
    publisher: Annotated[
        str | None,
        typer.Option(help="Which organisation publishes it.", show_default=False, rich_help_panel=_SAID),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", help="Where people find it.", show_default=False, rich_help_panel=_SAID),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(help="On behalf of which project.", show_default=False, rich_help_panel=_SAID),
    ] = None,
    person: Annotated[
        str | None,
        typer.Option(help="Who asked for the run.", show_default=False, rich_help_panel=_SAID),
    ] = None,
    key: Annotated[
        Path | None,
        KEPT,
        typer.Option(help="PEM file with the private key that signs.", show_default=False, rich_help_panel=_SAID),
    ] = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write what the files show as a document in another format, for other people's processes.

    It is made only from ledger, gate, policy and metadata, contains nothing private, and is the same for the same
    files. A folder is audited first: exit code 5 if the audit fails, 6 if something could not be checked. The document
    is written in either case, and states the result.

    Example: fedsynth export runs/first --format dp-card --delta 1e-5 -o card.md
    """
    from stages.export.export import export as stage

    said = Said(
        delta=delta, date=date, license=license, publisher=publisher, url=url, project=project, person=person, key=key
    )  # fmt: skip
    output = Output(as_json=json, quiet=quiet)
    with output.progress("export") as report:
        summary = stage(
            target, out, format=format, said=said, received=received or (), trust=trust, force=force, report=report
        )
    output.result(summary, lambda console: _show(console, summary))
    end_as_audited(summary, target, str(out))


def _show(console: Console, summary: dict[str, Any]) -> None:
    lines = [f"{name}" for name in summary["files"]]
    lines.append(f"{summary['format']}, {human_bytes(summary['bytes'])}")
    lines += [summary["verdict"]] if summary["verdict"] is not None else []
    for line in lines:
        console.print(line, soft_wrap=True)
