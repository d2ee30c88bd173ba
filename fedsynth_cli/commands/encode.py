"""`fedsynth encode`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Client, Device, Force, Gate, Given, Json, Key, Out, Quiet, gated, hyper_options
from stages.methods.params.surrogates import SurrogateSet
from stages.methods.params.tofu import TofuEncoding
from stages.methods.params.variants import ENCODINGS


@hyper_options("encode", ENCODINGS)
def encode(
    model: Annotated[Path, typer.Argument(help="The model that the round began with.")],
    source: Annotated[
        Path,
        typer.Argument(
            metavar="UPDATE|DATA", help="The client's private update or new state; fedlap, feddm: its private data."
        ),
    ],
    out: Out,
    given: Given,
    previous: Annotated[
        Path | None,
        typer.Option(
            help="state: the client's state before this round; fedlap, feddm, tofu: its file of the round before.",
            show_default=False,
        ),
    ] = None,
    before: Annotated[
        Path | None,
        typer.Option(help="The model of the round before, for --sparsify top-k.", show_default=False),
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option(
            help="fedlap, feddm: JSON for what was measured on the way, such as the radius's curve; private.",
            show_default=False,
        ),
    ] = None,
    key: Key = None,
    client: Client = None,
    device: Device = "auto",
    gate: Gate = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Turn a private update, or private data, into the file that leaves: into an outbox, in its ledger first.

    An update leaves as a message, as it is, clipped or with a share of noise.

    Example: fedsynth encode model-0000.safetensors private/update-0001.safetensors -o outbox/message-0001.safetensors

    With --method tofu it leaves as images and soft labels whose gradient it is: obscured and smaller, not protected.

    Example: fedsynth encode model-0000.safetensors private/update-0001.safetensors --method tofu -o
    outbox/proxy-0001.safetensors

    Data leaves as a small synthetic set that stands in for it near the model: by its gradients (FedLAP), or by its
    features (FedDM). With --noise-multiplier or --target-epsilon each record is protected by differential privacy.

    Example: fedsynth encode model-0000.safetensors private/data.parquet --method fedlap -o
    outbox/surrogate-0001.safetensors
    """
    params = given.resolve(ENCODINGS)
    out = gated(out, gate)
    output = Output(as_json=json, quiet=quiet)
    common: dict[str, Any] = {"params": params, "previous": previous, "key": key, "client": client, "force": force}
    if isinstance(params, SurrogateSet):
        from stages.encode_surrogate import encode_surrogate

        _refuse("--before", before, params.method)
        where: Any = device
        with output.progress("encode") as report:
            summary = encode_surrogate(model, source, out, metrics=metrics, device=where, report=report, **common)
    elif isinstance(params, TofuEncoding):
        from stages.encode_proxy import encode_proxy

        _refuse("--before", before, params.method)
        _refuse("--metrics", metrics, params.method)
        on: Any = device
        with output.progress("encode") as report:
            summary = encode_proxy(model, source, out, device=on, report=report, **common)
    else:
        from stages.encode import encode as stage

        _refuse("--metrics", metrics, params.method)
        summary = stage(model, source, out, before=before, **common)
    output.result(summary)


def _refuse(flag: str, value: Path | None, method: str) -> None:
    if value is not None:
        raise typer.BadParameter(f"{flag} does not go with --method {method}.")
