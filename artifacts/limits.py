"""How much a reader takes before it refuses: every limit in one place, each far above what a real federation needs.

Where shapes are agreed (a message for a model, images for a network) these bound a file first; the limits here bound
everything else. The environment variable FEDSYNTH_LIMITS=N makes all of them N times as large.
"""

from __future__ import annotations

import errno
import functools
import io
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from artifacts.errors import UsageError

VARIABLE = "FEDSYNTH_LIMITS"
_MIB = 2**20


class LimitError(ValueError):
    """More than a limit allows. The reader adds the file's name."""


@dataclass(frozen=True)
class Limit:
    base: int
    unit: str = "bytes"

    @property
    def most(self) -> int:
        return int(self.base * _factor())

    def check(self, found: int, what: str = "it has") -> None:
        if found > self.most:
            needed = -(-found // self.base)
            raise LimitError(
                f"{what} {found:,} {self.unit}; at most {self.most:,} are read ({VARIABLE}={needed} allows more)"
            )


FILE = Limit(1024 * _MIB)
"""A file of tensors, or a dataset that is read into memory. Larger datasets are streamed where a stage can."""

TENSORS = Limit(10_000, "tensors")
HEADER = Limit(8 * _MIB)
"""The header of a safetensors file, metadata included."""

FOOTER = Limit(16 * _MIB)
"""The footer of a dataset, metadata included."""

PAGE = Limit(256 * _MIB)
"""One page of a dataset: what a reader holds at once."""

PIXELS = Limit(8 * 1024 * _MIB, "bytes of pixels")
"""All images of one dataset, decoded; what a file may inflate to is bounded by its own size besides."""

LEDGER = Limit(64 * _MIB)
LINE = Limit(4 * _MIB)
"""One line of a ledger."""

ENVELOPES = Limit(32 * _MIB)
ROSTER = Limit(16 * _MIB)
RECORD = Limit(16 * _MIB)
"""A JSON file that a stage keeps: metrics, lineage, who is in a round."""

TEXT = Limit(_MIB)
"""A recipe, params file, policy, budget or terms of a federation."""

CLASSES = 65_536
"""A label from here on is taken for damage. Fixed: labels of so many classes fit into two bytes."""

DIGITS, DEPTH = 40, 32
"""Of a whole number in a text, and of what is nested in it. These two are fixed: no honest text comes near."""

FOREIGN_MEMORY = Limit(256 * _MIB)
"""What the process may take that parses a Parquet file which is not ours."""

_INFLATED_FREE, _INFLATED_TIMES = 64 * _MIB, 100


def inflated(stored: int, unit: str = PIXELS.unit) -> Limit:
    """What `stored` bytes may decompress to: images and tables shrink to a hundredth at most, bombs to a thousandth."""
    return Limit(min(PIXELS.base, _INFLATED_FREE + _INFLATED_TIMES * stored), unit)


def read_bytes(path: Path, limit: Limit) -> bytes:
    """The bytes of a regular file, if they are not too many; `LimitError` before they are read, else `OSError`."""
    with open_file(path) as handle:
        return handle.read(size_of(handle, limit))


def size_of(handle: BinaryIO, limit: Limit) -> int:
    """How large an open file is, if it is a regular one and within the limit."""
    size = require_regular(handle.fileno())
    limit.check(size)
    return size


def open_file(path: Path, buffering: int = io.DEFAULT_BUFFER_SIZE) -> io.BufferedReader:
    """Open a regular file to read it; without O_NONBLOCK a pipe in its place would be waited for."""
    raw = io.FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    try:
        require_regular(raw.fileno())
    except OSError:
        raw.close()
        raise
    return io.BufferedReader(raw, buffering)


def require_regular(descriptor: int) -> int:
    """The size of an open file; `OSError` for a device, which may never end, or a pipe, which has no size."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return status.st_size


def _factor() -> float:
    return _parsed(os.environ.get(VARIABLE, "1"))


@functools.cache
def _parsed(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < 1e6:
        raise UsageError(f"{VARIABLE} must be a number greater than 0, found {text!r}.")
    return factor
