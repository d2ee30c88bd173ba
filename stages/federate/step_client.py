"""A client of a federation by files: the newest task is done, and its answer sealed and left for the server."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from artifacts.errors import BudgetError, InputError
from artifacts.places import SERVER
from stages.execution.progress import Summary
from stages.federate.channel import WaitsForOthers
from stages.federate.client import answer, log_of
from stages.federate.drop import Label
from stages.federate.messages import Letter, read_letter, reply_bytes
from stages.federate.parcels import STATUSES, ParcelError, Reply
from stages.federate.party import Party, recall
from stages.federate.sealed import padded_size


@dataclass
class ClientMemory:
    """What a client keeps from call to call: the exchange that it answered last, the digest of its task, the answer."""

    exchange: int = 0
    round: int = 0
    task: str = ""
    status: str = ""
    ended: bool = False
    sent_bytes: int = 0
    received_bytes: int = 0

    @classmethod
    def read(cls, said: dict[str, Any]) -> ClientMemory:
        return cls(**said)


def step_client(party: Party, home: Path) -> Summary:
    """All that can be done now. `WaitsForOthers` if others must do something first."""
    memory: ClientMemory = recall(party.place, ClientMemory.read)
    _send(party, memory)
    found = _newest(party, memory)
    if found is not None:
        _work(party, home, memory, *found)
    if not memory.ended:
        raise WaitsForOthers
    return {"client": party.name, "home": str(home), "rounds": memory.round}


def _newest(party: Party, memory: ClientMemory) -> tuple[Label, Letter, str] | None:
    """The newest task that is for us and not done yet. Older ones are superseded; what is not right is refused."""
    for label in reversed(party.drop.labels(sender=SERVER, recipient=re.escape(party.name))):
        name = party.drop.name(label)
        opened = party.open(label, round=None, done=memory.task if label.exchange == memory.exchange else "")
        if opened is None:
            continue
        message, digest = opened
        if label.exchange <= memory.exchange:
            party.refused[name] = (
                f"{name} was refused: it comes too late, or again: exchange {memory.exchange} was answered already."
            )
            continue
        try:
            return label, read_letter(message), digest
        except ParcelError as error:
            party.refused[name] = f"{name} was refused: {error}"
    return None


def _work(party: Party, home: Path, memory: ClientMemory, label: Label, letter: Letter, digest: str) -> None:
    """Answer a task. One whose files wait for a person's word stays unanswered, and is looked at again."""
    task = letter.task
    # Of one who was not drawn nothing is asked; the answer looks like any other.
    reply = answer(task, home, party.name) if task.targets else Reply("done", party.name, task.round)
    if reply.status == "held":
        raise WaitsForOthers(f"{', '.join(reply.names)} waits to be released: fedsynth release")
    failed = reply.status != "done" and (letter.last or reply.status != "lacks")  # what it lacks is sent to it
    if not (letter.last and failed):  # what is for ourselves alone is tried again
        back = Label(label.exchange, party.name, SERVER)
        message = reply_bytes(reply)
        size = min(max(letter.reply_bytes, padded_size(0)), party.most_bytes)
        while size < padded_size(len(message)):
            size *= 2
        party.seal(back, message, round=task.round, size=size, answers=digest)
        memory.exchange, memory.round, memory.task, memory.status = label.exchange, task.round, digest, reply.status
        memory.ended = letter.last
        memory.received_bytes += sum(parcel.size for parcel in task.parcels)
        memory.sent_bytes += sum(parcel.size for parcel in reply.parcels)
        party.remember(asdict(memory))
        _send(party, memory)
    if failed:
        kind = BudgetError if reply.status == "budget" else InputError
        raise kind(f"round {task.round}: {party.name} {STATUSES[reply.status]}. See {log_of(home, party.name)}.")


def _send(party: Party, memory: ClientMemory) -> None:
    """Whatever was lost or cut on the way is there again."""
    if memory.exchange:
        party.send([Label(memory.exchange, party.name, SERVER)], memory.exchange)
