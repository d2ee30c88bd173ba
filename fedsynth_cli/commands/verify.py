"""`fedsynth verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from artifacts.errors import VerificationError
from fedsynth_cli.console import Output, table
from fedsynth_cli.options import Json, Quiet, RosterFile

if TYPE_CHECKING:
    from rich.console import Console


def verify(
    files: Annotated[list[Path], typer.Argument(help="Signed files, heads or receipts.")],
    roster: RosterFile,
    envelope: Annotated[
        Path | None, typer.Option(help="The envelope of the file; else FILE.intoto.jsonl.", show_default=False)
    ] = None,
    proof: Annotated[
        Path | None,
        typer.Option(help="A proof of `receipt prove`, by which the file is checked, with --head.", show_default=False),
    ] = None,
    head: Annotated[
        Path | None,
        typer.Option(help="The server's receipts, whose last line is the tree head that you hold.", show_default=False),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check signatures against the roster, and that the signed claims match the files; exit code 5 if anything fails.

    With --proof and --head: that a file was recorded and countersigned, by one signed tree head; or that later receipts
    go on from it.

    Example: fedsynth verify clients/*/outbox/message-0001.safetensors --roster public/roster.json
    """
    from stages.verify import verify as stage

    output = Output(as_json=json, quiet=quiet)
    with output.progress("verify") as report:
        summary, passed = stage(files, roster=roster, envelope=envelope, proof=proof, head=head, report=report)

    def show(console: Console) -> None:
        rows = [
            ("ok" if row["verified"] else "FAIL", row["file"], row.get("signed_by", ""), _words(row))
            for row in summary["files"]
        ]
        table(console, ["", "file", "signed by", "says"], rows)

    output.result(summary, show)
    if not passed:
        wrong = [row for row in summary["files"] if not row["verified"]]
        raise VerificationError(f"{len(wrong)} of {len(files)} not verified. {wrong[0]['reason']}")


def _words(row: dict[str, object]) -> str:
    claim, heads = row.get("claim"), row.get("heads")
    if isinstance(claim, dict):
        stated = ", ".join(claim["disclosures"]) or "nothing without noise"
        return f"{claim['kind']}, round {claim['round']}, ε {claim['epsilon']}, discloses {stated}"
    if isinstance(heads, list):
        return "; ".join(f"{head['client']}: {head['seq']} entries in round {head['round']}" for head in heads)
    recorded, later = row.get("recorded"), row.get("goes_on")
    if isinstance(recorded, dict):
        return f"{recorded['kind']}, entry {recorded['seq']} of the ledger of {recorded['client']}, in the log"
    if isinstance(later, dict):
        return f"the log of {later['size']} heads goes on from the one that is held"
    return str(row["reason"])
