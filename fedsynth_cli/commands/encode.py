"""`fedsynth encode`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.cost import with_cost
from fedsynth_cli.options import Client, Device, Force, Gate, GivenOptions, Json, Key, Out, Quiet, gated, hyper_options
from fedsynth_cli.urls import WRITTEN
from stages.registry import ENCODERS


@hyper_options("encode", ENCODERS)
def encode(
    model: Annotated[Path, typer.Argument(help="The model that the round began with.")],
    source: Annotated[
        Path,
        typer.Argument(
            metavar="UPDATE|DATA", help="The client's private update or new state; fedlap, feddm: its private data."
        ),
    ],
    out: Out,
    given: GivenOptions,
    previous: Annotated[
        Path | None,
        typer.Option(
            help="state: the client's state before this round; fedlap, feddm, tofu: its file of the round before; "
            "topk: what the round before left out.",
            show_default=False,
        ),
    ] = None,
    before: Annotated[
        Path | None,
        typer.Option(help="The model of the round before, for --sparsify moved-k.", show_default=False),
    ] = None,
    metrics: Annotated[
        Path | None,
        WRITTEN,
        typer.Option(
            help="fedlap, feddm: JSON for what was measured on the way, such as the radius's curve; private.",
            show_default=False,
        ),
    ] = None,
    error_out: Annotated[
        Path | None,
        WRITTEN,
        typer.Option(help="topk: a private file for what is left out; the next --previous.", show_default=False),
    ] = None,
    key: Key = None,
    client: Client = None,
    device: Device = "auto",
    gate: Gate = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Turn a private update, or private data, into the file that leaves. It is entered in the ledger before it is
    written to the outbox.

    An update leaves as a message: unchanged, clipped, or with a share of noise.

    Example: fedsynth encode model-0000.safetensors private/update-0001.safetensors -o outbox/message-0001.safetensors

    With --method tofu it leaves as a few images whose gradient reproduces it: smaller and obscured, but not protected.

    Example: fedsynth encode model-0000.safetensors private/update-0001.safetensors --method tofu -o
    outbox/proxy-0001.safetensors

    With --method quantised, topk or lowrank it is compressed, which hides nothing.

    Example: fedsynth encode model-0000.safetensors private/update-0001.safetensors --method quantised --bits 4 -o
    outbox/compressed-0001.safetensors

    Data leaves as a small synthetic set that replaces it for training near the current model: it matches the data's
    gradients (FedLAP) or features (FedDM). With --noise-multiplier or --target-epsilon each record is protected by
    differential privacy.

    Example: fedsynth encode model-0000.safetensors private/data.parquet --method fedlap -o
    outbox/surrogate-0001.safetensors
    """
    from stages.encode import encode as stage

    params = given.resolve(ENCODERS)
    output = Output(as_json=json, quiet=quiet)
    where: Any = device
    with output.progress("encode") as report:
        summary = stage(
            model, source, gated(out, gate), params=params, previous=previous, before=before, metrics=metrics,
            error_out=error_out, key=key,
            client=client, device=where, force=force, report=report,
        )  # fmt: skip
    output.result(with_cost(summary, params, out, key, [source]))
