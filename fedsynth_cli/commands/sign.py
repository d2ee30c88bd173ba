"""`fedsynth sign`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Force, Json, Quiet, RosterFile


def sign(
    files: Annotated[list[Path], typer.Argument(help="Files that leave.")],
    roster: RosterFile,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The envelope; FILE.intoto.jsonl if not given.", show_default=False),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", help="Whose file it is; else the key in its private/.", show_default=False)
    ] = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Sign how each file was made and what it claims about privacy, in a DSSE envelope next to the file.

    Clients sign what they send, the server what it gives out. The envelope leaves too, and is entered in the ledger.

    Example: fedsynth sign clients/00/outbox/message-0001.safetensors --roster public/roster.json
    """
    from stages.sign import sign as stage

    output = Output(as_json=json, quiet=quiet)
    with output.progress("sign") as report:
        summary = stage(files, roster=roster, out=out, key=key, force=force, report=report)
    output.result(summary)
