"""`fedsynth synthesize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import (
    Client,
    Device,
    Force,
    Gate,
    GivenOptions,
    Json,
    Key,
    Out,
    Quiet,
    Seed,
    gated,
    hyper_options,
    numbers,
)
from fedsynth_cli.urls import WRITTEN
from stages.methods.params.synthesis import MOST_IMAGES, Synthesis


@hyper_options("synthesize", Synthesis)
def synthesize(
    generator: Annotated[Path, typer.Argument(help="The client's private generator.")],
    out: Out,
    given: GivenOptions,
    sheet: Annotated[
        Path | None, WRITTEN, typer.Option(help="PNG of all images, numbered, for the person who approves them.")
    ] = None,
    drop: Annotated[
        str | None,
        typer.Option(help="Numbers of images to leave out: 3,17,20-25. The file will say that it was picked over."),
    ] = None,
    reviewed: Annotated[
        Path | None,
        typer.Option(
            help="Instead: a Parquet copy of the private file with rows taken out; what it still holds may leave.",
            show_default=False,
        ),
    ] = None,
    key: Key = None,
    client: Client = None,
    seed: Seed = 0,
    device: Device = "auto",
    gate: Gate = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw synthetic images from a generator. Write them to private/ to look at them first (`--sheet`), or to an
    outbox to send them; then they are entered in the ledger, and what they disclose is declared.

    Example: fedsynth synthesize private/generator.safetensors --count 100 -o outbox/synthetic.parquet
    """
    from stages.generators.file import facts_in
    from stages.synthesize import synthesize as stage

    output = Output(as_json=json, quiet=quiet)
    where: Any = device
    params = given.resolve(Synthesis, **facts_in(generator))
    out = gated(out, gate)
    with output.progress("synthesize") as report:
        summary = stage(
            generator, out, params=params, seed=seed, drop=numbers(drop, "--drop", MOST_IMAGES),
            reviewed=reviewed, sheet=sheet, key=key, client=client, device=where, force=force, report=report,
        )  # fmt: skip
    output.result(summary)
