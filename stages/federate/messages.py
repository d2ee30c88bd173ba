"""Tasks and answers as bytes, to be sealed: a line of JSON that says everything, then the files one after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from artifacts.digests import canonical_json
from artifacts.formats.plain_data import parse_json
from stages.federate.parcels import PROTOCOL, Parcel, ParcelError, Reply, Task

_MOST_SAID = 2**20


@dataclass(frozen=True)
class Letter:
    """A task on its way. `reply_bytes`: to which every answer is padded. `last`: none comes after it."""

    task: Task
    reply_bytes: int
    last: bool = False


def letter_bytes(letter: Letter) -> bytes:
    task = letter.task
    said = {
        "terms": task.terms, "versions": dict(task.versions), "client": task.client, "round": task.round,
        "targets": list(task.targets), "switches": list(task.switches), "left_out": list(task.left_out),
        "reply_bytes": letter.reply_bytes, "last": letter.last,
    }  # fmt: skip
    return _bytes(said, task.parcels)


def read_letter(data: bytes) -> Letter:
    with _as_agreed():
        said, parcels = _read(data)
        first, second = (None if switch is None else int(switch) for switch in said["switches"])
        task = Task(
            terms=str(said["terms"]), versions={str(k): str(v) for k, v in said["versions"].items()},
            client=str(said["client"]), round=int(said["round"]), targets=tuple(map(str, said["targets"])),
            switches=(first, second), left_out=tuple(map(int, said["left_out"])), parcels=parcels,
        )  # fmt: skip
        return Letter(task, int(said["reply_bytes"]), bool(said["last"]))


def reply_bytes(reply: Reply) -> bytes:
    said = {"status": reply.status, "client": reply.client, "round": reply.round, "names": list(reply.names)}
    return _bytes(said, reply.parcels)


def read_reply(data: bytes) -> Reply:
    with _as_agreed():
        said, parcels = _read(data)
        names = tuple(map(str, said["names"]))
        return Reply(str(said["status"]), str(said["client"]), int(said["round"]), names, parcels)


@contextlib.contextmanager
def _as_agreed() -> Iterator[None]:
    """`ParcelError` for anything that we would not have written."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ParcelError(f"a message is not laid out as agreed: {type(error).__name__} {error}.") from error


def _bytes(said: dict[str, Any], parcels: tuple[Parcel, ...]) -> bytes:
    files = [[p.name, p.kind, p.round, p.size, p.sha256] for p in parcels]
    line = canonical_json({"protocol": PROTOCOL, "files": files, **said}).encode()
    return b"".join([line, b"\n", *(parcel.data for parcel in parcels)])


def _read(data: bytes) -> tuple[dict[str, Any], tuple[Parcel, ...]]:
    """What was said, and the files."""
    end = data.find(b"\n", 0, _MOST_SAID)
    said = parse_json(data[:end]) if end >= 0 else None
    if not isinstance(said, dict):
        raise ParcelError("a message is not laid out as agreed: it does not begin with what it says.")
    if said["protocol"] != PROTOCOL:
        raise ParcelError(f"it speaks protocol {said['protocol']}, here is {PROTOCOL}: install the same fedsynth.")
    parcels, start = [], end + 1
    for name, kind, round, size, digest in said["files"]:
        if type(size) is not int or size < 0 or start + size > len(data):
            raise ParcelError(f"{name} does not fit into the message that it came in.")
        number = None if round is None else int(round)
        parcels.append(Parcel(str(name), str(kind), number, size, str(digest), data[start : start + size]))
        start += size
    return said, tuple(parcels)
