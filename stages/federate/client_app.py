"""The ClientApp: Flower brings a task, the client answers. Its name and home are in the node's own configuration.

Flower sends the text of an exception to the server, so none leaves this file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from artifacts.errors import FedsynthError
from stages.federate.client import answer, note
from stages.federate.parcels import ParcelError, Reply
from stages.federate.records import read_task, reply_records
from stages.plugins import using

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
    name = str(own.get("client", ""))
    try:
        task = read_task(content)
    except ParcelError:
        return Reply("parcel", name, 0)
    if shared is None and ("home" not in own or "client" not in own):
        return Reply("failed", name, task.round)
    home, name = (shared, task.client) if shared is not None else (Path(str(own["home"])), name)
    try:
        with using([]):
            return answer(task, home, name)
    except FedsynthError as error:  # a plug-in that cannot be loaded
        note(home, name, task.round, f"failed: {error}")
        return Reply("failed", name, task.round)
