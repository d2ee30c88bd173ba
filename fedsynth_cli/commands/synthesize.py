"""`fedsynth synthesize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Client, Device, Force, Given, Json, Out, Quiet, Seed, hyper_options
from stages.methods.params.synthesis import MOST_IMAGES, Synthesis


@hyper_options("synthesize", Synthesis)
def synthesize(
    generator: Annotated[Path, typer.Argument(help="The client's private generator.")],
    out: Out,
    given: Given,
    sheet: Annotated[
        Path | None, typer.Option(help="PNG of all images, numbered, for the person who approves them.")
    ] = None,
    drop: Annotated[
        str | None,
        typer.Option(help="Numbers of images to leave out: 3,17,20-25. The file will say that it was picked over."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", help="The client's key; else private/client.key beside the outbox.")
    ] = None,
    client: Client = None,
    seed: Seed = 0,
    device: Device = "auto",
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw synthetic images from a generator. Into private/ to look at them first (`--sheet`), into an outbox to send
    them: then they are recorded in its ledger, and what they tell is declared.

    Example: fedsynth synthesize private/generator.safetensors --count 100 -o outbox/synthetic.parquet
    """
    from stages.synthesize import synthesize as stage

    output = Output(as_json=json, quiet=quiet)
    where: Any = device
    params = given.resolve(Synthesis)
    with output.progress("synthesize") as report:
        summary = stage(
            generator, out, params=params, seed=seed, drop=_numbers(drop), sheet=sheet, key=key, client=client,
            device=where, force=force, report=report,
        )  # fmt: skip
    output.result(summary)


def _numbers(text: str | None) -> list[int]:
    """`3,17,20-25` → the numbers, ranges with both ends."""
    found: list[int] = []
    for part in text.split(",") if text is not None else []:
        first, dash, last = (word.strip() for word in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise typer.BadParameter(f"--drop: {part.strip()!r} is neither a number nor a range such as 20-25.")
        numbers = range(int(first), int(last if dash else first) + 1)
        if len(numbers) > MOST_IMAGES:
            raise typer.BadParameter(f"--drop: {part.strip()!r} is more than any file holds.")
        found += numbers
    return found
