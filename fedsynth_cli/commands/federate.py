"""`fedsynth federate`: a group of commands, one for each thing that someone does in a federation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from artifacts.errors import UsageError
from fedsynth_cli.completion import recipes
from fedsynth_cli.console import Output, complain
from fedsynth_cli.federate_files import join, status, step, units
from fedsynth_cli.options import Force, Json, Log, LogPrivate, Out, Quiet, RecipePreset, Rounds, Seed, Setting

if TYPE_CHECKING:
    from stages.federate.child import Echo
    from stages.federate.keeper import WorkerBounds
    from stages.recipes.recipe import Recipe

_SERVER, _CLIENT, _SIMULATION, _FILES = "At the server", "At a client", "On one machine", "By files, at each party"

RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A recipe's name (`fedsynth recipe list` shows them all), or its file.",
        autocompletion=recipes,
    ),
]
App = Annotated[Path, typer.Argument(metavar="APP", help="The folder that `federate app` wrote.")]
Home = Annotated[
    Path,
    typer.Option("--home", help="The participant's folder: its federation.yaml and all its files.", show_default=False),
]
SuperLinkAddress = Annotated[
    str, typer.Option("--superlink", metavar="HOST:PORT", help="Where the SuperLink listens.", show_default=False)
]
Roots = Annotated[
    Path,
    typer.Option("--root-certificates", help="The CA certificate that vouches for the SuperLink.", show_default=False),
]

Drop = Annotated[
    str | None,
    typer.Option(
        "--drop", metavar="PATH|URL", show_default="parcels go over Flower",
        help="Leave parcels in this folder or bucket, which all parties reach; Flower only says that they are there.",
    ),
]  # fmt: skip
Memory = Annotated[
    int | None,
    typer.Option("--memory", min=512, help="MB that the worker may use.", show_default="3/4 of the machine"),
]
Longest = Annotated[
    float | None,
    typer.Option(
        "--longest", min=1, help="Seconds after which a task hangs, and its worker is started anew.",
        show_default="twice --wait, at least 600",
    ),
]  # fmt: skip
Unconfined = Annotated[
    bool,
    typer.Option(
        "--unconfined", help="Let Flower's processes read what this user may read (where Linux has no Landlock)."
    ),
]


def federate() -> None:
    """Run a recipe between institutions, by files or over Flower. The files are those of `run`, made where the data is.

    By files, without a network: app once, then join and step at each party. Over Flower, the server: app, superlink,
    register (once for each client), run; a client: supernode. Every party has a home
    folder with the federation.yaml that it has agreed to. All connections are encrypted, and every node authenticates
    with its key. Each command takes --json and --quiet.

    Example: fedsynth federate app fedavg --clients hospital-a,hospital-b -o federation
    """


def app(
    recipe: RecipeName,
    out: Out,
    clients: Annotated[
        str,
        typer.Option(
            "--clients", help="The clients' names, separated by commas; or how many there are.", show_default=False
        ),
    ],
    least_clients: Annotated[
        int | None,
        typer.Option(
            "--least-clients", min=1, help="Stop the run if fewer clients than this answer.", show_default="all asked"
        ),
    ] = None,
    wait: Annotated[float, typer.Option("--wait", help="How many seconds a round waits for an answer.")] = 3600.0,
    most_bytes: Annotated[
        int, typer.Option("--most-bytes", min=1, help="The largest file that any party accepts.")
    ] = 256 * 1024 * 1024,
    signed: Annotated[
        bool, typer.Option("--signed", help="Accept only files that a client in the roster has signed.")
    ] = False,
    preset: RecipePreset = None,
    setting: Setting = None,
    rounds: Rounds = None,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the terms of a federation, as a Flower app. Send federation.yaml to all parties to read.

    Example: fedsynth federate app fedavg --rounds 10 --clients hospital-a,hospital-b,hospital-c -o federation
    """
    from stages.federate.app_folder import write_app
    from stages.federate.terms import agreed

    terms = agreed(
        _recipe(recipe, preset, setting, rounds), _names(clients), seed=seed, least_clients=least_clients,
        wait=wait, most_bytes=most_bytes, signed=signed,
    )  # fmt: skip
    Output(as_json=json, quiet=quiet).result(write_app(terms, out, force=force))


