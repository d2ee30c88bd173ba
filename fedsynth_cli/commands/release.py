"""`fedsynth release`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from artifacts.errors import IncompleteError, UsageError
from fedsynth_cli.console import Output, human_bytes, stdout_console, table
from fedsynth_cli.naming import shown
from fedsynth_cli.options import Force, Json, Quiet

if TYPE_CHECKING:
    from rich.console import Console

    from stages.release import Waiting


def release(
    targets: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files in pending/, or participants' folders; the current folder if not given.", show_default=False
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="A person approves all of them.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="A person rejects all of them.")] = False,
    seen_private: Annotated[
        bool | None,
        typer.Option(
            "--seen-private/--not-seen-private",
            help="Whether that person has seen the private data; if so, the file's ε no longer holds.",
            show_default=False,
        ),
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="List what is waiting without deciding anything.")] = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what is waiting to leave, and release it: by the rules of policy.yaml, or with a person's approval.

    Files that the rules allow leave at once. For the others a person is asked, or gives --yes or --reject. If private/
    has a policy.yaml, or a stage was called with --gate, everything that leaves waits here first. If files wait and
    none of them left, the exit code is 6; with --list it is 0.

    Example: fedsynth release clients/00

    Example: fedsynth release clients/00/pending/synthetic.parquet --yes --not-seen-private
    """
    if yes + reject + only_list > 1:
        raise UsageError("--yes, --reject and --list exclude each other.")
    from stages import release as stage

    output = Output(as_json=json, quiet=quiet)
    asks = not (yes or reject or only_list or json or quiet) and sys.stdin.isatty()
    rows: list[dict[str, Any]] = []
    for path in stage.waiting(targets or [Path()]):
        done = stage.settled(path, "rejected" if reject else "released")
        if done is not None:
            output.warn(f"{path} was {'rejected' if reject else 'released'} before: {done}. Nothing was left to do.")
            continue
        one = stage.look(path)
        row = one.described() | {"sheets": [str(sheet) for sheet in stage.sheets(one)], "decision": "waiting"}
        rows.append(row)
        if one.judged[0] is not None and not (reject or only_list):
            picked = ", picked" if one.rule_saw_data and one.from_data else ""
            out = stage.let_out(one, by="rules", seen_private=one.rule_saw_data, force=force)
            row |= {"decision": f"released by rule{picked}", "out": str(out)}
        elif yes or reject:
            row |= _decide(one, approved=yes, seen=seen_private, force=force)
        elif asks:
            _show(stdout_console(), [row])
            row |= _ask(one, force=force)
    summary = {"files": rows, "waiting": sum(row["decision"] == "waiting" for row in rows)}
    output.result(summary, lambda console: _show(console, rows))
    if rows and summary["waiting"] == len(rows) and not only_list:
        error = IncompleteError(
            f"nothing was released: {len(rows)} {'file waits' if len(rows) == 1 else 'files wait'}. A person says "
            "--yes or --reject, or a rule in policy.yaml lets them leave."
        )
        error.is_reported = True
        raise error


def _decide(one: Waiting, *, approved: bool, seen: bool | None, force: bool) -> dict[str, Any]:
    from stages import release as stage

    if seen is None and one.from_data:
        raise UsageError(
            f"{one.path}: say --seen-private or --not-seen-private. A choice by someone who has seen the private data "
            "costs the file its ε."
        )
    if approved:
        out = stage.let_out(one, by="person", seen_private=bool(seen), force=force)
        return {"decision": "released by a person" + (", picked" if seen and one.from_data else ""), "out": str(out)}
    return {"decision": "rejected", "out": str(stage.reject(one, seen_private=bool(seen)))}


def _ask(one: Waiting, *, force: bool) -> dict[str, Any]:
    """A person at the terminal: yes, no, or later."""
    answer = typer.prompt(f"{shown(one.path.name)}: let it leave? yes, no, later", default="later").strip().lower()
    if answer not in ("y", "yes", "n", "no"):
        return {}
    seen = one.from_data and typer.confirm("Have you seen the private data that it was made from?", default=True)
    return _decide(one, approved=answer.startswith("y"), seen=seen, force=force)


def _show(console: Console, rows: list[dict[str, Any]]) -> None:
    if not rows:
        console.print("nothing waits")
        return
    cells = [
        (
            row["file"], row["kind"], "" if row["round"] is None else str(row["round"]), human_bytes(row["bytes"]),
            ", ".join(row["disclosures"]) or "–", row["epsilon"], row["sheets"] or "–",
            f"{row['decision']}: {row['policy']}" if row["decision"] == "waiting" else row["decision"],
        )
        for row in rows
    ]  # fmt: skip
    table(console, ["file", "kind", "round", "size", "discloses", "ε", "images", "decision"], cells)
