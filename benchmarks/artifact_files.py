"""Writing and reading an artifact against the safetensors library's own `save_file` and `load_file`.

Ours are durable (fsync of file and folder) and whole (digests of payload, header and file; no NaN), and a message has
its ledger entry besides. So there is a row against calls that do the like, and rows against the plain ones. Both sides
write a new file onto a disk that has nothing else to do.

The last rows are what an entry in a ledger costs when there are many: the last entries of 2,000 against the first, by a
process that made them all and by one that finds them there. They leave out fsync, which takes the same for each.
"""

from __future__ import annotations

import time
import unittest.mock
from collections.abc import Iterator
from pathlib import Path

import sample_files
from measuring import Row, Setting, compared, sync, take_turns
from safetensors.numpy import load_file, save_file

from artifacts.digests import sha256_file, sha256_hex
from artifacts.formats import tensors_file
from artifacts.ledgers import chain, egress

TITLE = "Files against plain safetensors"
GOAL_WRITE, GOAL_READ = 1.5, 1.0
_MODEL = "0" * 64


def measure(setting: Setting) -> Iterator[Row]:
    for megabytes, turns in ((1, 2),) if setting.smoke else ((1, 40), (40, 9)):
        yield from _measure(megabytes, turns, setting.folder / f"artifacts-{megabytes}")
    yield from _measure_ledger(*((100, 2) if setting.smoke else (2000, 5)), setting.folder)


def _measure_ledger(entries: int, turns: int, folder: Path) -> Iterator[Row]:
    """`entries` in a ledger, in tenths: the seconds of the first tenth, of the last, and of one more by another."""
    about, tenth = sample_files.about_message("00", 1, _MODEL), entries // 10
    first, last, another = [], [], []
    for turn in range(turns):
        path = folder / f"egress-{turn}.jsonl"

        def enter(start: int, count: int, path: Path = path) -> float:
            begin = time.perf_counter()
            for number in range(start, start + count):
                with egress.locked(path) as book:
                    book.enter(file=f"message-{number}", sha256=f"{number:064x}", size=1, metadata=about)
            return (time.perf_counter() - begin) / count

        with unittest.mock.patch("os.fsync"):
            first.append(enter(0, tenth))
            enter(tenth, entries - 2 * tenth)
            last.append(enter(entries - tenth, tenth))
            with unittest.mock.patch.object(chain, "_known", chain._Known()):
                another.append(enter(entries, 1))
    yield compared(f"an entry among the last {tenth} of {entries:,}", f"among the first {tenth}", last, first)
    yield compared(f"an entry after {entries:,} by another process", f"among the first {tenth}", another, first)


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

    def save_digested() -> None:
        path = save_plainly()
        sha256_file(path)
        sync(path)
        sync(plain)

    def sweep() -> None:
        """Every act writes a new file onto a quiet disk."""
        for place in (outbox, private, plain):
            for path in place.iterdir():
                path.unlink()
            sync(place)

    sides = {
        "update": write_update, "message": write_message, "plain": save_plainly, "durable": save_durably,
        "digested": save_digested,
    }  # fmt: skip
    written = take_turns(sides, turns, settle=sweep)

    sweep()
    write_update()
    ours, theirs = next(private.iterdir()), save_plainly()

    def load_and_digest() -> None:
        load_file(theirs)
        sha256_hex(theirs.read_bytes())  # read whole, as ours is

    read = take_turns(
        {
            "ours": lambda: tensors_file.read(ours),
            "plain": lambda: load_file(theirs),
            "digested": load_and_digest,
        },
        turns,
    )
    size = f"{megabytes} MB"
    like = "save_file, SHA-256, fsync"
    # What a small file costs is its name, its folder and its ledger entry: the goals are for bytes.
    goals = {"write": GOAL_WRITE, "read": GOAL_READ} if megabytes >= 40 else {}
    yield compared(f"write an update of {size}", like, written["update"], written["digested"], goal=goals.get("write"))
    yield compared(f"write a message of {size}", like, written["message"], written["digested"], goal=goals.get("write"))
    yield compared(f"write an update of {size}", "save_file, fsync", written["update"], written["durable"])
    yield compared(f"write an update of {size}", "save_file", written["update"], written["plain"])
    like = "load_file, SHA-256"
    yield compared(f"read an artifact of {size}", like, read["ours"], read["digested"], goal=goals.get("read"))
    yield compared(f"read an artifact of {size}", "load_file", read["ours"], read["plain"])
