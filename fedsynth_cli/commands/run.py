"""`fedsynth run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsynth_cli.console import Output, human_bytes, table
from fedsynth_cli.options import Json, Out, Quiet, Rounds, Seed, Setting, Workers

if TYPE_CHECKING:
    from rich.console import Console


def run(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (fedavg, fedprox, fedsgd), or a YAML or TOML file.")],
    out: Out,
    preset: Annotated[str | None, typer.Option("--preset", help="A preset of the recipe.", show_default=False)] = None,
    setting: Setting = None,
    rounds: Rounds = None,
    workers: Workers = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a whole federation on this machine. Interrupted, it goes on where it stopped when run again.

    Example: fedsynth run fedavg --rounds 5 --set train-client.learning_rate=0.05 -o runs/first
    """
    import os

    from stages.recipes.recipe import change, load_recipe
    from stages.recipes.runner import run as stage

    output = Output(as_json=json, quiet=quiet)
    chosen = change(load_recipe(recipe, preset), setting or [], rounds)
    with output.progress(chosen.name) as report:
        summary = stage(chosen, out, seed=seed, workers=workers or os.cpu_count() or 1, report=report)
    output.result(summary, lambda console: _show(console, summary))


def _show(console: Console, summary: dict[str, Any]) -> None:
    rows = [[row["round"], f"{row['accuracy']:.1%}", f"{row['loss']:.4f}"] for row in summary["curve"]]
    table(console, ["round", "accuracy", "loss"], _thinned(rows))
    kept = f", {summary['steps_kept']} kept from before" if summary["steps_kept"] else ""
    console.print(
        f"\n{summary['recipe']}: {summary['accuracy']:.1%} after {summary['rounds']} rounds; the clients sent "
        f"{human_bytes(summary['bytes_sent_by_clients'])} ({summary['steps_run']} steps run{kept}).",
        highlight=False,
    )
    out = summary["out"]
    console.print(f"Pictures: {out}/metrics/curve.png, {out}/simulation/partition.png", highlight=False, soft_wrap=True)
    console.print(f"See what left the clients: fedsynth audit {out}", highlight=False, soft_wrap=True)


def _thinned(rows: list[list[Any]]) -> list[list[Any]]:
    """At most about twenty rows: a table that fits a terminal."""
    step = -(-len(rows) // 20)
    return [row for number, row in enumerate(rows) if number % step == 0 or number == len(rows) - 1]
