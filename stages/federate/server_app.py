"""The ServerApp: the server's side over Flower's grid. Its home is where FEDSYNTH_HOME says."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts.errors import FedsynthError, InputError
from artifacts.places import RunFolder
from artifacts.writing import atomic
from stages.federate.flower import HOME_VARIABLE
from stages.federate.parcels import ParcelError, Reply, Task
from stages.federate.records import read_reply, task_records
from stages.federate.server import serve
from stages.federate.terms import FILE, Terms, read_terms
from stages.plugins import using

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict
    from flwr.serverapp import Grid, ServerApp

_LOOK = 1.0
_PAUSE = 0.2
_log = logging.getLogger("flwr")


def server_app(terms: Path) -> ServerApp:
    """The app of a federation by these terms, which must be those that are in the server's home too."""
    from flwr.serverapp import ServerApp

    app = ServerApp()

    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
        home = _home()
        try:
            with using([]):
                agreed = _agreed(terms, home)
                serve(agreed, home, GridChannel(grid, agreed), log=_log.info)
        except FedsynthError as error:
            _end(home, error.exit_code, str(error))
            _log.error("fedsynth: error: %s (exit code %d)", error, error.exit_code)
            # Not SystemExit: Flower would not see it, and take the run for alive until its heartbeat lapses.
            raise error.with_traceback(None) from None
        _end(home, 0, "")

    app.main()(main)
    return app


def end_file(home: Path) -> Path:
    """How the last run ended."""
    return RunFolder(home).server.private / "federation-end.json"


def _end(home: Path, code: int, message: str) -> None:
    text = json.dumps({"exit_code": code, "message": message}, ensure_ascii=False) + "\n"
    atomic.write(end_file(home), [text.encode()], force=True)


def _home() -> Path:
    found = os.environ.get(HOME_VARIABLE)
    if not found:
        raise InputError(f"{HOME_VARIABLE} does not say where the server's home is. Start the SuperLink with it.")
    return Path(found)


def _agreed(terms: Path, home: Path) -> Terms:
    sent, own = read_terms(terms), read_terms(home / FILE)
    if sent.digest != own.digest:
        raise InputError(f"the app's terms are not those of {home / FILE}: write the app anew from these, or agree.")
    return own


class GridChannel:
    """Clients behind Flower's nodes: a node is the client by whose name its key was registered, or it is nobody.

    A node that was started anew since it was asked has forgotten the task, and is lost to it.
    """

    def __init__(self, grid: Grid, terms: Terms, *, shared: bool = False) -> None:
        self._grid, self._terms, self._shared = grid, terms, shared
        self._nodes: dict[str, int] = {}
        self._since: dict[int, str] = {}
        self._asked: dict[str, tuple[int, str]] = {}
        self._looked = 0.0
        self._strangers: set[tuple[int, str]] = set()

    stays = True

    def pause(self) -> None:
        time.sleep(_PAUSE)

    def close(self) -> None:
        """Nothing to do: the process stayed until the clients had answered."""

    def present(self) -> set[str]:
        self._look()
        return {client for client, node in self._nodes.items() if node in self._since}

    def ask(self, task: Task) -> str:
        node = self._nodes[task.client]
        ticket = self._push(task_records(task), node, str(task.round))
        self._asked[ticket] = (node, self._since.get(node, ""))
        return ticket

    def answers(self, asked: Iterable[str]) -> list[tuple[str, Reply | None]]:
        self._look()
        known = [ticket for ticket in asked if ticket in self._asked]
        found: list[tuple[str, Reply | None]] = []
        for message in self._pull(known):
            ticket = message.metadata.reply_to_message_id
            if ticket in self._asked:
                found.append((ticket, self._reply(ticket, message)))
        for ticket in known:
            node, since = self._asked.get(ticket, (0, ""))
            if self._since.get(node, since) != since:
                del self._asked[ticket]
                found.append((ticket, None))
        return found

    def _reply(self, ticket: str, message: Message) -> Reply | None:
        node, _ = self._asked.pop(ticket)
        if message.has_error():
            _log.warning("node %d: %s", node, ParcelError(str(message.error.reason)))  # the node's words, on one line
            return None
        try:
            return read_reply(message.content)
        except ParcelError as error:
            _log.warning("node %d: %s", node, error)
            return Reply("unreadable", "", 0)

    def _look(self) -> None:
        """Who is there now; not more often than is of use."""
        if time.monotonic() < self._looked + _LOOK:
            return
        self._looked = time.monotonic()
        nodes = list(self._grid.get_nodes())
        self._since = {node.node_id: node.last_activated_at for node in nodes}
        if self._shared:
            # Any node may stand for any client: they all work in one folder.
            everybody = self._terms.participants
            order = sorted(self._since)
            self._nodes = (
                {client: order[number % len(order)] for number, client in enumerate(everybody)} if order else {}
            )
            return
        for node in nodes:
            self._know(node.node_id, node.name)

    def _know(self, node: int, client: str) -> None:
        if client not in self._terms.participants:
            self._turn_away(node, f"{client!r} is not a client by the terms")
        elif self._nodes.get(client, node) != node and self._nodes[client] in self._since:
            self._turn_away(node, f"{client!r} is there already, as another node")
        else:
            self._nodes[client] = node

    def _turn_away(self, node: int, why: str) -> None:
        if (node, why) not in self._strangers:
            self._strangers.add((node, why))
            _log.warning("node %d is left out: %s", node, why)

    def _push(self, content: RecordDict, node: int, group: str) -> str:
        from flwr.app import Message

        # A task outlives the round's wait a little, so that an answer at the last moment is seen, and seen to be late.
        message = Message(content, dst_node_id=node, message_type="train", ttl=self._terms.wait + 600, group_id=group)
        tickets = list(self._grid.push_messages([message]))
        if not tickets or not tickets[0]:
            raise InputError(f"Flower did not take a message to node {node}. Is it too large for the SuperLink?")
        return str(tickets[0])

    def _pull(self, tickets: Sequence[str]) -> list[Message]:
        return list(self._grid.pull_messages(tickets)) if tickets else []
