"""`fedsynth aggregate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click
import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Force, Given, Json, Out, Quiet, hyper_options
from stages.methods.params.aggregation import Aggregation


@hyper_options("aggregate", Aggregation)
def aggregate(
    model: Annotated[Path, typer.Argument(help="The model that the round began with.")],
    out: Out,
    given: Given,
    messages: Annotated[
        list[Path] | None, typer.Argument(help="The clients' messages of this round.", show_default=False)
    ] = None,
    result: Annotated[
        str,
        typer.Option("--as", help="What to write.", click_type=click.Choice(["model", "update", "state"])),
    ] = "model",
    state: Annotated[
        Path | None, typer.Option(help="The server's state of the round before.", show_default=False)
    ] = None,
    state_out: Annotated[Path | None, typer.Option(help="feddyn: the server's new state.", show_default=False)] = None,
    before: Annotated[
        Path | None,
        typer.Option(help="The model of the round before, for --sparsify top-k.", show_default=False),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", help="dp-mean: the server's key; else server.key in its private/.", show_default=False),
    ] = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Average the messages of a round into the next model. One bad message is refused by name; nothing is written.

    Example: fedsynth aggregate model-0000.safetensors clients/*/outbox/message-0001.safetensors
    -o server/outbox/model-0001.safetensors
    """
    from stages.aggregate import aggregate as stage

    output = Output(as_json=json, quiet=quiet)
    kind: Any = result
    params = given.resolve(Aggregation)
    with output.progress("aggregate") as report:
        summary = stage(
            model, messages or [], out, params=params, result=kind, state=state, state_out=state_out, before=before,
            key=key, force=force, report=report,
        )  # fmt: skip
    output.result(summary)
