"""`fedsynth aggregate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click
import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Device, Force, GivenOptions, Json, Out, Quiet, ServerKey, hyper_options
from fedsynth_cli.urls import WRITTEN
from stages.registry import RULES


@hyper_options("aggregate", RULES)
def aggregate(
    model: Annotated[Path, typer.Argument(help="The model that the round began with.")],
    out: Out,
    given: GivenOptions,
    messages: Annotated[
        list[Path] | None, typer.Argument(help="The clients' messages or surrogates of this round.", show_default=False)
    ] = None,
    result: Annotated[
        str | None,
        typer.Option(
            "--as",
            help="What to write instead of the rule's usual result.",
            click_type=click.Choice(["model", "update"]),
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="The server's state from the previous round.", show_default=False)
    ] = None,
    state_out: Annotated[
        Path | None, WRITTEN, typer.Option(help="Where to write its new state.", show_default=False)
    ] = None,
    before: Annotated[
        Path | None,
        typer.Option(help="The model of the round before, for --sparsify moved-k.", show_default=False),
    ] = None,
    require_signed: Annotated[
        Path | None,
        typer.Option(
            metavar="ROSTER", help="Refuse files that no client in this roster has signed.", show_default=False
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="fedlap, feddm: a surrogate that cannot be used stops the round."),
    ] = False,
    metrics: Annotated[
        Path | None,
        WRITTEN,
        typer.Option(help="fedlap, feddm: JSON with radii, steps and losses, for the server.", show_default=False),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="feddm: for the order of the batches; fedlap: for augmentations and fresh weights (default 0).",
            show_default=False,
        ),
    ] = None,
    key: ServerKey = None,
    device: Device = "auto",
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compute the next model from what the clients sent: average their messages, or train on their synthetic sets.

    Messages are averaged. If one of them is bad, the command names it and writes nothing.

    Example: fedsynth aggregate model-0000.safetensors clients/*/outbox/message-0001.safetensors
    -o server/outbox/model-0001.safetensors

    Surrogates (--rule fedlap, --rule feddm) are small synthetic sets that the model is trained on. One that cannot be
    used is left out and named; with --strict it stops the round.

    Example: fedsynth aggregate model-0000.safetensors clients/*/outbox/surrogate-0001.safetensors --rule fedlap
    -o server/outbox/model-0001.safetensors

    With --require-signed every file needs a signature next to it (fedsynth sign): exit code 5 if one is missing, is not
    from a client in the roster, or does not match the file.

    Example: fedsynth aggregate model-0000.safetensors clients/*/outbox/message-0001.safetensors
    --require-signed public/roster.json -o server/outbox/model-0001.safetensors
    """
    from stages.aggregate import aggregate as stage

    output = Output(as_json=json, quiet=quiet)
    params = given.resolve(RULES)
    where: Any = device
    with output.progress("aggregate") as report:
        summary = stage(
            model, messages or [], out, params=params, result=result, state=state, state_out=state_out, before=before,
            strict=strict or None, metrics=metrics, seed=seed, key=key, signed_by=require_signed, device=where,
            force=force, report=report,
        )  # fmt: skip
    for why in summary.get("left_out", []):
        output.warn(f"left out: {why}")
    if "unchanged" in summary:
        output.warn(f"the model did not change: {summary['unchanged']}")
    output.result(summary)
