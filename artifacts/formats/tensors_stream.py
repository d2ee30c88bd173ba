"""Tensor files of any size, checked in constant memory and read once: the checks are those of `tensors_file.read`.

For who must know that a file is whole and what it says of itself, and needs none of its tensors: the audit.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from artifacts.formats.safetensors_layout import DTYPES, TensorSpec
from artifacts.formats.tensors_file import Array, is_finite, opened, read_start
from artifacts.metadata import Metadata

_PIECE = 1 << 20  # of a large one; whole numbers of every type fit into it

_DTYPE, _NBYTES = operator.attrgetter("dtype"), operator.attrgetter("nbytes")

# Is shown all bytes of the file, piece by piece, in order.
Look = Callable[[bytes], None]
LookAtNumbers = Callable[[Array], None]


@dataclass(frozen=True)
class TensorStream:
    """A file that was found whole. Its tensors are still on the disk."""

    path: Path
    metadata: Metadata
    payload_sha256: str
    sha256: str
    size: int
    specs: tuple[TensorSpec, ...]
    header: bytes

    def tensor(self, name: str) -> Array:
        """One tensor, read from the disk: for small ones. The file must not have changed since it was checked."""
        position = len(self.header)
        for spec in self.specs:
            if spec.name == name:
                with self.path.open("rb") as handle:
                    handle.seek(position)
                    return np.frombuffer(handle.read(spec.nbytes), DTYPES[spec.dtype]).reshape(spec.shape)
            position += spec.nbytes
        raise KeyError(name)


def scan(path: Path, look: Look | None = None, numbers_seen: LookAtNumbers | None = None) -> TensorStream:
    """Check everything that the file claims; show `look` the bytes on the way, `numbers_seen` what is no integer."""
    with opened(path) as handle:
        header, specs, sealed, size = read_start(handle)
        whole, payload, numbers = hashlib.sha256(header), hashlib.sha256(), _Numbers(specs, numbers_seen)
        infinite: list[str] = []
        before = header  # is shown together with the first piece
        for piece in _payload(handle, size - len(header)):
            whole.update(piece)
            payload.update(piece)
            if look is not None:
                look(before + piece)
                before = b""
            infinite += numbers.check(piece)
        if look is not None and before:
            look(before)
        if payload.hexdigest() != sealed.payload_sha256:
            raise ValueError("the tensors do not match their digest")
        if infinite:
            raise ValueError(infinite[0])
    return TensorStream(path, sealed.metadata, sealed.payload_sha256, whole.hexdigest(), size, tuple(specs), header)


def survey(path: Path) -> tuple[str, Metadata, tuple[TensorSpec, ...]]:
    """The digest of the file, what it says of itself, and its tensors; that their bytes are its own is not checked."""
    with opened(path) as handle:
        header, specs, sealed, size = read_start(handle)
        state = hashlib.sha256(header)
        for piece in _payload(handle, size - len(header)):
            state.update(piece)
        return state.hexdigest(), sealed.metadata, tuple(specs)


def _payload(handle: BinaryIO, left: int) -> Iterator[bytes]:
    """The bytes of all tensors; pieces end at multiples of eight, where a tensor begins too: no number is cut."""
    while left:
        piece = handle.read(min(left, _PIECE))
        if len(piece) != min(left, _PIECE):
            raise ValueError("it ended while it was read")
        left -= len(piece)
        yield piece


class _Numbers:
    """Which numbers a piece of the payload holds, piece after piece. Tensors of one type are side by side."""

    def __init__(self, specs: list[TensorSpec], look: LookAtNumbers | None) -> None:
        self._look = look
        runs = itertools.groupby(specs, _DTYPE)
        self._left = [(dtype, sum(map(_NBYTES, run))) for dtype, run in runs][::-1]

    def check(self, piece: bytes) -> Iterator[str]:
        """What is wrong with the numbers in it."""
        view, start = memoryview(piece), 0
        while start < len(piece):
            dtype, left = self._left.pop()
            end = min(start + left, len(piece))
            if end < start + left:
                self._left.append((dtype, start + left - end))
            numbers = np.frombuffer(view[start:end], DTYPES[dtype])
            if not is_finite(numbers):
                yield f"among its numbers of type {dtype} is NaN or infinity"
            elif self._look is not None and dtype.startswith("F"):
                self._look(numbers)
            start = end
