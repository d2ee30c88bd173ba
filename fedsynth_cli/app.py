"""The command line, assembled; and the one place that maps errors to exit codes."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import click
import typer

from artifacts.errors import FedsynthError, InputError
from fedsynth_cli.command_list import COMMANDS
from fedsynth_cli.commands import listed, load, load_group
from fedsynth_cli.console import complain
from fedsynth_cli.naming import renamed, shown_json
from fedsynth_cli.plugin_option import without_plugins
from fedsynth_cli.urls import refuse_at_home
from stages.plugins import using

INTERRUPTED = 130
_WIDEST_NAME = 40
_COMPLETION = "_FEDSYNTH_COMPLETE"  # set by the shell's completion script


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # 50 ms, which `--help` need not wait for

        typer.echo(f"fedsynth {version('fedsynth')}")
        raise typer.Exit


def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    plugin: Annotated[  # noqa: ARG001  (taken from the command line before the options are made: see `plugin_option`)
        list[str] | None,
        typer.Option(
            "--plugin",
            metavar="FILE.py|NAME",
            help="Load a plug-in, a file or an installed distribution: its networks and the like become choices. May "
            "be given several times, before or after the command; FEDSYNTH_PLUGINS names some for every command.",
        ),
    ] = None,
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
        suggest_commands=False,  # click suggests them as well
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Start with: fedsynth run fedavg -o runs/first. Where PATH|URL is, s3://BUCKET/NAME works too.",
    )
    app.callback()(_root)
    called = next((word for word in arguments if not word.startswith("-")), None)
    refuse_at_home(called, arguments)
    for name, command in COMMANDS.items():
        wanted = name == called or _COMPLETION in os.environ
        if wanted and command.subcommands:
            app.add_typer(load_group(name), name=name, rich_help_panel=command.panel)
        elif wanted:
            app.command(name, rich_help_panel=command.panel)(load(name))
        elif called not in COMMANDS:
            app.command(name, rich_help_panel=command.panel)(listed(name))
    return app


class _Notes(logging.Handler):
    """What artifacts have to say beside their results, on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code; errors are printed on stderr in a line or two."""
    words = sys.argv[1:] if arguments is None else arguments
    notes = logging.getLogger("fedsynth")
    if not notes.handlers:
        notes.addHandler(_Notes())
        notes.propagate = False
    as_json = "--json" in words
    try:
        words, plugins = without_plugins(words)
        with using(plugins):
            status = assemble(words)(args=words, standalone_mode=False, prog_name="fedsynth")
        if status == INTERRUPTED:  # typer's word for Ctrl-C
            raise KeyboardInterrupt
        return status if isinstance(status, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        code = _fail(error.format_message(), error.exit_code, as_json)
        if context is not None:
            complain(f"Try: {context.command_path} --help")
        return code
    except (click.exceptions.Abort, KeyboardInterrupt):
        return _fail("interrupted. Whatever was written is whole; run again to go on.", INTERRUPTED, as_json)
    except FedsynthError as error:
        if os.environ.get("FEDSYNTH_DEBUG"):
            raise
        return _fail(str(error), error.exit_code, as_json and not error.is_reported, _lines(error))
    except OSError as error:
        if os.environ.get("FEDSYNTH_DEBUG"):
            raise
        return _fail(_refusal(error), InputError.exit_code, as_json)
    except SystemExit:
        # How typer and rich end when the reader of a pipe, such as `head`, has seen enough: that is no failure.
        if _reader_left():
            return 0
        raise


def _reader_left() -> bool:
    """Whether stdout was a pipe that nobody reads any more: typer then wraps it, rich turns it to the null device."""
    if isinstance(sys.stdout, click.utils.PacifyFlushWrapper):
        return True
    return os.path.sameopenfile(sys.stdout.fileno(), os.open(os.devnull, os.O_WRONLY))


def _lines(error: FedsynthError) -> list[str]:
    """What the error says as lines, where it has a table; else none."""
    if error.table is None:
        return []
    head, rows, remedy = error.table
    wide = min(max(len(name) for name, _ in rows), _WIDEST_NAME)
    return [head, *(f"  {name:<{wide}}  {why}" for name, why in rows), *([remedy] if remedy else [])]


def _fail(text: str, code: int, as_json: bool, lines: Sequence[str] = ()) -> int:
    """Say what went wrong on stderr; a pipeline that asked for JSON gets it on stdout as well."""
    first, *others = lines or [text]
    complain(f"fedsynth: {first}")
    for line in others:
        complain(line)
    if as_json:
        sys.stdout.write(shown_json(json.dumps({"error": text, "code": code}, ensure_ascii=False)) + "\n")
    return code


def _refusal(error: OSError) -> str:
    """What the operating system would not do: of a disk, a folder for temporary files, a pipe."""
    where = f"{renamed(str(error.filename))}: " if error.filename else ""
    return f"{where}{error.strerror or error}. Whatever was written is whole; mend that and run again."


def main() -> None:
    sys.exit(run())
