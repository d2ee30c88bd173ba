"""The ClientApp: Flower brings a task, the client answers. Its name and home are in the node's own configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.federate.client import answer
from stages.federate.parcels import ParcelError, Reply
from stages.federate.records import read_task, reply_records
from stages.federate.terms import FILE, our_versions, read_terms

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict
    from flwr.clientapp import ClientApp

INTRODUCTION = "introduction"


def client_app(shared: Path | None = None) -> ClientApp:
    """`shared`: the one folder of a simulation, in which a node stands for whichever client the task is for."""
    from flwr.app import Message
    from flwr.clientapp import ClientApp

    app = ClientApp()

    def work(message: Message, context: Context) -> Message:
        return Message(reply_records(_answered(message.content, context, shared)), reply_to=message)

    def introduce(message: Message, context: Context) -> Message:
        return Message(_introduction(context), reply_to=message)

    # Called, not written as decorators: Flower's have no types.
    app.train()(work)
    app.query()(introduce)
    return app


def _answered(content: RecordDict, context: Context, shared: Path | None) -> Reply:
    try:
        task = read_task(content)
    except ParcelError:
        return Reply("parcel", _own(context, "client"), 0)
    if shared is not None:
        return answer(task, shared, task.client)
    return answer(task, Path(_own(context, "home")), _own(context, "client"))


def _introduction(context: Context) -> RecordDict:
    """Who this node is for, and whether its terms and versions are the server's: all that an introduction says."""
    from flwr.app import ConfigRecord, RecordDict

    home = Path(_own(context, "home"))
    said: dict[str, Any] = {"client": _own(context, "client"), "terms": read_terms(home / FILE).digest}
    said |= {"libraries": list(our_versions()), "versions": list(our_versions().values())}
    return RecordDict({INTRODUCTION: ConfigRecord(said)})


def _own(context: Context, name: str) -> str:
    """From the node's own configuration, which never leaves it."""
    return str(context.node_config[name])
