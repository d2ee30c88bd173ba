"""The ClientApp: Flower brings a task, the client answers. Its name and home are in the node's own configuration.

Flower sends the text of an exception to the server, so none leaves this file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stages.federate.client import answer
from stages.federate.parcels import ParcelError, Reply
from stages.federate.records import read_task, reply_records

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict
    from flwr.clientapp import ClientApp


def client_app(shared: Path | None = None) -> ClientApp:
    """`shared`: the one folder of a simulation, in which a node stands for whichever client the task is for."""
    from flwr.app import Message
    from flwr.clientapp import ClientApp

    app = ClientApp()

    def work(message: Message, context: Context) -> Message:
        return Message(reply_records(_answered(message.content, context, shared)), reply_to=message)

    app.train()(work)  # called, not written as a decorator: Flower's have no types
    return app


def _answered(content: RecordDict, context: Context, shared: Path | None) -> Reply:
    own = context.node_config  # it never leaves the node
    try:
        task = read_task(content)
    except ParcelError:
        return Reply("parcel", str(own.get("client", "")), 0)
    if shared is not None:
        return answer(task, shared, task.client)
    if "home" not in own or "client" not in own:
        return Reply("failed", str(own.get("client", "")), task.round)
    return answer(task, Path(str(own["home"])), str(own["client"]))
