"""`fedsynth tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsynth_cli.completion import recipes
from fedsynth_cli.console import Output, table
from fedsynth_cli.options import Json, Out, Quiet, RecipePreset, Rounds, Seed, Setting, Workers

if TYPE_CHECKING:
    from rich.console import Console


def tune(
    recipe: Annotated[str, typer.Argument(help="A recipe's name, or a YAML or TOML file.", autocompletion=recipes)],
    out: Out,
    grid: Annotated[
        list[str],
        typer.Option(
            "--grid", help="key=v1,v2,… as in --set: a trial for each combination of values.", show_default=False
        ),
    ],
    public: Annotated[
        str | None,
        typer.Option(
            help="A public dataset, as `partition` reads one: the trials are of that, and cost the private data "
            "nothing.",
            show_default=False,
        ),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="The δ at which the ε spent is stated.", show_default=False)
    ] = None,
    preset: RecipePreset = None,
    setting: Setting = None,
    rounds: Rounds = None,
    workers: Workers = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Try a small grid of parameters. Every private trial is charged to the spend ledgers, not only the one that is
    chosen.

    All trials are runs of the same clients in the folder --out, and their costs add up there (composition, not the
    best one's alone). If a client's or the server's budget.yaml does not allow all of them, none is started. The best
    by accuracy on the public test set is written as --out/tuned.yaml; run in the same folder with the same seed, it
    gives the same bytes again, for nothing. Interrupted, it goes on with the trials that are left.

    Example: fedsynth tune dp-sgd --grid train-client.learning_rate=0.1,0.5 --rounds 2 --delta 1e-5 -o runs/tuned
    Example: fedsynth run runs/tuned/tuned.yaml -o runs/tuned
    """
    import os

    from stages.recipes.recipe import change, load_recipe
    from stages.recipes.sweep import with_sweep
    from stages.recipes.tune import tune as tune_stage

    output = Output(as_json=json, quiet=quiet)
    chosen = with_sweep(change(load_recipe(recipe, preset), setting or [], rounds), grid, None)
    with output.progress("tune") as report:
        summary = tune_stage(
            chosen, Path(out), seed=seed, workers=workers or os.cpu_count() or 1, public=public, delta=delta,
            report=report,
        )  # fmt: skip
    output.result(summary, lambda console: _show(console, summary, seed))


def _show(console: Console, summary: dict[str, Any], seed: int) -> None:
    keys = list(summary["chosen"])
    rows = [
        [*(trial["values"][key] for key in keys), f"{trial['accuracy']:.1%}", f"{trial['loss']:.4f}",
         "chosen" if trial["values"] == summary["chosen"] else ""]
        for trial in summary["trials"]
    ]  # fmt: skip
    table(console, [*keys, "accuracy", "loss", ""], rows)
    console.print()
    for row in summary["spent"] or []:
        console.print(
            f"All trials together cost ε {row['epsilon']:.3f} for a {row['unit']}, by what {row['who']} spent."
        )
    folder = Path(summary["out"]).parent
    console.print(f"fedsynth run {summary['out']} --seed {seed} -o {folder}", soft_wrap=True)
