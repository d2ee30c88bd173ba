"""The command line, assembled; and the one place that maps errors to exit codes."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import click
import typer

from artifacts.errors import FedsynthError
from fedsynth_cli.commands import COMMANDS, GROUPS, listed, load, load_group
from fedsynth_cli.urls import refuse_at_home

INTERRUPTED = 130
_COMPLETION = "_FEDSYNTH_COMPLETE"  # set by the shell's completion script


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # 50 ms, which `--help` need not wait for

        typer.echo(f"fedsynth {version('fedsynth')}")
        raise typer.Exit


def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    show_version: Annotated[  # noqa: ARG001  (its callback does the work)
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    if debug:
        os.environ["FEDSYNTH_DEBUG"] = "1"


def assemble(arguments: list[str]) -> typer.Typer:
    """The application with the one command that is called, or with the list of all for help and completion."""
    app = typer.Typer(
        name="fedsynth",
        help="Federated learning over files: every message is a file that a person can open, count and approve.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        epilog="Start with: fedsynth run fedavg -o runs/first. Where PATH|URL stands, s3://BUCKET/NAME works too.",
    )
    app.callback()(_root)
    called = next((word for word in arguments if not word.startswith("-")), None)
    refuse_at_home(called, arguments)
    for name, panel in COMMANDS.items():
        wanted = name == called or _COMPLETION in os.environ
        if wanted and name in GROUPS:
            app.add_typer(load_group(name), name=name, rich_help_panel=panel)
        elif wanted:
            app.command(name, rich_help_panel=panel)(load(name))
        elif called not in COMMANDS:
            app.command(name, rich_help_panel=panel)(listed(name))
    return app


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code; errors are told on stderr in a line or two."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        status = assemble(words)(args=words, standalone_mode=False, prog_name="fedsynth")
        if status == INTERRUPTED:  # typer's word for Ctrl-C
            raise KeyboardInterrupt
        return status if isinstance(status, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        click.echo(f"fedsynth: {error.format_message()}", err=True)
        context = getattr(error, "ctx", None)
        if context is not None:
            click.echo(f"Try: {context.command_path} --help", err=True)
        return error.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("fedsynth: interrupted. Whatever was written is whole; run again to go on.", err=True)
        return INTERRUPTED
    except FedsynthError as error:
        if os.environ.get("FEDSYNTH_DEBUG"):
            raise
        click.echo(f"fedsynth: {error}", err=True)
        return error.exit_code


def main() -> None:
    sys.exit(run())
