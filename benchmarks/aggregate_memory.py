"""`aggregate` should hold one model in memory, however many clients send.

Peak memory of the command, and what its imports alone take; messages of 1 MB.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import sample_files
from measuring import Row, Setting, megabytes, peak_memory

from artifacts.formats import tensors_file

TITLE = "Memory of `aggregate`, by the number of clients"
GOAL = 1.1
_MODEL_MEGABYTES = 1.0


def measure(setting: Setting) -> Iterator[Row]:
    few, many = (2, 4) if setting.smoke else (10, 1000)
    folder = setting.folder / "memory"
    model = folder / "model.safetensors"
    messages = _make_messages(folder, model, many)
    start = peak_memory([sys.executable, "-c", "import fedsynth_cli.app, stages.aggregate"])
    peaks = {
        count: peak_memory(_command(model, messages[:count], folder / f"of-{count}.safetensors"))
        for count in (few, many)
    }
    yield Row(
        what=f"peak memory of aggregate, {many:,} clients",
        against=f"{few} clients",
        ours=megabytes(peaks[many]),
        theirs=megabytes(peaks[few]),
        ratio=peaks[many] / peaks[few],
        goal=GOAL,
        raw={"after_imports": start, "few": peaks[few], "many": peaks[many]},
    )
    yield Row(
        what=f"peak memory of aggregate, {few} clients",
        against="its imports alone",
        ours=megabytes(peaks[few]),
        theirs=megabytes(start),
        ratio=peaks[few] / start,
    )


def _make_messages(folder: Path, model: Path, count: int) -> list[Path]:
    """One outbox for each client, with a message about the model in it."""
    digest = sample_files.write_model(model, _MODEL_MEGABYTES)
    change = sample_files.weights(_MODEL_MEGABYTES, seed=1)
    paths = []
    for number in range(count):
        client = f"{number:04}"
        path = folder / "clients" / client / "outbox" / "message-0001.safetensors"
        tensors_file.write(path, change, sample_files.about_message(client, 1, digest))
        paths.append(path)
    return paths


def _command(model: Path, messages: list[Path], out: Path) -> list[str]:
    program = [sys.executable, "-c", "from fedsynth_cli.app import main; main()"]
    return [*program, "aggregate", str(model), *map(str, messages), "--quiet", "-o", str(out)]
