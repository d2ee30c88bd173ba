"""Ten clients a round out of many: `run` against Flower's simulation with Ray, and how both grow with the clients.

The recipe `many-clients` on digits: softmax regression, five steps each, one process that trains on either side. The
clients take the same number of steps however many they are, so that a round is the same work. Both sides must end with
the same files, byte for byte. Memory is that of all processes, what they share counted once. What grows most is
`partition`: a folder, a key and a dataset for each client, each synced to disk. At full size there are 1,000 clients
too.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import process_tree
from measuring import Row, Setting, megabytes, seconds
from process_tree import Usage

from stages.federate.terms import FILE
from stages.run_folder.files import model_file

TITLE = "Many clients, ten of them a round"
_A_ROUND = 10
_STEPS = ("train-client.local_epochs=null", "train-client.local_steps=5")
_SIDES = {"run": (["run"], ["--workers", "1"]), "Ray": (["federate", "simulate"], ["--cpus", "1"])}


@dataclass(frozen=True)
class _Taken:
    """`a_round` is by the times of the server's models, the first round not counted."""

    usage: Usage
    a_round: float
    files: dict[str, str]


def measure(setting: Setting) -> Iterator[Row]:
    if not process_tree.THERE:
        return
    counts, rounds = ((10,), 2) if setting.smoke else ((10, 100), 4)
    if setting.full:
        counts += (1000,)
    taken: dict[tuple[str, int], _Taken] = {}
    for count in counts:
        for side in _SIDES:
            taken[side, count] = _run(side, count, rounds, setting.folder)
        ours, theirs = taken["run", count], taken["Ray", count]
        assert ours.files == theirs.files, sorted(ours.files.items() ^ theirs.files.items())[:4]
        yield from _rows(f"{count:,} clients, {rounds} rounds", "Flower with Ray, same files", ours, theirs)
    few = counts[0]
    for count in counts[1:]:
        for side in _SIDES:
            yield from _rows(f"{side}: {count:,} clients", f"{few} clients", taken[side, count], taken[side, few])


def _run(side: str, count: int, rounds: int, folder: Path) -> _Taken:
    out = folder / f"{side}-{count}"
    chosen = (f"partition.clients={count}", f"participation={_A_ROUND / count}", *_STEPS)
    command, workers = _SIDES[side]
    words = [
        sys.executable, "-c", "from fedsynth_cli.app import main; main()", *command, "many-clients", *workers,
        "--rounds", str(rounds), "--quiet", "-o", out, *(word for value in chosen for word in ("--set", value)),
    ]  # fmt: skip
    usage = process_tree.run(words, folder / "log")
    first, last = ((out / model_file(number)).stat().st_mtime for number in (1, rounds))
    return _Taken(usage, (last - first) / (rounds - 1), _digests(out))


def _rows(what: str, against: str, ours: _Taken, theirs: _Taken) -> Iterator[Row]:
    for text, a, b, spell in (
        ("from start to end", ours.usage.seconds, theirs.usage.seconds, seconds),
        ("processor time", ours.usage.processor, theirs.usage.processor, seconds),
        ("a round", ours.a_round, theirs.a_round, seconds),
        ("peak memory", ours.usage.peak, theirs.usage.peak, megabytes),
    ):
        yield Row(what=f"{what}: {text}", against=against, ours=spell(a), theirs=spell(b), ratio=a / b)


def _digests(out: Path) -> dict[str, str]:
    """Of what a run leaves. The federation has its terms besides, and a lock that its clients took."""
    found = {}
    for path in out.rglob("*"):
        if path.is_file() and path.name != FILE and not path.name.startswith("."):
            with path.open("rb") as handle:
                found[path.relative_to(out).as_posix()] = hashlib.file_digest(handle, "sha256").hexdigest()
    return found
