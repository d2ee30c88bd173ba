"""`fedsynth recipe`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from fedsynth_cli.completion import recipe_words, recipes
from fedsynth_cli.console import Output, table
from fedsynth_cli.naming import shown_lines
from fedsynth_cli.options import Force, Json, Quiet, RecipePreset, Rounds, Seed, Setting, Workers
from fedsynth_cli.urls import WRITTEN

if TYPE_CHECKING:
    from rich.console import Console

    from stages.recipes.recipe import Recipe

_FORMATS = ["make", "dvc", "snakemake", "sh"]


def recipe(
    name: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="A recipe's name, or a YAML or TOML file; or `list`, or `show`.",
            autocompletion=recipe_words,
        ),
    ],
    which: Annotated[
        str | None,
        typer.Argument(
            metavar="[RECIPE]", help="After `show`: the recipe.", show_default=False, autocompletion=recipes
        ),
    ] = None,
    style: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="The tool to write it for.",
            show_default=False,
            click_type=click.Choice(_FORMATS),
        ),
    ] = None,
    out: Annotated[
        Path | None,
        WRITTEN,
        typer.Option("--out", "-o", help="A file, or a folder for dvc; stdout if not given.", show_default=False),
    ] = None,
    run_folder: Annotated[str, typer.Option("--run", help="The run folder that the pipeline writes.")] = "run",
    preset: RecipePreset = None,
    setting: Setting = None,
    rounds: Rounds = None,
    workers: Workers = None,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a recipe for Make, DVC, Snakemake or the shell. Its files equal those of `run`, byte for byte.

    `fedsynth recipe list` lists all recipes. `fedsynth recipe show RECIPE` shows every parameter of one, with its
    value, its unit and where the value comes from. A pipeline is a single run: if the recipe has a sweep, fix the
    values with --set and --seed.

    Example: fedsynth recipe show fedssyn --preset paper --set partition.clients=40
    Example: fedsynth recipe fedavg --format make -o Makefile.fedavg && make -f Makefile.fedavg
    """
    from artifacts.errors import UsageError
    from artifacts.storage.url import is_url
    from artifacts.writing import atomic
    from stages.recipes.recipe import change, load_recipe

    output = Output(as_json=json, quiet=quiet)
    if name == "list":
        _list(output)
        return
    if name == "show":
        _show(output, which, preset, setting, rounds)
        return
    if which is not None:
        raise UsageError(f"recipe {name} {which}: give one recipe, or `show` before it.")
    if is_url(run_folder):
        raise UsageError("--run: these tools look at files, so give a path. `fedsynth run` writes to a URL.")
    if style is None:
        raise UsageError("--format is missing: give make, dvc, snakemake or sh.")
    chosen = change(load_recipe(name, preset, setting or []), setting or [], rounds)
    swept = [target for target in chosen.sweep if target != "seed"]  # --seed says which
    if swept:
        fixed = " ".join(f"--set {target}=…" for target in swept)
        raise UsageError(
            f"recipe {chosen.name} sweeps over {', '.join(swept)}, and a pipeline is one run. Fix it with {fixed}, "
            "or let `fedsynth run` run them all."
        )
    given: dict[str, Any] = {"seed": seed, "workers": workers or 2, "out": run_folder}
    if style == "dvc":
        from stages.recipes.dvc_format import dvc, ignored

        if out is None:
            raise UsageError("--format dvc writes dvc.yaml and params.yaml: give a folder with --out.")
        files = {out / file: text for file, text in dvc(chosen, **given).items()}
        listed = out / ".gitignore"
        if not listed.exists() or listed.read_text() == ignored(run_folder):
            files[listed] = ignored(run_folder)
        elif not set(ignored(run_folder).split()) <= set(listed.read_text().split()):
            lines = " and ".join(ignored(run_folder).split())
            output.warn(f"private data will be in {run_folder}/: put {lines} into {listed}.")
    else:
        text = _rendered(style, chosen, given)
        if out is None:
            sys.stdout.write(shown_lines(text) if sys.stdout.isatty() else text)
            return
        files = {out: text}
    for path, content in files.items():
        atomic.write(path, [content.encode()], force=force, mode=0o755 if style == "sh" else None)
    output.result({"out": [str(path) for path in files], "format": style})


def _show(output: Output, name: str | None, preset: str | None, setting: list[str] | None, rounds: int | None) -> None:
    from artifacts.errors import UsageError
    from stages.recipes.recipe import change, load_recipe
    from stages.recipes.show import lines, shown

    if name is None:
        raise UsageError("recipe show: which? Give a recipe's name; `fedsynth recipe list` shows them all.")
    chosen = change(load_recipe(name, preset, setting or []), setting or [], rounds)

    def show(console: Console) -> None:
        console.print(f"{chosen.name}: {chosen.about}")
        table(console, ["parameter", "value", "unit", "from"], lines(chosen))
        for text in chosen.left_out:
            console.print(f"{text}.")

    output.result(shown(chosen), show)


def _rendered(style: str, recipe: Recipe, given: dict[str, Any]) -> str:
    if style == "snakemake":
        from stages.recipes.snakemake_format import snakefile

        return snakefile(recipe, **given)
    from stages.recipes.formats import makefile, shell

    return makefile(recipe, **given) if style == "make" else shell(recipe, **given)


def _list(output: Output) -> None:
    from stages.recipes.layers import names
    from stages.recipes.recipe import load_recipe, presets

    recipes = {name: load_recipe(name) for name in names()}
    rows = [
        {"name": name, "about": recipe.about, "presets": presets(name), "sweep": dict(recipe.sweep)}
        for name, recipe in recipes.items()
    ]

    def show(console: Console) -> None:
        table(console, ["recipe", "what it runs"], [[row["name"], _described(row)] for row in rows])

    output.result({"recipes": rows}, show)


def _described(row: dict[str, Any]) -> str:
    more = {"Presets": ", ".join(row["presets"]), "Sweep over": " × ".join(row["sweep"])}
    return " ".join([row["about"], *(f"{word} {names}." for word, names in more.items() if names)])
