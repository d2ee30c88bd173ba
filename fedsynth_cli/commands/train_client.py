"""`fedsynth train-client`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.cost import with_cost
from fedsynth_cli.options import Client, Device, Force, GivenOptions, Json, Key, Out, Quiet, Seed, hyper_options
from fedsynth_cli.urls import WRITTEN
from stages.registry import ALGORITHMS


@hyper_options("train-client", ALGORITHMS)
def train_client(
    model: Annotated[Path, typer.Argument(help="The model that the server sent.")],
    data: Annotated[list[Path], typer.Argument(help="The client's dataset, or several.")],
    out: Out,
    given: GivenOptions,
    state: Annotated[
        Path | None,
        typer.Option(help="The client's state from its last round, if the algorithm keeps one.", show_default=False),
    ] = None,
    server_state: Annotated[
        Path | None, typer.Option(help="The server's control variates, if the algorithm has any.", show_default=False)
    ] = None,
    state_out: Annotated[
        Path | None, WRITTEN, typer.Option(help="Where to write the new state; it is private.", show_default=False)
    ] = None,
    key: Key = None,
    client: Client = None,
    seed: Seed = 0,
    device: Device = "auto",
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on the client's data for one round. The resulting update is private; `encode` turns it into the message.

    With --noise-multiplier or --target-epsilon it trains by DP-SGD for individual records, charged to the spend
    ledger next to the key.

    Example: fedsynth train-client model-0000.safetensors private/data.parquet -o private/update-0001.safetensors
    """
    from stages.train_client import train_client as stage

    output = Output(as_json=json, quiet=quiet)
    where: Any = device
    params = given.resolve(ALGORITHMS)
    for warning in params.warnings():
        output.warn(f"{warning}.")
    with output.progress("train-client") as report:
        summary = stage(
            model, data, out, params=params, seed=seed, client=client, state=state, server_state=server_state,
            state_out=state_out, key=key, device=where, force=force, report=report,
        )  # fmt: skip
    output.result(with_cost(summary, params, out, key, data))
