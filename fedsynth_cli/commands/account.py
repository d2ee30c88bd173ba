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
    delta: Annotated[
        float, typer.Option(help="δ: the probability that the guarantee may fail. No default.", show_default=False)
    ],
    orders: Annotated[
        str,
        typer.Option(
            help="Rényi orders: fine, or papers (1.1, 1.2 … 10.9, 12 … 63), on which published figures were computed.",
            click_type=click.Choice(["fine", "papers"]),
        ),
    ] = "fine",
    person: Annotated[
        bool,
        typer.Option(
            "--person",
            help="One number for each unit (record, person, client) over all that left, with the reason for every ∞.",
        ),
    ] = False,
    csv: Annotated[Path | None, WRITTEN, typer.Option(help="CSV: ε after each round.", show_default=False)] = None,
    picture: Annotated[Path | None, WRITTEN, typer.Option(help="PNG: ε over rounds.", show_default=False)] = None,
    sampling_rate: Annotated[
        float | None,
        typer.Option(help="q: the probability that a record is in a step.", show_default=False, rich_help_panel=_PLAN),
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
    utility: Annotated[
        bool,
        typer.Option(
            "--utility", help="Show how much signal the noise leaves; needs --dimension, --clip-norm and --batch-size.",
            rich_help_panel=_PLAN,
        ),
    ] = False,
    dimension: Annotated[
        int | None,
        typer.Option(min=1, help="d: numbers that are noised in a step, such as weights.", show_default=False,
                     rich_help_panel=_PLAN),
    ] = None,
    clip_norm: Annotated[
        float | None,
        typer.Option(help="C: the largest norm of a contribution.", show_default=False, rich_help_panel=_PLAN),
    ] = None,
    batch_size: Annotated[
        float | None,
        typer.Option(help="qN: records, people or clients that are expected in a step.", show_default=False,
                     rich_help_panel=_PLAN),
    ] = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Compute what the files that left cost in ε, for each client; or plan the cost before anything leaves.

    Example: fedsynth account runs/first --delta 1e-5

    Example: fedsynth account runs/first --person --delta 1e-5

    Example: fedsynth account plan --sampling-rate 0.0256 --steps 200 --rounds 15 --noise-multiplier 1 --delta 1e-5

    Example: fedsynth account plan --sampling-rate 0.1 --steps 40 --rounds 20 --target-epsilon 2 --delta 1e-5 \
    --utility --dimension 60000 --clip-norm 1 --batch-size 144
    """
    from artifacts.errors import UsageError

    given = {
        "sampling_rate": sampling_rate, "steps": steps, "rounds": rounds, "noise_multiplier": noise_multiplier,
        "target_epsilon": target_epsilon, "adjacency": adjacency, "participation": participation, "by": by,
        "dimension": dimension, "clip_norm": clip_norm, "batch_size": batch_size,
    }  # fmt: skip
    given = {name: value for name, value in given.items() if value is not None}
    output = Output(as_json=json, quiet=quiet)
    outputs: dict[str, Any] = {"delta": delta, "orders": orders, "csv": csv, "picture": picture, "force": force}
    if targets == ["plan"]:
        if person:
            raise UsageError("--person is about files that left, not about a plan.")
        of_utility = ("dimension", "clip_norm", "batch_size")
        for name in ("sampling_rate", "steps", *(of_utility if utility else ())):
            if name not in given:
                with_it = "--utility" if name in of_utility else "plan"
                raise UsageError(f"account {with_it} needs --{name.replace('_', '-')}.")
        if not utility and given.keys() & set(of_utility):
            raise UsageError(f"--{min(given.keys() & set(of_utility)).replace('_', '-')} goes with --utility.")
        from stages.account import plan

        values: Any = given
        summary = plan(**values, **outputs)
        output.result(summary, lambda console: _show_plan(console, summary))
        return
    if utility:
        raise UsageError("--utility goes with `fedsynth account plan`.")
    if given:
        flag = "--" + next(iter(given)).replace("_", "-")
        raise UsageError(f"{flag} goes with `fedsynth account plan`. (A file of that name is ./plan.)")
    from stages.account import account as stage

    with output.progress("account") as report:
        result = stage([Path(target) for target in targets], **outputs, person=person, report=report)
    output.result(result, lambda console: (_show_units if person else _show)(console, result))


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
    if summary["utility"]:
        lines += _utility_lines(summary["utility"], steps)
    for line in lines:
        console.print(line, soft_wrap=True)


def _utility_lines(found: dict[str, Any], steps: int) -> list[str]:
    words = {
        "clip": "The clip limits this run: its noise is shorter than the longest signal, and how far it can go is the "
        "learning rate times the steps times C.",
        "rounds": "Rounds limit this run: at the same ε twice as many leave the noise shorter against the signal.",
        "noise": "Noise limits this run: more rounds at the same ε do not help; more in a step, or fewer numbers, do.",
    }
    return [
        f"A step: noise of length {found['noise_of_a_step']:.3g} against a signal of at most "
        f"{found['longest_signal_of_a_step']:g} (C): {found['ratio_of_a_step']:.3g} times as long.",
        f"{steps:,} steps: {found['noise_of_the_run']:.3g} against at most {found['longest_signal_of_the_run']:g}: "
        f"{found['ratio_of_the_run']:.3g} times as long. They are equal with {found['batch_size_needed']:,} in a step.",
        words[found["limit"]],
    ]


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
                f"{row['client']} sent noise in shares: to anyone who sees its files alone ε is "
                f"{_number(row['alone']['pld'])}."
            )
    for total in result["across_clients"]:
        disjoint, together = total["if_disjoint"]["pld"], total["if_one_is_in_all"]["pld"]
        several = "has several records" if total["unit"] == "record" else ""
        if len(result["clients"]) > 1:
            stake = f" Anyone who {several} has more at stake." if several else ""
            lines.append(
                f"Over all clients, for one {total['unit']}: {_number(disjoint)} if no person is in two clients' data, "
                f"{_number(together)} if one may be in all.{stake}"
            )
        else:
            who = f"{several}, or is in others' data, too," if several else "is in others' data, too,"
            lines.append(
                f"For one {total['unit']}: {_number(disjoint)}, of what this one sent alone. Anyone who {who} has more "
                "at stake."
            )
    for line in [*lines, *result["notes"]]:
        console.print(line, soft_wrap=True)


_HOLDS = {
    "record": "one record, at one client",
    "person": "one person, at all clients",
    "client": "all that one client has",
}


def _show_units(console: Console, result: dict[str, Any]) -> None:
    """One line for each unit, and below why a number is ∞."""
    rows = []
    for row in result["units"]:
        trusting = _number(row["trusting_the_server"]["pld"]) if row["trusting_the_server"] else "–"
        pld, rdp = (_number(row["epsilon"][name]) for name in ("pld", "rdp"))
        rows.append([row["unit"], _HOLDS[row["unit"]], pld, rdp, trusting])
    table(console, ["unit", "of", "ε (PLD)", "ε (RDP)", "ε to all but the server"], rows)
    files = max(row["files"] for row in result["units"])
    lines = [f"δ = {result['delta']:g}. Over all that left: {files:,} file{'s' if files != 1 else ''}."]
    for row in result["units"]:
        for why in row["why"]:
            others = f" (and {len(why['files']) - 1:,} more)" if len(why["files"]) > 1 else ""
            where = f"{why['files'][0]}{others}: " if why["files"] else ""
            lines.append(f"∞ for one {row['unit']}: {where}{why['reason']}.")
        if row["unit"] == "person" and row["if_disjoint"] != row["epsilon"]:
            disjoint = _number(row["if_disjoint"]["pld"])
            lines.append(f"If no person is in two clients' data, it is {disjoint} for one person.")
    for line in [*lines, *result["notes"]]:
        console.print(line, soft_wrap=True)


def _number(value: float | str) -> str:
    """Three decimals, rounded up: an ε is never shown smaller than it is."""
    return "∞" if isinstance(value, str) else f"{math.ceil(value * 1000) / 1000:.3f}"
