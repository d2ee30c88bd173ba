"""The ServerApp: carries the sealed parcels of the server's worker to the nodes, and theirs back, piece by piece.

A node is the client by whose name its key was registered. Every client gets a parcel of one size in each exchange,
asked or not; what is in it, and whether an answer is what it should be, the workers know.
"""

from __future__ import annotations

import hashlib
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from .client import packed, unpacked
from .wire import ask

_TERMS = Path(__file__).with_name("federation.yaml")
_PATIENCE = 120.0
_PAUSE = 0.1
_LOOK = 1.0
_AGAIN = 5.0  # seconds until one that waits, or was lost, is asked again, and until the worker looks at the clock
_FAREWELL = 120.0
_log = logging.getLogger("flwr")


@dataclass
class _Way:
    """How far the parcel of an exchange is on its way to a client, and the client's answer on its way back."""

    name: str
    size: int
    sha256: str
    there: int = 0
    back: int = 0
    answered: bool = False
    not_before: float = 0.0
    asked: str | None = None
    since: str = ""


class _Carrier:
    def __init__(self, grid: Grid, piece: int) -> None:
        self._grid, self._piece = grid, piece
        self._ways: dict[str, _Way] = {}
        self._nodes: dict[str, tuple[int, str]] = {}
        self._strangers: set[tuple[int, str]] = set()
        self._looked = 0.0

    @property
    def present(self) -> list[str]:
        return sorted(self._nodes)

    @property
    def all_answered(self) -> bool:
        return all(way.answered for client, way in self._ways.items() if client in self._nodes)

    def know(self, parcels: list[dict[str, Any]]) -> None:
        """The newest parcels to the clients. A message about an older one is forgotten."""
        for said in parcels:
            known = self._ways.get(said["to"])
            if known is None or (known.name, known.sha256) != (said["name"], said["sha256"]):
                self._ways[said["to"]] = _Way(said["name"], said["size"], said["sha256"])

    def look(self) -> None:
        """Who is there. One that was started anew has forgotten what it was asked."""
        if time.monotonic() < self._looked + _LOOK:
            return
        self._looked = time.monotonic()
        found: dict[str, tuple[int, str]] = {}
        for node in self._grid.get_nodes():
            since = str(getattr(node, "last_activated_at", ""))
            if node.name not in self._ways:
                self._turn_away(node.node_id, f"{node.name!r} is not a client by the terms")
            elif node.name in found:
                self._turn_away(node.node_id, f"{node.name!r} is there already, as another node")
            else:
                found[node.name] = (node.node_id, since)
        self._nodes = found
        for client, way in self._ways.items():
            if way.asked is not None and client in found and found[client][1] != way.since:
                _log.info("%s: lost; asked again", client)
                way.asked = None

    def _turn_away(self, node: int, why: str) -> None:
        if (node, why) not in self._strangers:
            self._strangers.add((node, why))
            _log.warning("node %d is left out: %s", node, why)

    def send(self) -> None:
        now = time.monotonic()
        for client, (node, since) in self._nodes.items():
            way = self._ways[client]
            if way.asked is None and not way.answered and way.not_before <= now:
                data = b""
                if self._piece and way.there < way.size:
                    _, data = ask(
                        {"do": "read", "name": way.name, "offset": way.there, "most": self._piece}, patience=_PATIENCE
                    )
                said = {
                    "name": way.name, "size": way.size, "sha256": way.sha256, "offset": way.there, "back": way.back,
                    "most": self._piece,
                }  # fmt: skip
                message = Message(packed(said, data), dst_node_id=node, message_type="train", group_id=way.name[-40:])
                tickets = list(self._grid.push_messages([message]))
                if tickets and tickets[0]:
                    way.asked, way.since = str(tickets[0]), since
                else:
                    _log.warning("%s: Flower did not take a message of %d bytes", client, len(data))
                    way.not_before = now + _AGAIN

    def collect(self) -> bool:
        """Whether an answer has come that is whole now."""
        asked = {way.asked: (client, way) for client, way in self._ways.items() if way.asked is not None}
        came = False
        for message in self._grid.pull_messages(list(asked)) if asked else ():
            client, way = asked[message.metadata.reply_to_message_id]
            way.asked = None
            if message.has_error():
                _log.warning("%s: its node failed: code %s", client, message.error.code)  # its words are not repeated
                way.not_before = time.monotonic() + _AGAIN
            else:
                came = self._take(client, way, message) or came
        return came

    def _take(self, client: str, way: _Way, message: Message) -> bool:
        way.not_before = time.monotonic() + _AGAIN
        try:
            said, data = unpacked(message.content)
            have, size = int(said.get("have", 0)), int(said.get("size", -1))
            name, digest, state = str(said.get("name", "")), str(said.get("sha256", "")), str(said.get("state", ""))
        except (KeyError, ValueError, TypeError, AttributeError):
            _log.warning("%s: an answer that is not laid out as agreed", client)
            return False
        if way.there < have <= way.size:
            way.there, way.not_before = have, 0.0
        if not name:
            if state in ("waiting", "away"):
                _log.info("%s: %s", client, "waits for its people" if state == "waiting" else "its worker is away")
            return False
        question = {"do": "write", "from": client, "name": name, "size": size, "sha256": digest, "offset": way.back}
        answer, _ = ask(question, data, patience=_PATIENCE)
        _raise_failed(answer)
        got = int(answer["have"])
        if got > way.back:
            way.not_before = 0.0
        way.back = got
        way.answered = got == size
        if answer.get("why"):
            _log.warning("%s: %s", client, answer["why"])
        return way.answered


class RunEnded(RuntimeError):
    """How the server's worker ended the run, in its words."""


def _raise_failed(said: dict[str, Any]) -> None:
    if said.get("state") == "failed":
        _log.error("fedsynth: error: %s (exit code %d)", said["message"], said["exit_code"])
        raise RunEnded(said["message"])


def _step(**more: Any) -> dict[str, Any]:
    said, _ = ask({"do": "step", **more}, patience=_PATIENCE)
    for line in said.get("log", ()):
        _log.info("%s", line)
    _raise_failed(said)
    return said


def carry(grid: Grid) -> None:
    """The federation to its end."""
    said, _ = ask({"do": "begin", "terms": hashlib.sha256(_TERMS.read_bytes()).hexdigest()}, patience=_PATIENCE)
    _raise_failed(said)
    carrier = _Carrier(grid, int(said["piece"]))
    said, looked, came = _step(), time.monotonic(), False
    carrier.know(said["parcels"])
    end = None
    while end is None or (time.monotonic() < end and not carrier.all_answered):
        carrier.look()
        carrier.send()
        came = carrier.collect()
        if end is None and (came or time.monotonic() >= looked + _AGAIN or said["state"] == "done"):
            if said["state"] != "done":
                said, looked = _step(present=carrier.present), time.monotonic()
                carrier.know(said["parcels"])
            if said["state"] == "done":
                end = time.monotonic() + min(_FAREWELL, float(said["wait"]))
        if not came:
            time.sleep(_PAUSE)


app = ServerApp()


def _main(grid: Grid, context: Context) -> None:  # noqa: ARG001
    carry(grid)


app.main()(_main)
