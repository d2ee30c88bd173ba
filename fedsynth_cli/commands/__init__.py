"""One file a subcommand: its options, the stage that it calls, what it prints.

A command's file is imported when the command is called. The list of commands needs only the first lines of their
help, which are read from the source: importing them all would take longer than a person should wait for `--help`.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path

import typer

from fedsynth_cli.command_list import COMMANDS
from fedsynth_cli.urls import with_urls
from stages.plugins import records

_made_with: dict[str, tuple[str, ...]] = {}


def load(name: str) -> Callable[..., None]:
    """The function that a command calls, with all its options."""
    module = name.replace("-", "_")
    found = importlib.import_module(f"{__name__}.{module}")
    if _made_with.setdefault(name, records()) != records():  # its options were made beside other plug-ins
        found, _made_with[name] = importlib.reload(found), records()
    function: Callable[..., None] = getattr(found, module)
    return function if COMMANDS[name].at_home else with_urls(name, function)


def load_group(name: str) -> typer.Typer:
    """A command with subcommands."""
    group: typer.Typer = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").group()
    return group


def listed(name: str) -> Callable[..., None]:
    """A stand-in with the command's help, for the list of commands alone."""
    module = name.replace("-", "_")
    tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text())
    function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == module)

    def stand_in() -> None:
        """Never called."""

    stand_in.__doc__ = ast.get_docstring(function)
    return stand_in
