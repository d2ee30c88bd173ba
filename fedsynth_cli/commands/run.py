"""`fedsynth run`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsynth_cli.completion import recipes
from fedsynth_cli.console import Output, human_bytes, show, table
from fedsynth_cli.options import Json, Log, LogPrivate, OutOrUrl, Quiet, RecipePreset, Rounds, Seed, Setting
from stages.plugins import sources
from stages.words import counted

if TYPE_CHECKING:
    from rich.console import Console


def run(
    recipe: Annotated[
        str,
        typer.Argument(
            help="A recipe's name (`fedsynth recipe list` shows them all), or a YAML or TOML file.",
            autocompletion=recipes,
        ),
    ],
    out: OutOrUrl,
    preset: RecipePreset = None,
    setting: Setting = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            help="key=v1,v2,… as in --set, or seed=0,1,2: a run for each value, each in a folder under --out; over "
            "the recipe's own.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(help="The accuracy that the comparison of a sweep counts the rounds to.", show_default=False),
    ] = None,
    rounds: Rounds = None,
    shrink: Annotated[
        bool,
        typer.Option(
            "--shrink",
            help="The same pipeline on a handful of images of the source's size, with narrow networks, few steps and "
            "two rounds: shows in seconds whether a preset runs. Without the data, images of noise take its place.",
        ),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes, one torch thread each; if not given, one for each GPU, else one for each core.",
            show_default=False,
        ),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            help="cuda:0,cuda:1 …: where the workers compute, in turn. All GPUs if not given, else the CPU.",
            show_default=False,
        ),
    ] = None,
    log: Log = None,
    private: LogPrivate = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a complete federation on this machine. If interrupted, run it again to continue where it stopped.

    A recipe with a sweep runs once for each combination of its values, and the runs are compared at the end
    (comparison.json, .csv and .png). A key that --set fixes is not swept over.

    If --out is a URL, every file is copied there as soon as it is finished, and the run can be continued from there on
    any machine.

    Example: fedsynth run fedssyn --preset paper --shrink -o runs/shrunk
    Example: fedsynth run fedavg --rounds 5 --set train-client.learning_rate=0.05 -o runs/first
    """
    import os

    from artifacts.errors import UsageError
    from fedsynth_cli.urls import run_folder
    from stages.execution.devices import gpus, parsed
    from stages.recipes.recipe import change, load_recipe
    from stages.recipes.runner import run as run_one
    from stages.recipes.sweep import run_sweep, with_sweep
    from stages.tracking.follow import followed

    output = Output(as_json=json, quiet=quiet)
    found = load_recipe(recipe, preset, setting or [])
    chosen = change(with_sweep(found, sweep or [], target), setting or [], rounds)
    if found.by_size is not None:
        output.note(f"preset {found.by_size}, by the size of the images; fedsynth recipe show says what it sets.")
    for text in chosen.left_out[len(found.left_out) :]:
        output.warn(f"{text}.")
    if target is not None and not chosen.sweep:
        raise UsageError("--target is for the comparison of a sweep. Give --sweep too, or leave it out.")
    places = gpus() if devices is None else parsed(devices)
    num_gpus = sum(place != "cpu" for place in places)
    stage, shown = (run_sweep, _show_sweep) if chosen.sweep else (run_one, _show)
    secure = chosen.secure or "secure" in chosen.sweep
    with run_folder(out, secure=secure) as (folder, passed):
        if shrink:
            from stages.recipes.shrink import shrunk

            chosen = shrunk(chosen, folder)
        with (
            followed(folder, log or [], private=private) as following,
            output.progress(chosen.name, says_time=True) as report,
        ):
            summary = stage(
                chosen, folder, seed=seed, workers=workers or num_gpus or os.cpu_count() or 1, devices=places,
                report=following.report(passed(report)),
            )  # fmt: skip
        output.result(summary, lambda console: shown(console, summary))


def _show_sweep(console: Console, summary: dict[str, Any]) -> None:
    """As `fedsynth evaluate RUN…` shows the same."""
    from stages.evaluate.params import runs

    show(console, runs.table(summary))
    out = summary["out"]
    console.print()
    console.print(f"Comparison: {out}/comparison.json, .csv, .png", soft_wrap=True)
    if "table" in summary:
        console.print(f"Table: {summary['table']}, {summary['table_csv']}", soft_wrap=True)


def _show(console: Console, summary: dict[str, Any]) -> None:
    rows = [[row["round"], f"{row['accuracy']:.1%}", f"{row['loss']:.4f}"] for row in summary["curve"]]
    table(console, ["round", "accuracy", "loss"], _thinned(rows))
    kept = f", {summary['steps_kept']} kept from before" if summary["steps_kept"] else ""
    console.print()
    console.print(
        f"{summary['recipe']}: {summary['accuracy']:.1%} after {counted(summary['rounds'], 'round')}; the clients sent "
        f"{human_bytes(summary['bytes_sent_by_clients'])} ({counted(summary['steps_run'], 'step')} run{kept}).",
    )
    out = summary["out"]
    console.print(f"Pictures: {out}/metrics/curve.png, {out}/simulation/partition.png", soft_wrap=True)
    plugins = "".join(f" --plugin {shlex.quote(name)}" for name in sources())
    console.print(f"See what left the clients: fedsynth audit {out}{plugins}", soft_wrap=True)


def _thinned(rows: list[list[Any]]) -> list[list[Any]]:
    """At most about twenty rows: a table that fits a terminal."""
    step = -(-len(rows) // 20)
    return [row for number, row in enumerate(rows) if number % step == 0 or number == len(rows) - 1]
