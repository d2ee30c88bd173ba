"""`fedsynth identity`."""

from __future__ import annotations

from fedsynth_cli.console import Output
from fedsynth_cli.options import Client, Force, Json, Key, Out, Quiet


def identity(
    out: Out, key: Key = None, client: Client = None, force: Force = False, json: Json = False, quiet: Quiet = False
) -> None:
    """Write the public half of a participant's signing keys, to be sent to the others over a channel they trust.

    Example: fedsynth identity -o clients/00/private/identity.json

    In the server's folder it writes the server's identity, for the receipts that the server issues.

    Example: fedsynth identity -o server/private/identity.json
    """
    from stages.identity import identity as stage

    Output(as_json=json, quiet=quiet).result(stage(out, key=key, client=client, force=force))
