"""`fedsynth secagg`: a group of commands, one for each step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click
import typer

from fedsynth_cli.console import Output
from fedsynth_cli.options import (
    Client,
    Force,
    Gate,
    GivenOptions,
    Json,
    Key,
    Out,
    Quiet,
    RosterFile,
    gated,
    hyper_options,
)
from stages.secagg.terms import SecaggTerms

_CLIENT, _SERVER = "Each round, at a client", "Each round, at the server"

KeyList = Annotated[
    Path | None, typer.Option("--keys", help="The round's list of keys; for all but keys.", show_default=False)
]


def secagg() -> None:
    """Secure aggregation by files: the server learns the sum of a round's updates, and nothing about any single one.

    A round, client and server in turn: keys, collect, shares, collect, mask, collect, confirm, collect, unmask, sum.
    Clients may drop out at every step, down to the threshold. Each command takes --json and --quiet.

    Example: fedsynth secagg keys --round 1 -o clients/00/outbox/secagg-keys-0001.safetensors
    """


def keys(
    out: Out,
    round: Annotated[int, typer.Option("--round", help="The round that begins.", show_default=False)],
    key: Key = None,
    client: Client = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Step 0: make fresh keys for the round and send their public halves, signed.

    Example: fedsynth secagg keys --round 1 -o clients/00/outbox/secagg-keys-0001.safetensors
    """
    from stages.secagg.client_steps import keys as stage

    Output(as_json=json, quiet=quiet).result(stage(out, round=round, key=key, client=client, force=force))


def shares(
    listed: Annotated[Path, typer.Argument(metavar="KEYS", help="The server's list of keys.")],
    out: Out,
    roster: RosterFile,
    least_threshold: Annotated[
        int, typer.Option("--least-threshold", min=2, help="Refuse a list that lets fewer clients end the round.")
    ] = 2,
    least_clients: Annotated[
        int,
        typer.Option("--least-clients", min=2, help="Refuse a list of fewer clients: the server may leave some out."),
    ] = 2,
    key: Key = None,
    client: Client = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Step 1: check the list of keys; send shares of this client's mask secrets, encrypted for each of the others.

    Example: fedsynth secagg shares server/outbox/secagg-keys-0001.safetensors --roster public/roster.json
    -o clients/00/outbox/secagg-shares-0001.safetensors
    """
    from stages.secagg.client_steps import shares as stage

    summary = stage(
        listed, out, roster=roster, least_threshold=least_threshold, least_clients=least_clients, key=key,
        client=client, force=force,
    )  # fmt: skip
    Output(as_json=json, quiet=quiet).result(summary)


def mask(
    shares: Annotated[Path, typer.Argument(metavar="SHARES", help="The server's list of shares.")],
    model: Annotated[Path, typer.Argument(help="The model that the round began with.")],
    update: Annotated[Path, typer.Argument(help="The client's update, or the message that encode made of it.")],
    out: Out,
    key: Key = None,
    client: Client = None,
    gate: Gate = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Step 2: send the update under masks. Once a round: another one is refused, --force or not.

    Example: fedsynth secagg mask server/outbox/secagg-shares-0001.safetensors public/model-0000.safetensors
    clients/00/private/update-0001.safetensors -o clients/00/outbox/secagg-masked-0001.safetensors
    """
    from stages.secagg.mask import mask as stage

    summary = stage(shares, model, update, gated(out, gate), key=key, client=client, force=force)
    Output(as_json=json, quiet=quiet).result(summary)


def confirm(
    survivors: Annotated[Path, typer.Argument(help="The server's survivor list.")],
    out: Out,
    key: Key = None,
    client: Client = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Step 3a: sign the survivor list that this client was shown, so that the server can show one only.

    Example: fedsynth secagg confirm server/outbox/secagg-survivors-0001.safetensors
    -o clients/00/outbox/secagg-survivors-0001.safetensors
    """
    from stages.secagg.unmask import confirm as stage

    Output(as_json=json, quiet=quiet).result(stage(survivors, out, key=key, client=client, force=force))


def unmask(
    confirmed: Annotated[Path, typer.Argument(metavar="CONFIRMED", help="The survivor list, countersigned.")],
    out: Out,
    key: Key = None,
    client: Client = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Step 3b: give what uncovers the sum, of each peer one kind of share; then forget the round's secrets.

    Example: fedsynth secagg unmask server/outbox/secagg-confirmed-0001.safetensors
    -o clients/00/outbox/secagg-unmask-0001.safetensors
    """
    from stages.secagg.unmask import unmask as stage

    Output(as_json=json, quiet=quiet).result(stage(confirmed, out, key=key, client=client, force=force))


@hyper_options("secagg", SecaggTerms)
def collect(
    files: Annotated[list[Path], typer.Argument(help="The clients' files of one step.")],
    out: Out,
    roster: RosterFile,
    given: GivenOptions,
    keys: KeyList = None,
    receiver: Annotated[
        str | None, typer.Option("--for", help="shares: only those for this client.", show_default=False)
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="shares: a file for each reader beside the list, which then holds none.")
    ] = False,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """After each step: check what the clients sent and write the list that goes down to them.

    Keys become the list of keys, shares the list of shares, masked updates the survivor list, signatures of that one
    the countersigned list.

    Example: fedsynth secagg collect clients/*/outbox/secagg-keys-0001.safetensors --roster public/roster.json
    --range 1 -o server/outbox/secagg-keys-0001.safetensors
    """
    from stages.secagg.collect import collect as stage

    params = given.resolve(SecaggTerms)
    summary = stage(files, out, roster=roster, keys=keys, params=params, receiver=receiver, each=each, force=force)
    Output(as_json=json, quiet=quiet).result(summary)


def secure_sum(
    files: Annotated[list[Path], typer.Argument(help="The survivors' masked updates, and their answers to unmask.")],
    out: Out,
    roster: RosterFile,
    keys: Annotated[Path, typer.Option("--keys", help="The round's list of keys.", show_default=False)],
    shares: Annotated[Path, typer.Option("--shares", help="The round's list of shares.", show_default=False)],
    survivors: Annotated[
        Path, typer.Option("--survivors", help="The survivor list, countersigned.", show_default=False)
    ],
    result: Annotated[
        str, typer.Option("--as", help="What to write.", click_type=click.Choice(["mean", "sum"]))
    ] = "mean",
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """The end: take the masks off the sum and write it as the server's update, for aggregate or decode --apply.

    Example: fedsynth secagg sum clients/*/outbox/secagg-masked-0001.safetensors
    clients/*/outbox/secagg-unmask-0001.safetensors --roster public/roster.json
    --keys server/outbox/secagg-keys-0001.safetensors --shares server/outbox/secagg-shares-0001.safetensors
    --survivors server/outbox/secagg-confirmed-0001.safetensors -o server/private/update-0001.safetensors
    """
    from stages.secagg.total import secure_sum as stage

    output = Output(as_json=json, quiet=quiet)
    kind: Any = result
    with output.progress("sum") as report:
        summary = stage(
            files, out, roster=roster, keys=keys, shares=shares, survivors=survivors, result=kind, force=force,
            report=report,
        )  # fmt: skip
    output.result(summary)


def group() -> typer.Typer:
    """The steps as subcommands."""
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(secagg)
    for function, panel in (
        (keys, _CLIENT), (shares, _CLIENT), (mask, _CLIENT), (confirm, _CLIENT),
        (unmask, _CLIENT), (collect, _SERVER),
    ):  # fmt: skip
        app.command(function.__name__, rich_help_panel=panel)(function)
    app.command("sum", rich_help_panel=_SERVER)(secure_sum)
    return app
