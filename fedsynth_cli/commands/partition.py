"""`fedsynth partition`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Force, GivenOptions, Json, Out, Quiet, Seed, hyper_options
from fedsynth_cli.urls import FOLDER
from stages.data.params import PartitionParams


@hyper_options("partition", PartitionParams)
def partition(
    source: Annotated[
        str,
        typer.Argument(
            help="digits, mnist, fashion-mnist, cifar10, cifar100, emnist, a Parquet file or folder, "
            "a folder of class folders, or a URL of one of these."
        ),
    ],
    out: Out,
    given: GivenOptions,
    root: Annotated[
        Path | None, FOLDER, typer.Option(help="Folder of torchvision's datasets.", show_default=False)
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Let torchvision fetch the dataset into --root.")
    ] = False,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Divide a dataset among the clients of a simulation and write the run folder.

    Example: fedsynth partition digits --clients 5 --scheme dirichlet --alpha 0.1 -o runs/first
    """
    from artifacts.writing import locks
    from stages.partition import partition as stage

    output = Output(as_json=json, quiet=quiet)
    params = given.resolve(PartitionParams)
    with locks.held(out, "fedsynth partition"), output.progress("partition") as report:
        summary = stage(source, out, params=params, seed=seed, root=root, download=download, force=force, report=report)
    output.result(summary)
