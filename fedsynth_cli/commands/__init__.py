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

from fedsynth_cli.urls import AT_HOME, with_urls
from stages.plugins import records

_CLIENT, _SERVER, _ANYONE = "At a client", "At the server", "Anyone"
_SIMULATION = "Whole federations"

# Name and panel; `train-client` is the function `train_client` of the file `train_client.py`.
COMMANDS: dict[str, str] = {
    "keygen": _CLIENT,
    "ingest": _CLIENT,
    "identity": _CLIENT,
    "train-client": _CLIENT,
    "encode": _CLIENT,
    "train-generator": _CLIENT,
    "synthesize": _CLIENT,
    "secagg": _CLIENT,
    "release": _CLIENT,
    "budget": _CLIENT,
    "sign": _CLIENT,
    "receipt": _CLIENT,
    "init-model": _SERVER,
    "sample-clients": _SERVER,
    "aggregate": _SERVER,
    "decode": _SERVER,
    "shuffle": _SERVER,
    "evaluate": _ANYONE,
    "inspect": _ANYONE,
    "audit": _ANYONE,
    "roster": _ANYONE,
    "verify": _ANYONE,
    "account": _ANYONE,
    "report": _ANYONE,
    "export": _ANYONE,
    "partition": _SIMULATION,
    "run": _SIMULATION,
    "tune": _SIMULATION,
    "recipe": _SIMULATION,
    "federate": _SIMULATION,
    "batch": _SIMULATION,
}

_made_with: dict[str, tuple[str, ...]] = {}

# Commands with subcommands: their file has a function `group` beside.
GROUPS = frozenset({"budget", "secagg", "receipt", "federate"})


def load(name: str) -> Callable[..., None]:
    """The function that a command calls, with all its options."""
    module = name.replace("-", "_")
    found = importlib.import_module(f"{__name__}.{module}")
    if _made_with.setdefault(name, records()) != records():  # its options were made beside other plug-ins
        found, _made_with[name] = importlib.reload(found), records()
    function: Callable[..., None] = getattr(found, module)
    return function if name in AT_HOME else with_urls(name, function)


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
