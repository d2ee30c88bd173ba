"""Append-only logs: one JSON object a line, each chained to the one before.

`previous` is the SHA-256 of the line before (zeros for the first), so that a changed, removed or reordered line shows.
The egress ledger and the spend ledger are such logs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.atomic import explained, sync_folder
from artifacts.digests import ZEROS, canonical_json, sha256_hex
from artifacts.errors import InputError, VerificationError

# Whether an object is an entry of this kind of log; `seq` and `previous` are checked here.
IsEntry = Callable[[Any], bool]


@dataclass(frozen=True)
class Lines:
    """The entries of a log and its head: the digest of the last line."""

    entries: list[dict[str, Any]]
    head: str
    unfinished_tail: bool = False


def read(path: Path, is_entry: IsEntry) -> Lines:
    """Read and check the chain; raise `VerificationError` naming the first line that does not fit."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Lines([], ZEROS)
    except OSError as error:
        raise InputError(f"cannot read the ledger {path}: {error.strerror}.") from error
    return _parse(path, data, is_entry)


def snapshot(path: Path) -> bytes:
    """The log as it stands between two entries, for a copy of it."""
    with path.open("rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        return handle.read()


def _parse(path: Path, data: bytes, is_entry: IsEntry) -> Lines:
    # A last line without its newline is an append that was killed: what it announced never happened.
    *lines, tail = data.split(b"\n")
    entries: list[dict[str, Any]] = []
    head = ZEROS
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        try:
            fields = json.loads(line)
            canonical = canonical_json(fields).encode() == line
        except (ValueError, RecursionError):
            raise VerificationError(f"{where}: not JSON. The ledger was edited or damaged.") from None
        linked = isinstance(fields, dict) and type(fields.get("seq")) is int and type(fields.get("previous")) is str
        if not canonical or not linked or not is_entry(fields):
            raise VerificationError(f"{where}: not a ledger entry as fedsynth writes it. The ledger was edited.")
        if fields["previous"] != head or fields["seq"] != number:
            raise VerificationError(
                f"{where}: the chain is broken: an entry before it was changed, removed or reordered."
            )
        entries.append(fields)
        head = sha256_hex(line)
    return Lines(entries, head, unfinished_tail=bool(tail))


@contextlib.contextmanager
def locked(path: Path, is_entry: IsEntry, *, create: bool = True) -> Iterator[LockedChain]:
    """Hold the log, so that what is read in it stays true until the next entry stands there."""
    with explained(path):
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield LockedChain(path, descriptor, is_entry)
    finally:
        os.close(descriptor)


class LockedChain:
    def __init__(self, path: Path, descriptor: int, is_entry: IsEntry) -> None:
        self._path, self._descriptor, self._is_entry = path, descriptor, is_entry

    def read(self) -> Lines:
        return _parse(self._path, self._data(), self._is_entry)

    def append(self, fields: dict[str, Any]) -> None:
        """Add an entry, durably; an append that was killed before is cut off."""
        with explained(self._path):
            data = self._data()
            lines = _parse(self._path, data, self._is_entry)
            end = data.rfind(b"\n") + 1
            if lines.unfinished_tail:
                os.ftruncate(self._descriptor, end)
            entry = {"seq": len(lines.entries) + 1, "previous": lines.head, **fields}
            line = canonical_json(entry).encode() + b"\n"
            if not data:
                # A new log has its name made durable before its first entry; later ones need not do it again.
                sync_folder(self._path.parent)
            try:
                if os.write(self._descriptor, line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(self._descriptor)
            except OSError:
                os.ftruncate(self._descriptor, end)
                raise

    def _data(self) -> bytes:
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        with os.fdopen(os.dup(self._descriptor), "rb") as handle:
            return handle.read()
