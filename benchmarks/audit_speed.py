"""`audit` of a run folder against `sha256sum` on every file that it reads: messages, updates, models, ledgers.

All checks but replay. The goal is by the clock, with a process for each core where there are many files; rows of the
processor's time say what the same costs in all. The files are in memory after the first turn. `sha256sum` may not use
the processor's SHA instructions, `hashlib` does; the audit hashes a file and its payload, and looks for keys in every
byte. With small files it is not bytes that cost but files: metadata that are parsed, and spelt again to see that they
are spelt in the one way.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import unittest.mock
from collections.abc import Callable, Iterator
from pathlib import Path

import process_tree
import sample_files
from measuring import Row, Setting, compared, cpu_seconds, megabytes, take_turns

from artifacts.formats import tensors_file
from artifacts.identity import keys
from artifacts.places import RunFolder
from stages.aggregate import aggregate
from stages.audit import audit
from stages.encode import encode
from stages.methods.params.aggregation import MeanRule
from stages.methods.params.encoding import DeltaEncoding
from stages.run_folder.files import message_file, model_file

TITLE = "`audit` against `sha256sum`"


def measure(setting: Setting) -> Iterator[Row]:
    clients, rounds, megabytes = (2, 2, 1.0) if setting.smoke else (5, 10, 4.0)
    root = setting.folder / "audit"
    _make_run(root, [f"{number:02}" for number in range(clients)], rounds, megabytes)
    yield from _measure(root, f"{clients * rounds * megabytes:.0f} MB of messages", 1 if setting.smoke else 5)
    shutil.rmtree(root)
    if setting.smoke:
        return
    # Many small rounds: what each file costs besides its bytes.
    with unittest.mock.patch("os.fsync"):  # none of them is measured
        _make_run(root, ["00"], 500, 0.02)
    yield from _measure(root, "one client and 500 rounds of 20 kB", 3)
    shutil.rmtree(root)
    yield from _large(root)


def _large(root: Path) -> Iterator[Row]:
    """100 clients and 100 rounds: time, and the memory of the whole command."""
    with unittest.mock.patch("os.fsync"):
        _make_run(root, [f"{number:03}" for number in range(100)], 100, 0.02)
    yield from _measure(root, "100 clients and 100 rounds of 20 kB", 3)
    if process_tree.THERE:
        words = [sys.executable, "-c", "from fedsynth_cli.app import main; main()", "audit", root, "--quiet"]
        usage = process_tree.run(words, root.with_name("log"))
        yield Row(what="peak memory of that audit, all its processes", ours=megabytes(usage.peak))


def _measure(root: Path, text: str, turns: int) -> Iterator[Row]:
    files = sorted(path for path in root.rglob("*") if path.is_file())
    total = sum(path.stat().st_size for path in files)

    def audited() -> None:
        report = audit(root, workers=os.cpu_count() or 1)
        assert report.passed, report.to_json()

    def digested() -> None:
        for path in files:
            with path.open("rb") as handle:
                hashlib.file_digest(handle, "sha256")

    sides = {"audit": audited, "hashlib": digested}
    if program := shutil.which("sha256sum"):
        # As many names as a command line takes.
        command = ["xargs", "-0", "-a", str(_names(root, files)), program, "--"]
        sides["sha256sum"] = lambda: _run_quietly(command)
    processor: dict[str, list[float]] = {name: [] for name in sides}

    def counted(name: str, act: Callable[[], None]) -> Callable[[], None]:
        def timed() -> None:
            start = cpu_seconds()
            act()
            processor[name].append(cpu_seconds() - start)

        return timed

    taken = take_turns({name: counted(name, act) for name, act in sides.items()}, turns)
    spent = {name: values[1:] for name, values in processor.items()}  # the first turn does not count

    def speed(value: float) -> str:
        return f"{total / value / 1e6:,.0f} MB/s"

    what = f"audit a run of {text}"
    if program:
        # 80% of its speed.
        yield compared(what, "sha256sum, same files", taken["audit"], taken["sha256sum"], goal=1.25, spell=speed)
        yield compared(f"{what}: processor time", "sha256sum", spent["audit"], spent["sha256sum"], spell=speed)
    yield compared(f"{what}: processor time", "hashlib's sha256, once", spent["audit"], spent["hashlib"], spell=speed)


def _names(root: Path, files: list[Path]) -> Path:
    path = root.with_name("names")
    path.write_bytes(b"\0".join(str(file).encode() for file in files))
    return path


def _run_quietly(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _make_run(root: Path, clients: list[str], rounds: int, megabytes: float) -> None:
    """A run folder as the stages leave it, but for the training: the updates are random numbers."""
    run = RunFolder(root)
    digest = sample_files.write_model(root / model_file(0), megabytes)
    keys.write(run.server.key, keys.simulated(0, "server"))
    run.server.outbox.mkdir(parents=True)
    for client in clients:
        keys.write(run.client(client).key, keys.simulated(0, f"client {client}"))
        run.client(client).outbox.mkdir(parents=True)
    for round in range(1, rounds + 1):
        model = root / model_file(round - 1)
        messages = [root / message_file(client, round) for client in clients]
        for number, (client, message) in enumerate(zip(clients, messages, strict=True)):
            update = run.client(client).private / f"update-{round:04}.safetensors"
            about = sample_files.about_update(client, round, digest)
            tensors_file.write(update, sample_files.weights(megabytes, seed=1000 * round + number), about)
            encode(model, update, message, params=DeltaEncoding())
        digest = aggregate(model, messages, root / model_file(round), params=MeanRule())["sha256"]
