"""`fedsynth budget`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsynth_cli.console import Output, table
from fedsynth_cli.options import Json, Quiet

if TYPE_CHECKING:
    from rich.console import Console


def budget() -> None:
    """Show what private data has cost in ε so far, and how much of its budget is left.

    show takes --json and --quiet.

    Example: fedsynth budget show clients/00
    """


def show(
    place: Annotated[Path, typer.Argument(help="A client's folder, its private/, or the data itself.")],
    delta: Annotated[float | None, typer.Option(help="δ, if no budget.yaml sets it.", show_default=False)] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List every charge to the data with its cost, the total, and what is left of budget.yaml.

    Example: fedsynth budget show clients/00

    Example: fedsynth budget show clients/00/private/data.parquet --delta 1e-5
    """
    from stages.budget import show as stage

    summary = stage(place, delta=delta)
    Output(as_json=json, quiet=quiet).result(summary, lambda console: _show(console, summary))


def _show(console: Console, summary: dict[str, Any]) -> None:
    rows = [[one["stage"], one["unit"], one["mechanism"], one["epsilon"]] for one in summary["charges"]]
    if rows:
        table(console, ["charged by", "protects", "noise", "ε alone"], rows)
    else:
        console.print("nothing was charged yet")
    left = (
        f"; {summary['budget_left']} of the budget of {summary['budget']} is left" if "budget_left" in summary else ""
    )
    console.print(f"ε in all: {summary['epsilon_in_all']}, at δ {summary['delta']:g}{left}")


def group() -> typer.Typer:
    """`show` as a subcommand."""
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(budget)
    app.command("show")(show)
    return app
