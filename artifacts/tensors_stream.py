"""Tensor files of any size, checked in constant memory and read once: the checks are those of `tensors_file.read`.

For who must know that a file is whole and what it says of itself, and needs none of its tensors: the audit.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from artifacts import seal
from artifacts.metadata import Metadata, MetadataError, SealedMetadata
from artifacts.safetensors_layout import DTYPES, MAX_HEADER, TensorSpec
from artifacts.tensors_file import Array, damaged, is_finite, parse_header, unreadable

_FIRST = 1 << 16  # a small file comes in one piece
_PIECE = 1 << 20  # of a large one; whole numbers of every type fit into it

# Is shown the bytes of all tensors, piece by piece, in order.
Look = Callable[[bytes], None]


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


def scan(path: Path, look: Look | None = None) -> TensorStream:
    """Check everything that the file claims, and show the tensors to `look` on the way."""
    with _opened(path) as descriptor:
        return _scan(path, descriptor, look)


def survey(path: Path) -> tuple[str, Metadata, tuple[TensorSpec, ...]]:
    """The digest of the file, what it says of itself, and its tensors; that their bytes are its own is not checked."""
    with _opened(path) as descriptor:
        size, first, _, specs, sealed = _begin(descriptor)
        state = hashlib.sha256(first)
        for start in range(len(first), size, _PIECE):
            state.update(_read(descriptor, min(_PIECE, size - start)))
        return state.hexdigest(), sealed.metadata, tuple(specs)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        yield descriptor
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, MetadataError) as error:
        raise damaged(path, error) from error
    finally:
        os.close(descriptor)


def _begin(descriptor: int) -> tuple[int, bytes, bytes, list[TensorSpec], SealedMetadata]:
    """The size of the file, its first piece, the header that it begins with, and what that says."""
    size = os.fstat(descriptor).st_size
    first = os.read(descriptor, _FIRST)
    (length,) = struct.unpack("<Q", first[:8]) if len(first) >= 8 else (0,)
    if len(first) < 8 + length:
        first += _read(descriptor, min(8 + length, 8 + MAX_HEADER, size) - len(first))
    header, specs, sealed = parse_header(first, size)
    if seal.compute(header, seal.find(header, escaped=True)) != sealed.seal_sha256:
        raise ValueError("the header does not match its digest")
    return size, first, header, specs, sealed


def _scan(path: Path, descriptor: int, look: Look | None) -> TensorStream:
    size, first, header, specs, sealed = _begin(descriptor)
    whole, payload = hashlib.sha256(header), hashlib.sha256()
    infinite: list[str] = []
    position, numbers = 0, _Numbers(specs)
    ready = first[len(header) :]
    while position < size - len(header):
        # Pieces end at multiples of eight, and tensors begin at multiples of their type's size: no number is cut.
        left = size - len(header) - position
        ready += _read(descriptor, min(left, _PIECE if not ready else -len(ready) % 8 + len(ready)) - len(ready))
        whole.update(ready)
        payload.update(ready)
        if look is not None:
            look(ready)
        infinite += numbers.check(ready)
        position, ready = position + len(ready), b""
    if payload.hexdigest() != sealed.payload_sha256:
        raise ValueError("the tensors do not match their digest")
    if infinite:
        raise ValueError(infinite[0])
    digest = whole.hexdigest()
    return TensorStream(path, sealed.metadata, sealed.payload_sha256, digest, size, tuple(specs), header)


class _Numbers:
    """Which numbers a piece of the payload holds, piece after piece. Tensors of one type stand side by side."""

    def __init__(self, specs: list[TensorSpec]) -> None:
        runs = itertools.groupby(specs, lambda spec: spec.dtype)
        self._left = [(dtype, sum(spec.nbytes for spec in run)) for dtype, run in runs][::-1]

    def check(self, piece: bytes) -> Iterator[str]:
        """What is wrong with the numbers in it."""
        view, start = memoryview(piece), 0
        while start < len(piece):
            dtype, left = self._left.pop()
            end = min(start + left, len(piece))
            if end < start + left:
                self._left.append((dtype, start + left - end))
            if not is_finite(np.frombuffer(view[start:end], DTYPES[dtype])):
                yield f"among its numbers of type {dtype} is NaN or infinity"
            start = end


def _read(descriptor: int, count: int) -> bytes:
    """Exactly so many bytes, none if fewer than one; a file that ends before is refused."""
    pieces: list[bytes] = []
    while count > 0:
        piece = os.read(descriptor, count)
        if not piece:
            raise ValueError("it ended while it was read")
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)
