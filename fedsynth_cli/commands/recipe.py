"""`fedsynth recipe`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import click
import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Force, Json, Quiet, Rounds, Seed, Setting, Workers


def recipe(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name, or a YAML or TOML file.")],
    style: Annotated[
        str, typer.Option("--format", help="For which tool.", click_type=click.Choice(["make", "dvc", "sh"]))
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File (make, sh) or folder (dvc); else stdout.", show_default=False),
    ] = None,
    run_folder: Annotated[str, typer.Option("--run", help="The run folder that the pipeline writes.")] = "run",
    preset: Annotated[str | None, typer.Option("--preset", help="A preset of the recipe.", show_default=False)] = None,
    setting: Setting = None,
    rounds: Rounds = None,
    workers: Workers = None,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a recipe as a Makefile, a DVC pipeline or a shell script. Its files equal those of `run`, byte for byte.

    Example: fedsynth recipe fedavg --format make -o Makefile.fedavg && make -f Makefile.fedavg
    """
    from artifacts import atomic
    from artifacts.errors import UsageError
    from stages.recipes import formats
    from stages.recipes.recipe import change, load_recipe

    chosen = change(load_recipe(name, preset), setting or [], rounds)
    count = workers or 2
    if style == "dvc":
        if out is None:
            raise UsageError("--format dvc writes dvc.yaml and params.yaml: give a folder with --out.")
        files = {
            out / file: text for file, text in formats.dvc(chosen, seed=seed, workers=count, out=run_folder).items()
        }
    else:
        render = formats.makefile if style == "make" else formats.shell
        text = render(chosen, seed=seed, workers=count, out=run_folder)
        if out is None:
            sys.stdout.write(text)
            return
        files = {out: text}
    for path, content in files.items():
        atomic.write(path, [content.encode()], force=force, mode=0o755 if style == "sh" else 0o644)
    Output(as_json=json, quiet=quiet).result({"out": [str(path) for path in files], "format": style})
