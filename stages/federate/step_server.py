"""The server of a federation by files. In each exchange everybody gets one parcel, all of one size, asked or not.

An exchange begins when nobody is at work on the one before. Its parcels lie in the drop folder until the next; answers
to earlier ones come too late. Parcels and memory are on this machine's disk before anything is in the drop folder, so
that a process that was killed goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from artifacts.places import SERVER
from stages.execution.progress import Report, Summary, silent
from stages.federate.channel import Memory, WaitsForOthers
from stages.federate.drop import Label
from stages.federate.messages import Letter, letter_bytes, read_reply
from stages.federate.parcels import ParcelError, Reply, Task
from stages.federate.party import Party, recall
from stages.federate.sealed import padded_size
from stages.federate.server import serve
from stages.federate.terms import our_versions

_ROOM = 2**16  # beside a file: its label, its envelope


@dataclass
class Open:
    """The parcel that a client was sent last. `targets` are empty where nothing is asked of it."""

    round: int
    targets: tuple[str, ...]
    sha256: str


@dataclass
class ServerMemory(Memory):
    """What the server keeps from call to call. `heard`: by client, the digest of the answer that came last."""

    exchange: int = 0
    round: int = 0
    longest: int = 0  # bytes of an answer
    ended: bool = False
    open: dict[str, Open] = field(default_factory=dict)
    heard: dict[str, str] = field(default_factory=dict)
    sent_bytes: int = 0
    received_bytes: int = 0

    @classmethod
    def read(cls, said: dict[str, Any]) -> ServerMemory:
        return cls(
            **{
                **said,
                "since": {name: (str(file), float(when)) for name, (file, when) in said.get("since", {}).items()},
                "dropped": {name: (int(round), str(why)) for name, (round, why) in said.get("dropped", {}).items()},
                "open": {name: _read_open(one) for name, one in said.get("open", {}).items()},
            }
        )


def _read_open(said: dict[str, Any]) -> Open:
    return Open(int(said["round"]), tuple(map(str, said["targets"])), str(said["sha256"]))


class FileChannel:
    """Tasks and answers through the drop folder. Each client has one task at a time, which is its ticket."""

    stays = False

    def __init__(self, party: Party, memory: ServerMemory) -> None:
        self._party, self._memory = party, memory
        self._asked: dict[str, Task] = {}  # by client, in this process
        self._batch: dict[str, Task] = {}
        self._answered: set[str] = set()
        self.send()

    def present(self) -> set[str]:
        return set(self._party.terms.participants)

    def ask(self, task: Task) -> str:
        known = self._memory.open.get(task.client)
        if known is None or (known.round, known.targets) != (task.round, task.targets) or task.client in self._answered:
            self._batch[task.client] = task
        self._asked[task.client] = task
        return _ticket(task)

    def answers(self, asked: Iterable[str]) -> list[tuple[str, Reply | None]]:
        waited = set(asked)
        found: list[tuple[str, Reply | None]] = []
        for label in self._party.drop.labels(recipient=SERVER):
            task, known = self._asked.get(label.sender), self._memory.open.get(label.sender)
            if task is None or known is None or label.sender in self._batch or label.exchange != self._memory.exchange:
                self._refuse_odd(label)
            elif label.sender not in self._answered and _ticket(task) in waited:
                reply = self._read(label, known)
                if reply is not None:
                    found.append((_ticket(task), reply))
                    self._answered.add(label.sender)
        return found

    def pause(self) -> None:
        """What came is taken in by now. If nothing came, the next exchange begins, or there is nothing to do."""
        came = [client for client in self._answered if self._memory.open.pop(client, None) is not None]
        if not came and self._batch and not self._at_work():
            self._begin()
        elif not came:
            self._save()
            raise WaitsForOthers
        self._save()

    def close(self) -> None:
        if not self._memory.ended:
            self._begin(last=True)
        self._memory.ended = True
        self._save()

    def send(self) -> int:
        """Whatever was lost or cut on the way is there again."""
        exchange = self._memory.exchange
        labels = [Label(exchange, SERVER, client) for client in self._party.terms.participants]
        return self._party.send(labels if exchange else [], exchange)

    def _at_work(self) -> list[str]:
        """Clients that the next exchange waits for: asked for something, and not left out of the round by now."""
        gone = self._memory.dropped
        return [
            client
            for client, known in self._memory.open.items()
            if known.targets and client in self._asked and client not in self._batch
            and gone.get(client, (None, ""))[0] != known.round
        ]  # fmt: skip

    def _begin(self, *, last: bool = False) -> None:
        """One parcel for everybody, on this disk; then the memory; then the drop folder."""
        memory, terms = self._memory, self._party.terms
        memory.round = max([memory.round, *(task.round for task in self._batch.values())])
        exchange = memory.exchange + 1
        answers = self._reply_bytes()
        tasks = {client: self._batch.get(client) or self._idle(client) for client in terms.participants}
        letters = {client: letter_bytes(Letter(task, answers, last)) for client, task in tasks.items()}
        size = padded_size(max(map(len, letters.values())))
        begun = {}
        for client, message in letters.items():
            task = tasks[client]
            digest = self._party.seal(Label(exchange, SERVER, client), message, round=task.round, size=size)
            begun[client] = Open(task.round, task.targets, digest)
        memory.open, memory.exchange = begun, exchange
        self._batch.clear()
        self._answered.clear()
        self._save()
        memory.sent_bytes += self.send()

    def _idle(self, client: str) -> Task:
        """For a client of which nothing is asked: from outside it looks like all others."""
        return Task(self._party.terms.digest, our_versions(), client, self._memory.round, (), (None, None), (), ())

    def _reply_bytes(self) -> int:
        """Room for every answer: by the answers that came, or the model that goes out."""
        files = max((len(task.targets) for task in self._batch.values()), default=0)
        largest = max((parcel.size for task in self._batch.values() for parcel in task.parcels), default=0)
        return padded_size(max(self._memory.longest, files * (largest + _ROOM), _ROOM))

    def _read(self, label: Label, known: Open) -> Reply | None:
        party, memory = self._party, self._memory
        opened = party.open(label, round=known.round, answers=known.sha256)
        if opened is None:
            return None
        message, memory.heard[label.sender] = opened
        memory.longest = max(memory.longest, len(message))
        memory.received_bytes += len(message)
        try:
            return read_reply(message)
        except ParcelError as error:
            party.refused[party.drop.name(label)] = f"{party.drop.name(label)} cannot be read: {error}"
            return Reply("unreadable", "", 0)

    def _refuse_odd(self, label: Label) -> None:
        """Say what is wrong with a parcel that nobody waits for, unless it was taken before."""
        party, name, exchange = self._party, self._party.drop.name(label), self._memory.exchange
        if label.sender not in party.terms.participants:
            party.refused[name] = f"{name} was refused: {label.sender!r} is not a client by the terms."
        elif label.exchange > exchange:
            party.refused[name] = f"{name} was refused: it was never asked for; the exchange is {exchange}."
        elif party.drop.digest(label) == self._memory.heard.get(label.sender):
            return
        elif label.exchange == exchange:  # of one of whom nothing was asked, so that nothing is read
            self._memory.heard[label.sender] = party.drop.digest(label)
        else:
            party.refused[name] = f"{name} was refused: it comes too late, or again; the exchange is {exchange}."

    def _save(self) -> None:
        self._party.remember(asdict(self._memory))


def _ticket(task: Task) -> str:
    return "/".join([task.client, str(task.round), *task.targets])


def step_server(party: Party, home: Path, *, log: Callable[[str], None], report: Report = silent) -> Summary:
    """All that can be done now. `WaitsForOthers` if others must do something first."""
    memory: ServerMemory = recall(party.place, ServerMemory.read)
    channel = FileChannel(party, memory)
    try:
        return serve(party.terms, home, channel, log=log, report=report, memory=memory)
    finally:
        party.remember(asdict(memory))