def superlink(
    home: Home,
    certificate: Annotated[Path, typer.Option("--certificate", help="The server's, PEM.", show_default=False)],
    key: Annotated[Path, typer.Option("--key", help="The certificate's key, PEM.", show_default=False)],
    ca: Annotated[Path, typer.Option("--ca", help="The CA that vouches for the certificate.", show_default=False)],
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where to listen.")] = 9092,
    drop: Drop = None,
    memory: Memory = None,
    longest: Longest = None,
    unconfined: Unconfined = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Start the SuperLink, which relays sealed parcels, and the server's worker; it runs until you stop it.

    TLS and node keys are always on. Who reaches the port could start runs and register nodes: put a proxy before it
    that passes /v1/fleet/ and /health alone (docs/federate.md). Such a run would still reach no file of this home.

    Example: fedsynth federate superlink --home server --certificate server.pem --key server.key --ca ca.pem
    """
    from stages.federate.launch import Tls
    from stages.federate.launch import superlink as stage

    output = Output(as_json=json, quiet=quiet)
    stage(
        home, host=host, port=port, tls=Tls(certificate=certificate, key=key, ca=ca), drop=drop,
        bounds=_bounds(longest, memory), unconfined=unconfined, echo=_echo(quiet),
        ready=lambda summary: _now(output, summary),
    )  # fmt: skip


def register(
    key: Annotated[Path, typer.Argument(metavar="KEY.pub", help="The public half of the client's node key.")],
    name: Annotated[str, typer.Option("--name", help="The client's name in federation.yaml.", show_default=False)],
    superlink: SuperLinkAddress,
    root_certificates: Roots,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Admit a client's node. Make sure that the key is the client's: compare fingerprints over the telephone.

    The client sees its own with ssh-keygen -l -f KEY.pub. Run this on the SuperLink's machine.

    Example: fedsynth federate register hospital-a.pub --name hospital-a --superlink 127.0.0.1:9092
    --root-certificates ca.pem
    """
    from stages.federate.link import Link
    from stages.federate.submit import register as stage

    Output(as_json=json, quiet=quiet).result(stage(key, name, link=Link(superlink, root_certificates)))


def run(
    app: App,
    superlink: SuperLinkAddress,
    root_certificates: Roots,
    home: Annotated[
        Path | None,
        typer.Option("--home", help="The server's home, if it is on this machine.", show_default=False),
    ] = None,
    log: Log = None,
    private: LogPrivate = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Start the federation and follow it to the end. If interrupted, run it again to continue after the last complete
    round.

    Run this on the SuperLink's machine. Flower's own `flwr run APP` does the same.

    Example: fedsynth federate run federation --home server --superlink 127.0.0.1:9092 --root-certificates ca.pem
    """
    from stages.federate.link import Link
    from stages.federate.submit import run_app
    from stages.tracking.follow import followed

    if log and home is None:
        raise UsageError("--log shows the metrics that are in the server's home: give --home.")
    with followed(home or Path(), log or [], private=private) as following:
        echo = following.echo(_echo(quiet))
        summary = run_app(app, link=Link(superlink, root_certificates), home=home, echo=echo)
    Output(as_json=json, quiet=quiet).result(summary)


def supernode(
    home: Home,
    client: Annotated[str, typer.Option("--client", help="This client's name.", show_default=False)],
    superlink: SuperLinkAddress,
    root_certificates: Roots,
    key: Annotated[
        Path,
        typer.Option("--key", help="This node's key: ssh-keygen -t ecdsa -b 384 -N ''.", show_default=False),
    ],
    port: Annotated[
        int | None,
        typer.Option("--port", min=1, max=65535, help="On 127.0.0.1, for Flower's own use.", show_default="any"),
    ] = None,
    patience: Annotated[float, typer.Option("--patience", min=0, help="Seconds to wait for the SuperLink.")] = 10.0,
    drop: Drop = None,
    memory: Memory = None,
    longest: Longest = None,
    unconfined: Unconfined = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Start a client's node and its worker; it runs until you stop it. It opens one outgoing connection, accepts none.

    The data stays in --home, where Flower's processes reach nothing: they hand sealed parcels to the worker. Whatever
    leaves is written into the client's outbox and its ledger before it is sent.

    Example: fedsynth federate supernode --home hospital-a --client hospital-a --superlink link.example.org:9092
    --root-certificates ca.pem --key hospital-a.key
    """
    from stages.federate.launch import supernode as stage
    from stages.federate.link import Link

    output = Output(as_json=json, quiet=quiet)
    stage(
        home, client, link=Link(superlink, root_certificates), key=key, port=port, patience=patience, drop=drop,
        bounds=_bounds(longest, memory), unconfined=unconfined, echo=_echo(quiet),
        ready=lambda summary: _now(output, summary),
    )  # fmt: skip


def simulate(
    recipe: RecipeName,
    out: Out,
    cpus: Annotated[
        int | None,
        typer.Option("--cpus", min=1, help="Number of clients that work at the same time.", show_default="all cores"),
    ] = None,
    preset: RecipePreset = None,
    setting: Setting = None,
    rounds: Rounds = None,
    log: Log = None,
    private: LogPrivate = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run many clients with Flower's simulation engine, on this machine or a Ray cluster. The files are those of `run`.

    Example: fedsynth federate simulate fedavg --set partition.clients=1000 --set participation=0.01 -o runs/many
    """
    import os

    from stages.federate.simulate import simulate as stage
    from stages.tracking.follow import followed

    output = Output(as_json=json, quiet=quiet)
    chosen = _recipe(recipe, preset, setting, rounds)
    with followed(out, log or [], private=private) as following, output.progress(chosen.name) as report:
        summary = stage(chosen, out, seed=seed, cpus=cpus or os.cpu_count() or 1, report=following.report(report))
    output.result(summary)


def _recipe(name: str, preset: str | None, setting: list[str] | None, rounds: int | None) -> Recipe:
    from stages.recipes.recipe import change, load_recipe

    return change(load_recipe(name, preset, setting or []), setting or [], rounds)


def _names(clients: str) -> tuple[str, ...]:
    """`3` → 00, 01, 02; else the names between the commas."""
    from stages.run_folder.files import numbered_clients

    if clients.isdecimal() and int(clients) > 0:
        return tuple(numbered_clients(int(clients)))
    return tuple(name.strip() for name in clients.split(","))


def _bounds(longest: float | None, memory: int | None) -> WorkerBounds:
    from stages.federate.keeper import WorkerBounds

    return WorkerBounds(seconds=longest, memory=None if memory is None else memory * 2**20)


def _echo(quiet: bool) -> Echo:
    """What Flower logs, on stderr."""
    from stages.federate.child import silent

    return silent if quiet else complain


def _now(output: Output, summary: dict[str, Any]) -> None:
    """The program that started a service waits for this line."""
    output.result(summary)
    sys.stdout.flush()


def group() -> typer.Typer:
    """The steps as subcommands."""
    application = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
    application.callback()(federate)
    for function, panel in (
        (app, _SERVER), (superlink, _SERVER), (register, _SERVER), (run, _SERVER), (supernode, _CLIENT),
        (simulate, _SIMULATION), (join, _FILES), (step, _FILES), (status, _FILES), (units, _FILES),
    ):  # fmt: skip
        application.command(function.__name__, rich_help_panel=panel)(function)
    return application
