"""Parquet that is not ours, parsed in a process with limits: whatever it makes of that process, this one goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from artifacts import limits
from artifacts.errors import InputError
from artifacts.formats.plain_data import parse_json
from artifacts.formats.tensors_file import unreadable
from artifacts.limits import LimitError
from stages.data.parquet_child import FRAME

# One thread, and memory from the system: so that a limit on memory is one on what the file takes.
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_NO_COLUMNS: dict[str, Any] = {}
_SECONDS_TO_END = 30  # once it has nothing more to say


def describe(file: Path) -> dict[str, Any]:
    """The columns of a file, as `parquet_tables.describe` has them."""
    ((_, found, _),) = frames("describe", [file], _NO_COLUMNS)
    return found


def frames(
    task: str, files: Sequence[Path], asked: Mapping[str, Any]
) -> Iterator[tuple[Path, dict[str, Any], memoryview]]:
    """What the child answers: the file that it is about, a JSON object, and the bytes that go with it."""
    stored = sum(_size(file) for file in files)
    left = limits.inflated(stored, "bytes")
    module = ["-P", "-m", "stages.data.parquet_child"]
    child = subprocess.Popen(
        [sys.executable, *module, task, json.dumps(asked), *map(str, files)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, **_ENVIRONMENT},
    )  # fmt: skip
    file, total = files[0], 0
    with child:
        try:
            pipe = cast(BinaryIO, child.stdout)
            while True:
                found, data = _frame(pipe, left.most - total)
                if found is None:
                    child.wait(_SECONDS_TO_END)
                if found is None or "end" in found:
                    break
                if "error" in found:
                    raise InputError(str(found["error"]))
                if "file" in found:
                    file = files[found["file"]]
                    continue
                total += len(data)
                yield file, found, data
        except ValueError as error:
            raise InputError(f"{file}: {error}.") from error
        finally:
            child.kill()
    if found is None:
        raise InputError(f"{file}: it is damaged, or made to do harm: {_death(child.returncode)}. It was not read.")


def _frame(pipe: BinaryIO, most: int) -> tuple[dict[str, Any] | None, memoryview]:
    """The next answer; None where there is none any more."""
    start = pipe.read(FRAME.size)
    if len(start) < FRAME.size:
        return None, memoryview(b"")
    text, size = FRAME.unpack(start)
    limits.RECORD.check(text, "what it says of its columns has")
    if size > most:
        raise LimitError(f"its images unpack to more than {most:,} bytes ({limits.VARIABLE}=2 allows more)")
    raw, data = pipe.read(text), pipe.read(size)
    if len(raw) < text or len(data) < size:
        return None, memoryview(b"")
    found = parse_json(raw)
    if not isinstance(found, dict):
        raise ValueError("its reader answered with nonsense")
    return found, memoryview(data)


def _death(code: int) -> str:
    if code == -signal.SIGXCPU:
        return f"to parse it takes longer than a file of its size may ({limits.VARIABLE}=2 allows more)"
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return f"the process that parsed it was ended {how}"


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise unreadable(file, error) from error
