"""The egress ledger: an append-only list of everything that left, each entry chained to the one before.

One JSON object a line. `previous` is the SHA-256 of the line before (zeros for the first), so that a changed,
removed or reordered line shows. The entry comes first, the file second: an entry whose file is not there is «sent
or unfinished», a file without an entry is a failure. The ledger itself is private; only its head may leave.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.atomic import explained, sync_folder
from artifacts.digests import ZEROS, canonical_json, sha256_hex
from artifacts.errors import InputError, VerificationError
from artifacts.metadata import Metadata

_FIELDS: dict[str, tuple[type, ...]] = {
    "seq": (int,), "file": (str,), "sha256": (str,), "bytes": (int,), "kind": (str,), "round": (int, type(None)),
    "privacy": (list,), "disclosures": (list,), "previous": (str,),
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    seq: int
    file: str
    sha256: str
    bytes: int
    kind: str
    round: int | None
    privacy: list[Any]
    disclosures: list[str]
    previous: str


@dataclass(frozen=True)
class Chain:
    """The entries of a ledger and its head: the digest of the last line."""

    entries: list[Entry]
    head: str
    unfinished_tail: bool = False

    def latest(self, file: str) -> Entry | None:
        return next((e for e in reversed(self.entries) if e.file == file), None)


def read(path: Path) -> Chain:
    """Read and check the chain; raise `VerificationError` naming the first line that does not fit."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Chain([], ZEROS)
    except OSError as error:
        raise InputError(f"cannot read the ledger {path}: {error.strerror}.") from error
    return _parse(path, data)


def _parse(path: Path, data: bytes) -> Chain:
    # A last line without its newline is an append that was killed: its file never appeared, so it says nothing.
    *lines, tail = data.split(b"\n")
    entries: list[Entry] = []
    head = ZEROS
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        try:
            fields = json.loads(line)
            canonical = canonical_json(fields).encode() == line
        except (ValueError, RecursionError):
            raise VerificationError(f"{where}: not JSON. The ledger was edited or damaged.") from None
        if not canonical or not _is_entry(fields):
            raise VerificationError(f"{where}: not a ledger entry as fedsynth writes it. The ledger was edited.")
        if fields["previous"] != head or fields["seq"] != number:
            raise VerificationError(
                f"{where}: the chain is broken: an entry before it was changed, removed or reordered."
            )
        entries.append(Entry(**fields))
        head = sha256_hex(line)
    return Chain(entries, head, unfinished_tail=bool(tail))


def _is_entry(fields: Any) -> bool:
    if not isinstance(fields, dict) or fields.keys() != _FIELDS.keys():
        return False
    return all(type(value) in _FIELDS[name] for name, value in fields.items())


@contextlib.contextmanager
def locked(path: Path) -> Iterator[LockedLedger]:
    """Hold the ledger while a file is entered and put in place, so that two writers cannot cross."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield LockedLedger(path, descriptor)
    finally:
        os.close(descriptor)


class LockedLedger:
    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor

    def enter(self, *, file: str, sha256: str, size: int, metadata: Metadata) -> None:
        """Append an entry, durably. The same bytes under the same name add nothing."""
        with explained(self._path):
            data = _read_all(self._descriptor)
            chain = _parse(self._path, data)
            latest = chain.latest(file)
            if latest is not None and latest.sha256 == sha256:
                return
            end = data.rfind(b"\n") + 1
            if chain.unfinished_tail:
                os.ftruncate(self._descriptor, end)
            entry = {
                "seq": len(chain.entries) + 1,
                "file": file,
                "sha256": sha256,
                "bytes": size,
                "kind": metadata.kind,
                "round": metadata.round,
                "privacy": [dict(event) for event in metadata.privacy],
                "disclosures": list(metadata.disclosures),
                "previous": chain.head,
            }
            line = canonical_json(entry).encode() + b"\n"
            if not data:
                # A new ledger has its name made durable before its first entry; later ones need not do it again.
                sync_folder(self._path.parent)
            try:
                if os.write(self._descriptor, line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(self._descriptor)
            except OSError:
                os.ftruncate(self._descriptor, end)
                raise


def _read_all(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), "rb") as handle:
        return handle.read()
