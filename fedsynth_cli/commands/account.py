"""`fedsynth account`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from fedsynth_cli.console import Output, table
from fedsynth_cli.options import Force, Json, Quiet
from fedsynth_cli.urls import WRITTEN

if TYPE_CHECKING:
    from rich.console import Console

_PLAN = "account plan"


def account(
    targets: Annotated[
        list[str], typer.Argument(metavar="FILE… | RUN | plan", help="Files, a client's folder, a run; or: plan.")
    ],
    delta: Annotated[float, typer.Option(help="δ: the probability left to chance. No default.", show_default=False)],
    orders: Annotated[
        str,
        typer.Option(
            help="Rényi orders: fine, or papers (1.1, 1.2 … 10.9, 12 … 63), on which published figures were computed.",
            click_type=click.Choice(["fine", "papers"]),
        ),
    ] = "fine",
    csv: Annotated[Path | None, WRITTEN, typer.Option(help="CSV: ε after each round.", show_default=False)] = None,
    picture: Annotated[Path | None, WRITTEN, typer.Option(help="PNG: ε over rounds.", show_default=False)] = None,
    sampling_rate: Annotated[
        float | None,
        typer.Option(help="q: how likely a record is in a step.", show_default=False, rich_help_panel=_PLAN),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="T: steps in a round.", show_default=False, rich_help_panel=_PLAN)
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds of T steps; 1 if not given.", show_default=False,
                                 rich_help_panel=_PLAN)
    ] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="σ: noise as a multiple of the clip.", show_default=False, rich_help_panel=_PLAN),
    ] = None,
    target_epsilon: Annotated[
        float | None,
        typer.Option(help="Find σ for this ε instead.", show_default=False, rich_help_panel=_PLAN),
    ] = None,
    adjacency: Annotated[
        str | None,
        typer.Option(
            help="Which datasets are neighbours; add-or-remove if not given.", show_default=False,
            click_type=click.Choice(["add-or-remove", "replace-one"]), rich_help_panel=_PLAN,
        ),
    ] = None,
    participation: Annotated[
        float | None,
        typer.Option(
            help="C: beside it, Theorem A.8 of FedLAP-DP with clients drawn by this rate. A calculation, no guarantee.",
            show_default=False, rich_help_panel=_PLAN,
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="Whose ε meets the target: pld (tight), or rdp as in the papers.", show_default=False,
            click_type=click.Choice(["pld", "rdp"]), rich_help_panel=_PLAN,
        ),
    ] = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Say what the files that left cost in ε, for each client; or plan it before anything leaves.

    Example: fedsynth account runs/first --delta 1e-5

    Example: fedsynth account plan --sampling-rate 0.0256 --steps 200 --rounds 15 --noise-multiplier 1 --delta 1e-5
    """
    from artifacts.errors import UsageError

    given = {
        "sampling_rate": sampling_rate, "steps": steps, "rounds": rounds, "noise_multiplier": noise_multiplier,
        "target_epsilon": target_epsilon, "adjacency": adjacency, "participation": participation, "by": by,
    }  # fmt: skip
    given = {name: value for name, value in given.items() if value is not None}
    output = Output(as_json=json, quiet=quiet)
    outputs: dict[str, Any] = {"delta": delta, "orders": orders, "csv": csv, "picture": picture, "force": force}
    if targets == ["plan"]:
        for name in ("sampling_rate", "steps"):
            if name not in given:
                raise UsageError(f"account plan needs --{name.replace('_', '-')}.")
        from stages.account import plan

        values: Any = given
        summary = plan(**values, **outputs)
        output.result(summary, lambda console: _show_plan(console, summary))
        return
    if given:
        flag = "--" + next(iter(given)).replace("_", "-")
        raise UsageError(f"{flag} goes with `fedsynth account plan`. (A file of that name is ./plan.)")
    from stages.account import account as stage

    with output.progress("account") as report:
        result = stage([Path(target) for target in targets], **outputs, report=report)
    output.result(result, lambda console: _show(console, result))


def _show_plan(console: Console, summary: dict[str, Any]) -> None:
    epsilon = summary["epsilon"]
    steps = summary["rounds"] * summary["steps"]
    lines = [
        f"ε = {_number(epsilon['pld'])} by privacy loss distributions, {_number(epsilon['rdp'])} by Rényi "
        f"(δ = {summary['delta']:g}, {summary['adjacency']})",
        f"σ = {summary['noise_multiplier']:g}, q = {summary['sampling_rate']:g}, {steps:,} steps in "
        f"{summary['rounds']:,} round{'s' if summary['rounds'] > 1 else ''}",
    ]
    if summary["theorem_a8"]:
        lines.append(
            f"With the two rates of FedLAP-DP's Theorem A.8 it is {_number(summary['theorem_a8']['rdp'])} (RDP), a "
            "calculation and no guarantee: a file in an outbox shows that its client took part."
        )
    for line in lines:
        console.print(line, soft_wrap=True)


def _show(console: Console, result: dict[str, Any]) -> None:
    rows = []
    for row in result["clients"]:
        rest = f"{_number(row['rest']['pld'])} / {_number(row['rest']['rdp'])}" if row["rest"] else "–"
        relation = f"{row['unit']}, {row['adjacency']}" if row["unit"] else "–"
        pld, rdp = (_number(row["epsilon"][name]) for name in ("pld", "rdp"))
        rows.append([row["client"], row["files"], relation, pld, rdp, rest, ", ".join(row["trusted"]) or "–"])
    table(console, ["who", "files", "unit", "ε (PLD)", "ε (RDP)", "ε of the rest", "trusts"], rows)
    lines = [f"δ = {result['delta']:g}."]
    for row in result["clients"]:
        if row["uncovered"]:
            first, more = row["uncovered"][0], len(row["uncovered"]) - 1
            others = f" (and {more} more)" if more else ""
            lines.append(f"∞ for {row['client']}: {first['file']}: {first['why']}{others}.")
    for row in result["clients"]:
        if row["alone"]:
            lines.append(
                f"{row['client']} sent noise in shares: to whoever sees its files alone ε is "
                f"{_number(row['alone']['pld'])}."
            )
    for total in result["across_clients"]:
        disjoint, together = total["if_disjoint"]["pld"], total["if_one_is_in_all"]["pld"]
        if len(result["clients"]) > 1:
            lines.append(
                f"Over all clients, for one {total['unit']}: {_number(disjoint)} if no person is in two clients' data, "
                f"{_number(together)} if one may be in all. Whoever has several records has more at stake."
            )
        else:
            lines.append(
                f"For one {total['unit']}: {_number(disjoint)}, of what this one sent alone. Whoever has several "
                "records, or is in others' data, too, has more at stake."
            )
    for line in [*lines, *result["notes"]]:
        console.print(line, soft_wrap=True)


def _number(value: float | str) -> str:
    """Three decimals, rounded up: an ε is never shown smaller than it is."""
    return "∞" if isinstance(value, str) else f"{math.ceil(value * 1000) / 1000:.3f}"
