"""The commands: where the help lists each, and what the command line has to know of it before it is imported."""

from __future__ import annotations

from dataclasses import dataclass

_CLIENT, _SERVER, _ANYONE = "At a client", "At the server", "Anyone"
_SIMULATION = "Whole federations"


@dataclass(frozen=True, kw_only=True)
class ListedCommand:
    """`train-client` is the function `train_client` of the file `train_client.py`.

    `subcommands`: its file has a function `group` beside. `at_home`: it works in a participant's own folder, with its
    key and its ledgers, and takes no URL. `confidential`: what it writes discloses something about private data, or who
    takes part. `name_or_path` is the argument that may be either.
    """

    panel: str
    subcommands: bool = False
    at_home: bool = False
    confidential: bool = False
    name_or_path: str | None = None


COMMANDS: dict[str, ListedCommand] = {
    "keygen": ListedCommand(panel=_CLIENT, at_home=True),
    "ingest": ListedCommand(panel=_CLIENT),
    "identity": ListedCommand(panel=_CLIENT, at_home=True),
    "train-client": ListedCommand(panel=_CLIENT, confidential=True),
    "encode": ListedCommand(panel=_CLIENT, confidential=True),
    "train-generator": ListedCommand(panel=_CLIENT, confidential=True),
    "synthesize": ListedCommand(panel=_CLIENT, confidential=True),
    "secagg": ListedCommand(panel=_CLIENT, at_home=True, subcommands=True),
    "release": ListedCommand(panel=_CLIENT, at_home=True),
    "budget": ListedCommand(panel=_CLIENT, subcommands=True),
    "sign": ListedCommand(panel=_CLIENT, at_home=True),
    "receipt": ListedCommand(panel=_CLIENT, at_home=True, subcommands=True),
    "init-model": ListedCommand(panel=_SERVER),
    "sample-clients": ListedCommand(panel=_SERVER, confidential=True),
    "aggregate": ListedCommand(panel=_SERVER),
    "decode": ListedCommand(panel=_SERVER),
    "shuffle": ListedCommand(panel=_SERVER),
    "evaluate": ListedCommand(panel=_ANYONE),
    "inspect": ListedCommand(panel=_ANYONE),
    "audit": ListedCommand(panel=_ANYONE),
    "roster": ListedCommand(panel=_ANYONE),
    "verify": ListedCommand(panel=_ANYONE),
    "account": ListedCommand(panel=_ANYONE, name_or_path="targets"),
    "report": ListedCommand(panel=_ANYONE),
    "export": ListedCommand(panel=_ANYONE),
    "partition": ListedCommand(panel=_SIMULATION),
    "run": ListedCommand(panel=_SIMULATION, name_or_path="recipe"),
    "tune": ListedCommand(panel=_SIMULATION, at_home=True),
    "recipe": ListedCommand(panel=_SIMULATION, name_or_path="name"),
    "federate": ListedCommand(panel=_SIMULATION, at_home=True, subcommands=True),
    "batch": ListedCommand(panel=_SIMULATION),
}
