"""The commands: where the help lists each, and what the command line has to know of it before it is imported."""

from __future__ import annotations

from dataclasses import dataclass

_CLIENT, _SERVER, _ANYONE = "At a client", "At the server", "Anyone"
_SIMULATION = "Whole federations"


@dataclass(frozen=True, kw_only=True)
class Command:
    """`train-client` is the function `train_client` of the file `train_client.py`.

    `subcommands`: its file has a function `group` beside. `at_home`: it works in a participant's own folder, with its
    key and its ledgers, and takes no URL. `confidential`: what it writes tells something about private data, or who
    takes part. `name_or_path` is the argument that may be either.
    """

    panel: str
    subcommands: bool = False
    at_home: bool = False
    confidential: bool = False
    name_or_path: str | None = None


COMMANDS: dict[str, Command] = {
    "keygen": Command(panel=_CLIENT, at_home=True),
    "ingest": Command(panel=_CLIENT),
    "identity": Command(panel=_CLIENT, at_home=True),
    "train-client": Command(panel=_CLIENT, confidential=True),
    "encode": Command(panel=_CLIENT, confidential=True),
    "train-generator": Command(panel=_CLIENT, confidential=True),
    "synthesize": Command(panel=_CLIENT, confidential=True),
    "secagg": Command(panel=_CLIENT, at_home=True, subcommands=True),
    "release": Command(panel=_CLIENT, at_home=True),
    "budget": Command(panel=_CLIENT, subcommands=True),
    "sign": Command(panel=_CLIENT, at_home=True),
    "receipt": Command(panel=_CLIENT, at_home=True, subcommands=True),
    "init-model": Command(panel=_SERVER),
    "sample-clients": Command(panel=_SERVER, confidential=True),
    "aggregate": Command(panel=_SERVER),
    "decode": Command(panel=_SERVER),
    "shuffle": Command(panel=_SERVER),
    "evaluate": Command(panel=_ANYONE),
    "inspect": Command(panel=_ANYONE),
    "audit": Command(panel=_ANYONE),
    "roster": Command(panel=_ANYONE),
    "verify": Command(panel=_ANYONE),
    "account": Command(panel=_ANYONE, name_or_path="targets"),
    "report": Command(panel=_ANYONE),
    "export": Command(panel=_ANYONE),
    "partition": Command(panel=_SIMULATION),
    "run": Command(panel=_SIMULATION, name_or_path="recipe"),
    "tune": Command(panel=_SIMULATION, at_home=True),
    "recipe": Command(panel=_SIMULATION, name_or_path="name"),
    "federate": Command(panel=_SIMULATION, at_home=True, subcommands=True),
    "batch": Command(panel=_SIMULATION),
}
