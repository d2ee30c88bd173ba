"""Virtual clients: the channel to the nodes of Flower's simulation engine, and the app that each of them runs.

All of them work in one folder on machines of one owner, so that any node may stand for any client, and nothing is
sealed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts.errors import FedsynthError
from stages.federate.client import answer, note
from stages.federate.messages import Letter, letter_bytes, read_letter, read_reply, reply_bytes
from stages.federate.parcels import ParcelError, Reply, Task
from stages.federate.terms import Terms
from stages.plugins import using

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

_PAUSE = 0.2
_BYTES = "bytes"
_log = logging.getLogger("flwr")


class VirtualChannel:
    """Tasks go to the nodes in turn."""

    stays = True

    def __init__(self, grid: Grid, terms: Terms) -> None:
        self._grid, self._terms = grid, terms
        self._nodes: list[int] = []
        self._asked: set[str] = set()
        self._turn = 0

    def present(self) -> set[str]:
        self._nodes = self._nodes or sorted(self._grid.get_node_ids())
        return set(self._terms.participants) if self._nodes else set()

    def ask(self, task: Task) -> str:
        from flwr.app import Message

        self._turn += 1
        message = Message(
            _records(letter_bytes(Letter(task, 0))), dst_node_id=self._nodes[self._turn % len(self._nodes)],
            message_type="train", ttl=self._terms.wait, group_id=str(task.round),
        )  # fmt: skip
        (ticket,) = self._grid.push_messages([message])
        self._asked.add(str(ticket))
        return str(ticket)

    def answers(self, asked: Iterable[str]) -> list[tuple[str, Reply | None]]:
        waiting = [ticket for ticket in asked if ticket in self._asked]
        found: list[tuple[str, Reply | None]] = []
        for message in self._grid.pull_messages(waiting) if waiting else ():
            ticket = message.metadata.reply_to_message_id
            self._asked.discard(ticket)
            if message.has_error():
                _log.warning("a node failed: %s", message.error.reason)
                found.append((ticket, None))
            else:
                found.append((ticket, read_reply(_read(message.content))))
        return found

    def pause(self) -> None:
        time.sleep(_PAUSE)

    def close(self) -> None:
        """Nothing to do: the process stayed until the clients had answered."""


def virtual_client(folder: Path) -> ClientApp:
    """Does in the one folder what whichever client the task is for would do."""
    from flwr.app import Message
    from flwr.clientapp import ClientApp

    app = ClientApp()

    def work(message: Message, context: Context) -> Message:  # noqa: ARG001
        return Message(_records(reply_bytes(_answered(_read(message.content), folder))), reply_to=message)

    app.train()(work)  # called, not written as a decorator: Flower's have no types
    return app


def _answered(data: bytes, folder: Path) -> Reply:
    try:
        task = read_letter(data).task
    except ParcelError:
        return Reply("parcel", "", 0)
    try:
        with using([]):
            return answer(task, folder, task.client)
    except FedsynthError as error:  # a plug-in that cannot be loaded
        note(folder, task.client, task.round, f"failed: {error}")
        return Reply("failed", task.client, task.round)


def _records(data: bytes) -> RecordDict:
    from flwr.app import Array, ArrayRecord, RecordDict

    # The bytes as they are: not numpy's format around them, which would have to be parsed.
    array = Array(dtype="uint8", shape=(len(data),), stype=_BYTES, data=data)
    return RecordDict({_BYTES: ArrayRecord({_BYTES: array})})


def _read(content: RecordDict) -> bytes:
    data: bytes = content.array_records[_BYTES][_BYTES].data
    return data
