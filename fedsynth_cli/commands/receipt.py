"""`fedsynth receipt`: a group of five commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import Client, Force, Json, Key, Out, Quiet, RosterFile, ServerKey

_CLIENT, _SERVER, _ANYBODY = "At a client", "At the server", "Anywhere"


def receipt() -> None:
    """Have the head of a client's ledger countersigned, so that it cannot be rewritten later without being noticed.

    ask (client), give (server), keep (client), compare (two clients, or an auditor), prove (for an auditor who holds
    one tree head); each takes --json and --quiet. Not with secretly sampled clients: a receipt shows who took part.

    Example: fedsynth receipt ask --round 1 --roster public/roster.json -o clients/00/outbox/head-0001.intoto.jsonl
    """


def ask(
    out: Out,
    roster: RosterFile,
    round: Annotated[int, typer.Option("--round", min=0, help="The round that it is for.", show_default=False)],
    key: Key = None,
    client: Client = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Send the head of the ledger, signed: a digest and the number of entries, nothing else of it.

    Example: fedsynth receipt ask --round 1 --roster public/roster.json -o clients/00/outbox/head-0001.intoto.jsonl
    """
    from stages.receipt import ask as stage

    summary = stage(out, roster=roster, round=round, key=key, client=client, force=force)
    Output(as_json=json, quiet=quiet).result(summary)


def give(
    heads: Annotated[list[Path], typer.Argument(help="The clients' heads of one round.")],
    out: Out,
    roster: RosterFile,
    key: ServerKey = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Countersign the heads of a round, in one file that goes down with the next model.

    Each head is entered in the server's log, a Merkle tree (RFC 6962). The file ends with the signed head of the tree,
    and proofs that the round's heads are in it and that it goes on from the tree before.

    Example: fedsynth receipt give clients/*/outbox/head-0001.intoto.jsonl --roster public/roster.json
    -o server/outbox/receipts-0001.intoto.jsonl
    """
    from stages.receipt import give as stage

    Output(as_json=json, quiet=quiet).result(stage(heads, out, roster=roster, key=key, force=force))


def keep(
    receipts: Annotated[Path, typer.Argument(help="The server's file of receipts.")],
    out: Out,
    roster: RosterFile,
    client: Client = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check one's own receipt against the ledger and keep it for the auditor.

    Example: fedsynth receipt keep server/outbox/receipts-0001.intoto.jsonl --roster public/roster.json
    -o clients/00/private/receipt-0001.intoto.jsonl
    """
    from stages.receipt import keep as stage

    Output(as_json=json, quiet=quiet).result(stage(receipts, out, roster=roster, client=client, force=force))


def compare(
    files: Annotated[list[Path], typer.Argument(help="Receipts, or folders with receipts, of two clients or more.")],
    roster: RosterFile,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Hold the receipts that two clients have against each other: a server that shows two histories is caught.

    Exit code 5: they contradict each other; both files, which the server signed, prove it. Exit code 6: nothing
    contradicts, but no proof joins the two; compare receipts of the same round.

    Example: fedsynth receipt compare clients/00/private clients/01/private --roster public/roster.json
    """
    from stages.receipt import compare as stage

    Output(as_json=json, quiet=quiet).result(stage(files, roster=roster))


def prove(
    file: Annotated[Path, typer.Argument(help="A file in a client's outbox, or later receipts of the server.")],
    out: Out,
    head: Annotated[
        Path,
        typer.Option(help="The server's receipts, whose last line is the tree head that is held.", show_default=False),
    ],
    roster: RosterFile,
    log: Annotated[
        Path | None,
        typer.Option(
            help="The server's log (server/private/receipts.jsonl) or a copy; found in a run folder. Not needed for a "
            "receipt that came with the very tree head.",
            show_default=False,
        ),
    ] = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Prove that a file is in the log, or that later receipts go on from it, to one who holds a signed tree head.

    The proof has the ledger's entries from the file's to the next that was countersigned, and nothing else of it.
    `verify FILE --proof PROOF --head HEAD` checks it.

    Example: fedsynth receipt prove clients/00/outbox/message-0001.safetensors
    --head server/outbox/receipts-0002.intoto.jsonl --roster public/roster.json -o message-0001.proof.json
    """
    from stages.receipt_proof import prove as stage

    Output(as_json=json, quiet=quiet).result(stage(file, out, head=head, roster=roster, log=log, force=force))


def group() -> typer.Typer:
    """The five as subcommands."""
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(receipt)
    rows = ((ask, _CLIENT), (keep, _CLIENT), (give, _SERVER), (compare, _ANYBODY), (prove, _ANYBODY))
    for function, panel in rows:
        app.command(function.__name__, rich_help_panel=panel)(function)
    return app
