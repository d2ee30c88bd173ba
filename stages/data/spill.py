"""A permutation of rows too large for memory, carried out through a file.

The images go to the disk once and come back once, a row group at a time; in memory are a few numbers for each row.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from artifacts.errors import InputError

_MAX_BINARY = 2**31 - 1  # Arrow counts the bytes of an array in 32 bits


@dataclass(frozen=True)
class Plan:
    """Which row goes where. Rows are counted over all inputs; places over all parts, one behind the other."""

    source: NDArray[np.uint32]  # the row at each place
    labels: NDArray[np.uint16]  # of each row
    lengths: NDArray[np.uint32]  # of each row
    parts: list[list[tuple[int, int]]]  # the row groups of each part: their first place, and one past their last


class Spill:
    """One file with room for each row group of each part. Rows come in any order and are taken a group at a time.

    The lengths are known, so each group has its exact place, and its rows are there in the order of their coming.
    """

    def __init__(self, path: Path, plan: Plan) -> None:
        self._plan = plan
        self._groups = [group for groups in plan.parts for group in groups]
        self._group_of = np.empty(len(plan.source), np.uint32)
        for number, (first, end) in enumerate(self._groups):
            self._group_of[plan.source[first:end]] = number
        sizes = [int(plan.lengths[plan.source[first:end]].sum(dtype=np.int64)) for first, end in self._groups]
        if max(sizes) > _MAX_BINARY:
            raise InputError(
                f"the images of one row group take {max(sizes):,} bytes, more than {_MAX_BINARY:,}. Make them smaller."
            )
        self._starts: list[int] = np.cumsum([0, *sizes]).tolist()
        self._next = self._starts[:-1]
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def put(self, row: int, images: pa.BinaryArray) -> None:
        """The images of consecutive rows, the first of them `row`; all rows are put in their order."""
        groups = self._group_of[row : row + len(images)]
        order = np.argsort(groups, kind="stable")
        offsets, values = _buffers(images.take(pa.array(order)))
        numbers, firsts = np.unique(groups[order], return_index=True)
        bounds = offsets[[*firsts.tolist(), len(images)]].tolist()
        for number, start, end in zip(numbers.tolist(), bounds, bounds[1:], strict=False):
            self._write(values[start:end], self._next[number])
            self._next[number] += end - start

    def take(self, number: int) -> pa.BinaryArray:
        """The images of a row group, in the order of their places."""
        first, end = self._groups[number]
        rows = self._plan.source[first:end]
        arrived = np.sort(rows)
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(self._plan.lengths[arrived], out=offsets[1:])
        data = os.pread(self._descriptor, int(offsets[-1]), self._starts[number])
        if len(data) != offsets[-1]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        images = pa.BinaryArray.from_buffers(pa.binary(), len(rows), buffers)
        return images.take(pa.array(np.searchsorted(arrived, rows)))

    def _write(self, data: memoryview, position: int) -> None:
        while data:
            written = os.pwrite(self._descriptor, data, position)
            data, position = data[written:], position + written


def _buffers(images: pa.BinaryArray) -> tuple[NDArray[np.int32], memoryview]:
    _, offsets, values = images.buffers()
    bounds = np.frombuffer(offsets, np.int32)[images.offset : images.offset + len(images) + 1]
    return bounds, memoryview(values) if values is not None else memoryview(b"")
