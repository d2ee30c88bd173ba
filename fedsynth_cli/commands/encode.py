"""`fedsynth encode`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Client, Force, Given, Json, Key, Out, Quiet, hyper_options
from stages.methods.params.encoding import Encoding


@hyper_options("encode", Encoding)
def encode(
    model: Annotated[Path, typer.Argument(help="The model that the round began with.")],
    update: Annotated[Path, typer.Argument(help="The client's private update, or its new state.")],
    out: Out,
    given: Given,
    previous: Annotated[
        Path | None, typer.Option(help="--method state: the client's state before this round.", show_default=False)
    ] = None,
    before: Annotated[
        Path | None,
        typer.Option(help="The model of the round before, for --sparsify top-k.", show_default=False),
    ] = None,
    key: Key = None,
    client: Client = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Turn a private update into the message that leaves: into an outbox, recorded in its ledger first.

    Example: fedsynth encode model-0000.safetensors private/update-0001.safetensors -o outbox/message-0001.safetensors
    """
    from stages.encode import encode as stage

    params = given.resolve(Encoding)
    summary = stage(
        model, update, out, params=params, previous=previous, before=before, key=key, client=client, force=force
    )
    Output(as_json=json, quiet=quiet).result(summary)
