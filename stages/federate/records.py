"""Tasks and answers as Flower's records: a file's bytes as a uint8 Array, its label and the rest in ConfigRecords."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from stages.federate.parcels import PROTOCOL, Parcel, ParcelError, Reply, Task

if TYPE_CHECKING:
    from flwr.app import RecordDict

_FILES, _LABEL, _TASK, _REPLY = "files", "label ", "task", "reply"
# The bytes as they are: not numpy's format around them, which would have to be parsed.
_STYPE = "file"
_NONE = -1


def task_records(task: Task) -> RecordDict:
    said = {
        "terms": task.terms, "client": task.client, "round": task.round, "targets": list(task.targets),
        "switches": [_NONE if switch is None else switch for switch in task.switches],
        "left_out": list(task.left_out), "libraries": list(task.versions), "versions": list(task.versions.values()),
    }  # fmt: skip
    return _records(_TASK, said, task.parcels)


def read_task(content: RecordDict) -> Task:
    with _as_agreed():
        said, parcels = _read(content, _TASK)
        first, second = (None if switch == _NONE else int(switch) for switch in said["switches"])
        return Task(
            terms=str(said["terms"]), versions=dict(zip(said["libraries"], said["versions"], strict=True)),
            client=str(said["client"]), round=int(said["round"]), targets=tuple(map(str, said["targets"])),
            switches=(first, second), left_out=tuple(map(int, said["left_out"])), parcels=parcels,
        )  # fmt: skip


def reply_records(reply: Reply) -> RecordDict:
    said = {"status": reply.status, "client": reply.client, "round": reply.round, "names": list(reply.names)}
    return _records(_REPLY, said, reply.parcels)


def read_reply(content: RecordDict) -> Reply:
    with _as_agreed():
        said, parcels = _read(content, _REPLY)
        names = tuple(map(str, said["names"]))
        return Reply(str(said["status"]), str(said["client"]), int(said["round"]), names, parcels)


@contextlib.contextmanager
def _as_agreed() -> Iterator[None]:
    """`ParcelError` for anything that we would not have written."""
    try:
        yield
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ParcelError(f"a message is not laid out as agreed: {type(error).__name__} {error}.") from error


def _records(key: str, said: dict[str, Any], parcels: tuple[Parcel, ...]) -> RecordDict:
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    # Flower has no empty lists: it would not know of what.
    given = {name: value for name, value in said.items() if value != []}
    # Anyone who knows a record's digest can ask a SuperLink whether it is there. Without salt everybody could work out
    # that of a task for another client, and so see who was drawn.
    records = RecordDict({key: ConfigRecord({"protocol": PROTOCOL, "salt": secrets.token_hex(16), **given})})
    for parcel in parcels:
        records[_LABEL + parcel.name] = ConfigRecord(
            {
                "kind": parcel.kind,
                "round": _NONE if parcel.round is None else parcel.round,
                "size": parcel.size,
                "sha256": parcel.sha256,
            }
        )
    arrays = {p.name: Array(dtype="uint8", shape=(len(p.data),), stype=_STYPE, data=p.data) for p in parcels}
    records[_FILES] = ArrayRecord(arrays)
    return records


def _read(content: RecordDict, key: str) -> tuple[dict[str, Any], tuple[Parcel, ...]]:
    """What was said, and the files."""
    said = {"targets": [], "names": [], "left_out": [], **content.config_records[key]}
    if said["protocol"] != PROTOCOL:
        raise ParcelError(f"it speaks protocol {said['protocol']}, here is {PROTOCOL}: install the same fedsynth.")
    arrays = content.array_records[_FILES]
    return said, tuple(_parcel(name, array, content) for name, array in arrays.items())


def _parcel(name: str, array: Any, content: RecordDict) -> Parcel:
    label = content.config_records[_LABEL + name]
    if (array.dtype, array.stype, tuple(array.shape)) != ("uint8", _STYPE, (len(array.data),)):
        raise ParcelError(f"{name} does not travel as the bytes of a file.")
    round = int(label["round"])
    kind, size, digest = str(label["kind"]), int(label["size"]), str(label["sha256"])
    return Parcel(name, kind, None if round == _NONE else round, size, digest, array.data)
