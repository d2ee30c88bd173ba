"""`fedsynth train-client`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Client, Device, Force, Given, Json, Out, Quiet, Seed, hyper_options
from stages.methods.params.local_training import LocalTraining


@hyper_options("train-client", LocalTraining)
def train_client(
    model: Annotated[Path, typer.Argument(help="The model that the server sent.")],
    data: Annotated[list[Path], typer.Argument(help="The client's dataset, or several.")],
    out: Out,
    given: Given,
    client: Client = None,
    seed: Seed = 0,
    device: Device = "auto",
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on the client's data for one round. The update that it writes is private: `encode` makes the message.

    Example: fedsynth train-client model-0000.safetensors private/data.parquet -o private/update-0001.safetensors
    """
    from stages.train_client import train_client as stage

    output = Output(as_json=json, quiet=quiet)
    where: Any = device
    params = given.resolve(LocalTraining)
    with output.progress("train-client") as report:
        summary = stage(
            model, data, out, params=params, seed=seed, client=client, device=where, force=force, report=report
        )
    output.result(summary)
