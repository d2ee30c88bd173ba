"""Measuring side by side: both sides take turns within one run, so that whatever else loads the machine hits both."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"
# For smoke runs: a network that trains at once.
TINY_NET = ("init-model.arch=softmax", "init-model.width=null", "init-model.depth=null", "train-client.local_epochs=1")
# A process of its own, small, starts the command: the peak of a child begins with the size of its parent.
_WATCH = """
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
print(usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
sys.exit(os.waitstatus_to_exitcode(status))
"""


# What a test runs, what `make bench` runs within the hour, and what takes hours.
Size = Literal["smoke", "usual", "full"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a benchmark is given: an empty folder on the disk to be measured, and how much it is to do."""

    folder: Path
    size: Size = "usual"

    @property
    def smoke(self) -> bool:
        return self.size == "smoke"

    @property
    def full(self) -> bool:
        return self.size == "full"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison. `ratio` is ours by theirs, the median over turns; `goal` is the highest ratio wished for.

    Without a peer `against` and `theirs` are empty.
    """

    what: str
    ours: str
    against: str = ""
    theirs: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    goal: float | None = None
    # Whether the ratio counts for the goal: a shorter time at a worse result does not.
    counts: bool = True
    turns: int = 1
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        return None if self.goal is None or self.ratio is None else self.counts and self.ratio <= self.goal

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


def compared(
    what: str,
    against: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    goal: float | None = None,
    spell: Callable[[float], str] | None = None,
) -> Row:
    """A row from what the two sides took, turn by turn: the median of the turns' ratios, and their quartiles."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    low, high = _quartiles(ratios)
    spelled = spell or seconds
    return Row(
        what=what,
        against=against,
        ours=spelled(statistics.median(ours)),
        theirs=spelled(statistics.median(theirs)),
        ratio=statistics.median(ratios),
        low=low,
        high=high,
        goal=goal,
        turns=len(ratios),
        raw={"ours": list(ours), "theirs": list(theirs)},
    )


def take_turns(
    sides: Mapping[str, Callable[[], object]],
    turns: int,
    *,
    settle: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """The seconds that each side took in each turn, after one turn that is not counted; every other turn backwards.

    `settle` comes before each act and is not timed: it takes away what one act would leave for the next to pay. With
    `cpu_seconds` as the clock, others who use the machine count for less.
    """
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for act in sides.values():
        act()
    for turn in range(turns):
        for name in sides if turn % 2 == 0 else reversed(sides):
            settle()
            start = clock()
            sides[name]()
            taken[name].append(clock() - start)
    return taken


def cpu_seconds() -> float:
    """What this process and those that it has waited for took of the processor."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in used)


def peak_memory(command: Sequence[str]) -> int:
    """The largest number of bytes that a command of one process had in memory; `process_tree` is for many."""
    watch = [sys.executable, "-I", "-S", "-c", _WATCH, *command]
    return int(subprocess.run(watch, check=True, capture_output=True, text=True).stdout.split()[-1])


def megabytes(count: float) -> str:
    return f"{count / 1e6:,.0f} MB"


def seconds(value: float) -> str:
    if value >= 100:
        return f"{value:.0f} s"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def sync(path: Path) -> None:
    """Make a file, or a folder's list of names, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high
