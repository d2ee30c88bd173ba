"""`fedsynth federate join`, `step`, `status` and `units`: a federation whose parties share a folder, and no network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsynth_cli.console import Output, complain, table
from fedsynth_cli.options import Force, Json, Log, LogPrivate, Out, Quiet

if TYPE_CHECKING:
    from rich.console import Console

WAITING = 75  # «try again later», as sysexits.h has it

Home = Annotated[Path, typer.Option("--home", help="The participant's folder, with all its files.", show_default=False)]
Name = Annotated[str | None, typer.Option("--client", help="This client's name.", show_default="by the key in --home")]


def join(
    terms: Annotated[Path, typer.Argument(metavar="TERMS", help="The federation.yaml that you have read.")],
    home: Home,
    data: Annotated[
        str, typer.Option("--data", help="A client's images; at the server, the public test set.", show_default=False)
    ],
    client: Annotated[
        str | None, typer.Option("--client", help="This client's name.", show_default="the server")
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option("--like", help="At a client: the public test set, for classes and size.", show_default=False),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a participant's home: the terms, its data, a key, and the identity to be carried to the roster.

    What `ingest`, `keygen` and `identity` do, in one. Called again, it makes what is missing.

    Example: fedsynth federate join federation.yaml --home hospital-a --client hospital-a --data scans/
    --like test.parquet
    """
    from stages.federate.join import join as stage

    Output(as_json=json, quiet=quiet).result(stage(terms, home, client=client, data=data, like=like))


def step(
    home: Home,
    drop: Annotated[
        str,
        typer.Option("--drop", metavar="PATH|URL", help="The folder that all parties reach.", show_default=False),
    ],
    client: Name = None,
    log: Log = None,
    private: LogPrivate = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Do what the files at hand allow, and end: a federation without a network, through a drop folder.

    Exit code 0: the federation is at its end here. 75: others must do something first; call again later, by cron or
    Slurm. Called too often, or killed, it changes nothing twice. What lies in the drop folder is sealed to its reader.

    Example: fedsynth federate step --home hospital-a --drop /mnt/drop
    """
    from stages.federate.step import step as stage
    from stages.tracking.follow import followed

    output = Output(as_json=json, quiet=quiet)
    with followed(home, log or [], private=private) as following, output.progress("step") as report:
        report = following.report(report)
        done, summary = stage(home, drop, client=client, log=_log(quiet), report=report)
    output.result(summary)
    if not done:
        raise typer.Exit(WAITING)


def status(
    home: Home,
    client: Name = None,
    delta: Annotated[
        float | None, typer.Option("--delta", help="Say ε of what left, at this δ.", show_default=False)
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say how far a federation is, by the files of one home: rounds, who is waited for since when, bytes, ε.

    Example: fedsynth federate status --home server --delta 1e-5
    """
    from stages.federate.status import status as stage

    summary = stage(home, client=client, delta=delta)
    Output(as_json=json, quiet=quiet).result(summary, lambda console: _show(console, summary))


def units(
    home: Home,
    drop: Annotated[
        str,
        typer.Option("--drop", metavar="PATH|URL", help="The folder that all parties reach.", show_default=False),
    ],
    out: Out,
    client: Name = None,
    every: Annotated[int, typer.Option("--every", min=1, help="Seconds between two steps.")] = 300,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a systemd service and timer that call `federate step`, with no rights beyond its home and the drop folder.

    With a drop folder on a disk the service has no network at all.

    Example: fedsynth federate units --home hospital-a --drop /mnt/drop -o units
    """
    from stages.federate.units import units as stage

    Output(as_json=json, quiet=quiet).result(stage(home, drop, out, client=client, every=every, force=force))


def _show(console: Console, summary: dict[str, Any]) -> None:
    kept = {name: value for name, value in summary.items() if name not in ("clients", "waits_for")}
    for name, value in kept.items():
        console.print(f"{name.replace('_', ' '):<18}  {', '.join(value) if isinstance(value, list) else value}")
    if isinstance(summary.get("waits_for"), str):
        console.print(f"{'waits for':<18}  {summary['waits_for']}")
    rows = summary["clients"]
    if rows:
        columns = [name.replace("_", " ") for name in rows[0]]
        words = {True: "yes", False: "no"}
        table(console, columns, [[words[v] if isinstance(v, bool) else v for v in row.values()] for row in rows])


def _log(quiet: bool) -> Any:
    from stages.federate.child import silent

    return silent if quiet else complain
