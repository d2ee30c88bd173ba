"""`fedsynth roster`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Force, Json, Out, Quiet


def roster(
    identities: Annotated[list[Path], typer.Argument(help="The clients' identities, and the server's.")],
    out: Out,
    federation: Annotated[
        str | None,
        typer.Option(help="Its name, which signatures are bound to; else a digest of its keys.", show_default=False),
    ] = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Put the identities together. Every participant keeps a copy, and checks signatures by it.

    Example: fedsynth roster clients/*/private/identity.json server/private/identity.json -o public/roster.json

    To add a client later, give all identities again and the old roster's name with --federation.
    """
    from stages.identity import roster as stage

    Output(as_json=json, quiet=quiet).result(stage(identities, out, federation=federation, force=force))
