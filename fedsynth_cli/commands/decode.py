"""`fedsynth decode`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Force, Json, Out, Quiet


def decode(
    model: Annotated[Path, typer.Argument(help="The model that the round began with.")],
    message: Annotated[Path, typer.Argument(help="A message, or an aggregated update.")],
    out: Out,
    apply: Annotated[bool, typer.Option("--apply", help="Write the updated model instead of the update.")] = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Read the update from a message; with --apply, write the updated model.

    Example: fedsynth decode model-0000.safetensors message-0001.safetensors -o server/private/update.safetensors
    """
    from stages.decode import decode as stage

    Output(as_json=json, quiet=quiet).result(stage(model, message, out, apply=apply, force=force))
