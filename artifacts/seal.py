"""The seal: one digest that finds a flipped bit in the parts of a file that the payload digest does not cover.

A file states the SHA-256 of its own bytes, computed while the 64 digits of that statement are zeros. safetensors
seals the header (the payload has its own digest); Parquet seals the whole file, because its page headers and its
footer are under no checksum.
"""

from __future__ import annotations

import hashlib
from typing import BinaryIO

from artifacts.digests import ZEROS

_PLAIN = b'"seal_sha256":"'
_ESCAPED = _PLAIN.replace(b'"', b'\\"')
_CHUNK = 1 << 20


def find(data: bytes | memoryview, *, escaped: bool) -> int:
    """Where the 64 digits stand. `escaped`: the JSON is itself inside a JSON string, as in safetensors."""
    pattern = _ESCAPED if escaped else _PLAIN
    raw = bytes(data)
    start = raw.find(pattern)
    if start < 0 or raw.find(pattern, start + 1) >= 0:
        raise ValueError("the file does not state its seal exactly once")
    if start + len(pattern) + 64 > len(raw):
        raise ValueError("the file ends within its seal")
    return start + len(pattern)


def digest(parts: list[bytes | memoryview]) -> str:
    """SHA-256 over the parts, in order."""
    state = hashlib.sha256()
    for part in parts:
        state.update(part)
    return state.hexdigest()


def compute(data: bytes | memoryview, position: int) -> str:
    """The seal of `data` whose digits begin at `position`."""
    view = memoryview(data)
    return digest([view[:position], ZEROS.encode(), view[position + 64 :]])


def compute_stream(handle: BinaryIO, position: int) -> str:
    """The same for a file that is read from its start, in constant memory."""
    state = hashlib.sha256()
    left = position
    while left and (chunk := handle.read(min(left, _CHUNK))):
        state.update(chunk)
        left -= len(chunk)
    handle.read(len(ZEROS))
    state.update(ZEROS.encode())
    while chunk := handle.read(_CHUNK):
        state.update(chunk)
    return state.hexdigest()
