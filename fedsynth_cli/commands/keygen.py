"""`fedsynth keygen`."""

from __future__ import annotations

from fedsynth_cli.console import Output
from fedsynth_cli.options import Force, Json, Out, Quiet


def keygen(out: Out, force: Force = False, json: Json = False, quiet: Quiet = False) -> None:
    """Make a secret key: 32 bytes from the operating system, readable by its owner alone.

    Example: fedsynth keygen -o hospital/private/client.key
    """
    from stages.keygen import keygen as stage

    Output(as_json=json, quiet=quiet).result(stage(out, force=force))
