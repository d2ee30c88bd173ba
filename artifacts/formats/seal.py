"""The seal: one digest that finds a flipped bit in the parts of a file that the payload digest does not cover.

A file states the SHA-256 of its own bytes, computed while the 64 digits of that statement are zeros. safetensors
seals the header (the payload has its own digest); Parquet seals the whole file, because its page headers and its
footer are under no checksum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import BinaryIO

from artifacts.digests import ZEROS

_PLAIN = b'"seal_sha256":"'
_ESCAPED = _PLAIN.replace(b'"', b'\\"')
_CHUNK = 1 << 20


def find(data: bytes | memoryview, *, escaped: bool) -> int:
    """Where the 64 digits are. `escaped`: the JSON is itself inside a JSON string, as in safetensors."""
    pattern = _ESCAPED if escaped else _PLAIN
    raw = bytes(data)
    start = raw.find(pattern)
    if start < 0 or raw.find(pattern, start + 1) >= 0:
        raise ValueError("the file does not state its seal exactly once")
    if start + len(pattern) + 64 > len(raw):
        raise ValueError("the file ends within its seal")
    return start + len(pattern)


def digest(parts: Iterable[bytes | memoryview]) -> str:
    """SHA-256 over the parts, in order."""
    state = hashlib.sha256()
    for part in parts:
        state.update(part)
    return state.hexdigest()


def compute(data: bytes | memoryview, position: int) -> str:
    """The seal of `data` whose digits begin at `position`."""
    view = memoryview(data)
    return digest([view[:position], ZEROS.encode(), view[position + 64 :]])


def compute_both(data: bytes, position: int) -> tuple[str, str]:
    """The seal, and the digest of the whole file, in one pass: they differ in the 64 digits alone."""
    view = memoryview(data)
    return _both([view[:position]], view[position : position + 64], lambda: [view[position + 64 :]])


def compute_stream(handle: BinaryIO, position: int, look: Callable[[bytes], None] | None = None) -> tuple[str, str]:
    """The same for a file, read from its start, in constant memory. `look` is shown the bytes before the digits."""
    handle.seek(position)
    digits = handle.read(len(ZEROS))
    handle.seek(0)

    def before() -> Iterable[bytes]:
        for start in range(0, position, _CHUNK):
            piece = handle.read(min(_CHUNK, position - start))
            if look is not None:
                look(piece)
            yield piece

    def after() -> Iterable[bytes]:
        handle.seek(position + len(ZEROS))
        return iter(lambda: handle.read(_CHUNK), b"")

    return _both(before(), digits, after)


def _both(
    before: Iterable[bytes | memoryview], digits: bytes | memoryview, after: Callable[[], Iterable[bytes | memoryview]]
) -> tuple[str, str]:
    whole = hashlib.sha256()
    for part in before:
        whole.update(part)
    sealed = whole.copy()
    whole.update(digits)
    sealed.update(ZEROS.encode())
    for part in after():
        whole.update(part)
        sealed.update(part)
    return sealed.hexdigest(), whole.hexdigest()
