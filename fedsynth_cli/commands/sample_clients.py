"""`fedsynth sample-clients`."""

from __future__ import annotations

from typing import Annotated

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Force, Json, Out, Quiet, ServerKey


def sample_clients(
    clients: Annotated[list[str], typer.Argument(help="The names of all clients.")],
    out: Out,
    sampling_rate: Annotated[
        float, typer.Option(help="Each takes part with this probability (q).", show_default=False)
    ],
    round: Annotated[int, typer.Option(help="The round that begins.", show_default=False)],
    key: ServerKey = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw secretly which clients take part in a round, each independently of the others, under the server's key.

    Only this file says who was drawn, and it never leaves the server: otherwise the sampling would not count in ε.

    Example: fedsynth sample-clients 00 01 02 03 --sampling-rate 0.5 --round 1 -o server/private/clients-0001.json
    """
    from stages.sample_clients import sample_clients as stage

    summary = stage(clients, out, sampling_rate=sampling_rate, round=round, key=key, force=force)
    Output(as_json=json, quiet=quiet).result(summary)
