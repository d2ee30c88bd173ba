"""One file a subcommand: its options, the stage that it calls, what it prints."""

from __future__ import annotations

from collections.abc import Callable

from fedsynth_cli.commands.account import account
from fedsynth_cli.commands.aggregate import aggregate
from fedsynth_cli.commands.audit import audit
from fedsynth_cli.commands.batch import batch
from fedsynth_cli.commands.decode import decode
from fedsynth_cli.commands.encode import encode
from fedsynth_cli.commands.evaluate import evaluate
from fedsynth_cli.commands.init_model import init_model
from fedsynth_cli.commands.inspect import inspect
from fedsynth_cli.commands.keygen import keygen
from fedsynth_cli.commands.partition import partition
from fedsynth_cli.commands.recipe import recipe
from fedsynth_cli.commands.run import run
from fedsynth_cli.commands.shuffle import shuffle
from fedsynth_cli.commands.synthesize import synthesize
from fedsynth_cli.commands.train_client import train_client
from fedsynth_cli.commands.train_generator import train_generator

_CLIENT, _SERVER, _ANYONE = "At a client", "At the server", "Anyone"
_SIMULATION = "Whole federations"

COMMANDS: dict[str, tuple[str, Callable[..., None]]] = {
    "keygen": (_CLIENT, keygen),
    "train-client": (_CLIENT, train_client),
    "encode": (_CLIENT, encode),
    "train-generator": (_CLIENT, train_generator),
    "synthesize": (_CLIENT, synthesize),
    "init-model": (_SERVER, init_model),
    "aggregate": (_SERVER, aggregate),
    "decode": (_SERVER, decode),
    "shuffle": (_SERVER, shuffle),
    "evaluate": (_ANYONE, evaluate),
    "inspect": (_ANYONE, inspect),
    "audit": (_ANYONE, audit),
    "account": (_ANYONE, account),
    "partition": (_SIMULATION, partition),
    "run": (_SIMULATION, run),
    "recipe": (_SIMULATION, recipe),
    "batch": (_SIMULATION, batch),
}
