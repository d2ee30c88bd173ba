"""Peak memory of `fedsynth aggregate` with many clients against few: it should hold one model, however many send."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import sample_files
from measuring import Row, Setting

from artifacts import tensors_file

ABOUT = "peak memory of aggregate with many clients against ten"
GOAL = 1.1
_MODEL_MEGABYTES = 1.0
# A process of its own, small, starts the command: the peak of a child begins with the size of its parent.
_WATCH = """
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
print(usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def measure(setting: Setting) -> Iterator[Row]:
    few, many = 10, 50 if setting.quick else 1000
    folder = setting.folder / "memory"
    model = folder / "model.safetensors"
    messages = _make_messages(folder, model, many)
    start = _peak([sys.executable, "-c", "import fedsynth_cli.app, stages.aggregate"])
    peaks = {
        count: _peak(_command(model, messages[:count], folder / f"of-{count}.safetensors")) for count in (few, many)
    }
    yield Row(
        what=f"peak memory of aggregate, {many:,} clients",
        against=f"{few} clients",
        ours=_megabytes(peaks[many]),
        theirs=_megabytes(peaks[few]),
        ratio=peaks[many] / peaks[few],
        goal=GOAL,
        raw={"after_imports": start, "few": peaks[few], "many": peaks[many]},
    )
    yield Row(
        what=f"peak memory of aggregate, {few} clients",
        against="its imports alone",
        ours=_megabytes(peaks[few]),
        theirs=_megabytes(start),
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


def _peak(command: list[str]) -> int:
    """The largest number of bytes that the command had in memory."""
    watch = [sys.executable, "-I", "-S", "-c", _WATCH, *command]
    return int(subprocess.run(watch, check=True, capture_output=True, text=True).stdout.split()[-1])


def _megabytes(count: float) -> str:
    return f"{count / 1e6:.0f} MB"
