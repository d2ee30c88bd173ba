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
    return _bytes(_letter_line(letter), letter.task.parcels)


def _letter_line(letter: Letter) -> bytes:
    task = letter.task
    said = {
        "terms": task.terms, "versions": dict(task.versions), "client": task.client, "round": task.round,
        "targets": list(task.targets), "switches": list(task.switches), "left_out": list(task.left_out),
        "reply_bytes": letter.reply_bytes, "last": letter.last,
    }  # fmt: skip
    return _line(said, task.parcels)


def read_letter(data: bytes) -> Letter:
    with _as_agreed():
        said, parcels = _read(data)
        first, second = (None if switch is None else int(switch) for switch in said["switches"])
        task = Task(
            terms=str(said["terms"]), versions={str(k): str(v) for k, v in said["versions"].items()},
            client=str(said["client"]), round=int(said["round"]), targets=tuple(map(str, said["targets"])),
            switches=(first, second), left_out=tuple(map(int, said["left_out"])), parcels=parcels,
        )  # fmt: skip
        letter = Letter(task, int(said["reply_bytes"]), bool(said["last"]))
        _check_spelling(data, _letter_line(letter))
        return letter


def reply_bytes(reply: Reply) -> bytes:
    return _bytes(_reply_line(reply), reply.parcels)


def _reply_line(reply: Reply) -> bytes:
    said = {"status": reply.status, "client": reply.client, "round": reply.round, "names": list(reply.names)}
    return _line(said, reply.parcels)


def read_reply(data: bytes) -> Reply:
    with _as_agreed():
        said, parcels = _read(data)
        names = tuple(map(str, said["names"]))
        reply = Reply(str(said["status"]), str(said["client"]), int(said["round"]), names, parcels)
        _check_spelling(data, _reply_line(reply))
        return reply


@contextlib.contextmanager
def _as_agreed() -> Iterator[None]:
    """`ParcelError` for anything that we would not have written."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ParcelError(f"a message is not laid out as agreed: {type(error).__name__} {error}.") from error


def _line(said: dict[str, Any], parcels: tuple[Parcel, ...]) -> bytes:
    files = [[p.name, p.kind, p.round, p.size, p.sha256] for p in parcels]
    return canonical_json({"protocol": PROTOCOL, "files": files, **said}).encode() + b"\n"


def _bytes(line: bytes, parcels: tuple[Parcel, ...]) -> bytes:
    return b"".join([line, *(parcel.data for parcel in parcels)])


def _check_spelling(data: bytes, line: bytes) -> None:
    """What was read, written again, is what came: no field that nobody asked for, no other spelling."""
    if not data.startswith(line):
        raise ParcelError("a message is not laid out as agreed: it says more than was asked, or in another spelling.")


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
    if start != len(data):
        raise ParcelError("a message is not laid out as agreed: there is something behind its last file.")
    return said, tuple(parcels)
