"""Writing and reading an artifact against the safetensors library's own save_file and load_file.

Ours are durable (fsync of file and folder) and whole (digests of payload, header and file; no NaN), a message has
its ledger entry besides. So there is a line against the plain calls, and one against calls that do the like.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import sample_files
from measuring import Row, Setting, compared, sync, take_turns
from safetensors.numpy import load_file, save_file

from artifacts import tensors_file

ABOUT = "writing and reading an artifact against safetensors' save_file and load_file"
_MODEL = "0" * 64


def measure(setting: Setting) -> Iterator[Row]:
    for megabytes, turns in ((1, 5),) if setting.quick else ((1, 40), (40, 9)):
        yield from _measure(megabytes, turns, setting.folder / f"artifacts-{megabytes}")


def _measure(megabytes: int, turns: int, folder: Path) -> Iterator[Row]:
    tensors = sample_files.weights(megabytes)
    outbox, private, plain = folder / "00" / "outbox", folder / "00" / "private", folder / "plain"
    for place in (outbox, private, plain):
        place.mkdir(parents=True)
    rounds = iter(range(1, 10**6))

    def write_update() -> None:
        about = sample_files.about_update("00", 1, _MODEL)
        tensors_file.write(private / f"update-{next(rounds):04}.safetensors", tensors, about)

    def write_message() -> None:
        about = sample_files.about_message("00", 1, _MODEL)
        tensors_file.write(outbox / f"message-{next(rounds):04}.safetensors", tensors, about)

    def save_plainly() -> Path:
        path = plain / f"{next(rounds):04}.safetensors"
        save_file(tensors, path)
        return path

    def save_durably() -> None:
        sync(save_plainly())
        sync(plain)

    def sweep() -> None:
        """Every act writes a new file onto a quiet disk."""
        for place in (outbox, private, plain):
            for path in place.iterdir():
                path.unlink()
            sync(place)

    sides = {"update": write_update, "message": write_message, "plain": save_plainly, "durable": save_durably}
    written = take_turns(sides, turns, settle=sweep)

    sweep()
    write_update()
    ours, theirs = next(private.iterdir()), save_plainly()

    def load_and_digest() -> None:
        load_file(theirs)
        hashlib.sha256(theirs.read_bytes()).hexdigest()

    read = take_turns(
        {
            "ours": lambda: tensors_file.read(ours),
            "plain": lambda: load_file(theirs),
            "digested": load_and_digest,
        },
        turns,
    )
    size = f"{megabytes} MB"
    yield compared(f"write an update of {size}", "save_file", written["update"], written["plain"])
    yield compared(f"write an update of {size}", "save_file and fsync", written["update"], written["durable"])
    yield compared(f"write a message of {size}", "save_file and fsync", written["message"], written["durable"])
    yield compared(f"read an artifact of {size}", "load_file", read["ours"], read["plain"])
    yield compared(f"read an artifact of {size}", "load_file and sha256", read["ours"], read["digested"])
