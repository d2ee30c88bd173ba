"""`fedsynth train-generator`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.cost import with_cost
from fedsynth_cli.options import (
    Client,
    Device,
    Force,
    GivenOptions,
    Json,
    Key,
    Out,
    Quiet,
    Seed,
    hyper_options,
    numbers,
)
from stages.registry import GENERATORS


@hyper_options("train-generator", GENERATORS)
def train_generator(
    data: Annotated[list[Path], typer.Argument(help="The client's dataset, or several.")],
    out: Out,
    given: GivenOptions,
    checkpoint_every: Annotated[
        int, typer.Option(min=0, help="Steps between checkpoints beside the output; 0: none. Changes no result.")
    ] = 100,
    keep_at: Annotated[
        str | None, typer.Option(help="Steps after which the generator is written too: 1000,5000. One training.")
    ] = None,
    key: Key = None,
    client: Client = None,
    seed: Seed = 0,
    device: Device = "auto",
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a class-conditional generator on the client's images. It is private and never leaves; `synthesize`
    draws the images that do. If killed, run it again: it continues from its last checkpoint, with the same result.

    With --noise-multiplier or --target-epsilon the training is differentially private for single records: it is charged
    to the spend ledger beside the key, and the images inherit its cost.

    Example: fedsynth train-generator private/data.parquet -o private/generator.safetensors
    Example: fedsynth train-generator data.parquet --target-epsilon 10 --delta 1e-5 --sampling-rate 0.1 -o g.safetensors
    """
    from stages.data.dataset_images import describe_dataset
    from stages.train_generator import train_generator as stage

    output = Output(as_json=json, quiet=quiet)
    where: Any = device
    params = given.resolve(GENERATORS)
    about = describe_dataset(data[0]).metadata.params
    for warning in params.warnings(min(about["height"], about["width"])):
        output.warn(f"{warning}.")
    with output.progress("train-generator") as report:
        summary = stage(
            data, out, params=params, seed=seed, keep_at=numbers(keep_at, "--keep-at"), key=key, client=client,
            device=where, checkpoint_every=checkpoint_every, force=force, report=report,
        )  # fmt: skip
    output.result(with_cost(summary, params, out, key, data))
