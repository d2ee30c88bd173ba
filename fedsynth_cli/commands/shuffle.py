"""`fedsynth shuffle`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Force, Json, Out, Quiet, Seed


def shuffle(
    datasets: Annotated[list[Path], typer.Argument(metavar="SYN...", help="The clients' synthetic datasets.")],
    parts: Annotated[int, typer.Option("--parts", min=1, help="Number of parts, usually one for each client.")],
    out: Out,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Mix the clients' synthetic datasets and split them into parts that do not reveal which client a row came from.

    Example: fedsynth shuffle clients/*/outbox/synthetic.parquet --parts 10 -o server/outbox
    """
    from stages.shuffle import shuffle as stage

    output = Output(as_json=json, quiet=quiet)
    with output.progress("shuffle") as report:
        summary = stage(datasets, out, parts=parts, seed=seed, force=force, report=report)
    output.result(summary)
