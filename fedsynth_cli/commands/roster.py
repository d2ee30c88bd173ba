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
        typer.Option(
            help="The federation's id, which signatures are bound to; a new one if not given.", show_default=False
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="The last day on which the roster is valid, YYYY-MM-DD.", show_default=False)
    ] = None,
    signed: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="A kind of file that must be signed. Repeatable.", show_default=False),
    ] = None,
    rounds: Annotated[
        tuple[int, int] | None,
        typer.Option(metavar="FIRST LAST", help="Require signatures in these rounds only.", show_default=False),
    ] = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Combine the identities of all participants in one file. Everyone keeps a copy and checks signatures against it.

    Example: fedsynth roster clients/*/private/identity.json server/private/identity.json -o public/roster.json

    To add a client later, give all identities again and the old roster's id with --federation.
    """
    from stages.identity import roster as stage

    Output(as_json=json, quiet=quiet).result(
        stage(identities, out, federation=federation, expires=expires, signed=signed or (), rounds=rounds, force=force)
    )
