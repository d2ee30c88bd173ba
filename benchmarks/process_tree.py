"""What a command and all processes below it take: seconds, processor time, memory. By /proc, so on Linux only.

Flower and Ray start processes of their own, some of which nobody waits for: what they used is seen while they live.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

THERE = Path("/proc/self/smaps_rollup").exists()
_SECONDS_BETWEEN = 0.5
_TICKS = os.sysconf("SC_CLK_TCK")
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_LIBC = ctypes.CDLL(None)  # loaded here: not between fork and exec
_PARENT, _OWN_TIME, _CHILDREN_TIME = 1, slice(11, 13), slice(13, 15)  # in `stat`, after the program's name


@dataclass
class Usage:
    """`peak` is in bytes; what processes share counts once. Both are as often as they were looked at."""

    seconds: float = 0.0
    processor: float = 0.0
    peak: int = 0


def run(command: Sequence[str | Path], log: Path) -> Usage:
    """Run a command to its end; an error if it fails, with what it said."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(word) for word in command], stdout=output, stderr=subprocess.STDOUT, preexec_fn=_keep_orphans
        )
        with watched(process.pid) as usage:
            process.wait()
    assert process.returncode == 0, log.read_text(errors="replace")
    return usage


def _keep_orphans() -> None:
    """Ray's workers are nobody's children: let them be the command's."""
    _LIBC.prctl(_SUBREAPER, 1)


@contextmanager
def watched(pid: int) -> Iterator[Usage]:
    """What the processes from `pid` downwards take within the block; those that ran before count from here on."""
    usage, ended = Usage(), threading.Event()
    before, start = _look(pid)[0], time.perf_counter()

    def look() -> None:
        processor, memory = _look(pid)
        usage.processor = max(usage.processor, processor - before)
        usage.peak = max(usage.peak, memory)

    def watch() -> None:
        while not ended.wait(_SECONDS_BETWEEN):
            look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield usage
    finally:
        usage.seconds = time.perf_counter() - start
        ended.set()
        watcher.join()
        look()


def _look(root: int) -> tuple[float, int]:
    """Processor seconds of the tree so far, with those of children that were waited for; and its memory now."""
    tree = _tree(root)
    ticks = sum(int(n) for fields in tree.values() for n in (*fields[_OWN_TIME], *fields[_CHILDREN_TIME]))
    return ticks / _TICKS, sum(map(_memory, tree))


def _tree(root: int) -> dict[int, list[str]]:
    """The fields of `stat` of each process that is `root` or below it."""
    every: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            every[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
    found, new = {}, [root]
    while new:
        found |= {pid: every[pid] for pid in new if pid in every}
        new = [pid for pid, fields in every.items() if int(fields[_PARENT]) in new]
    return found


def _memory(pid: int) -> int:
    """Bytes, each shared page by its part."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
