"""Append-only logs: one JSON object a line, each chained to the one before.

`previous` is the SHA-256 of the line before (zeros for the first), so that a changed, removed or reordered line shows.
The egress ledger and the spend ledger are such logs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from artifacts import limits
from artifacts.digests import ZEROS, canonical_json, sha256_hex
from artifacts.errors import InputError, VerificationError
from artifacts.formats.plain_data import parse_json
from artifacts.identity.owner import refuse_foreign, refuse_shared
from artifacts.limits import LimitError
from artifacts.writing.atomic import explained, make_folder, sync_folder

# Whether an object is an entry of this kind of log; `seq` and `previous` are checked here.
IsEntry = Callable[[Any], bool]
_MOST_KNOWN = 8 << 20
_FILE = re.compile(rb'"file":"(?:[^"\\]|\\.)*"')
# Of a long log no line is shorter than its two digests: a list of 64 million empty ones would take half a gigabyte.
_LONG, _SHORTEST = 1 << 20, 64


@dataclass(frozen=True)
class Lines:
    """The entries of a log and its head: the digest of the last line."""

    entries: list[dict[str, Any]]
    head: str
    size: int = 0  # of the whole lines, in bytes
    unfinished_tail: bool = False


_NO_LINES = Lines([], ZEROS)


def read(path: Path, is_entry: IsEntry) -> Lines:
    """Read and check the chain; raise `VerificationError` naming the first line that does not fit."""
    try:
        with limits.open_file(path) as handle:
            data = _contents(path, handle)
    except FileNotFoundError:
        return _NO_LINES
    except OSError as error:
        raise InputError(f"cannot read the ledger {path}: {error.strerror}.") from error
    return _parse(path, data, is_entry)


def snapshot(path: Path) -> bytes:
    """The log between two entries, for a copy of it."""
    with limits.open_file(path) as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        return _contents(path, handle)


def _contents(path: Path, handle: BinaryIO) -> bytes:
    """A ledger beyond the limits is refused before it is read: only an attack makes one."""
    try:
        data = handle.read(limits.size_of(handle, limits.LEDGER))
    except LimitError as error:
        raise InputError(f"the ledger {path} is not read: {error}.") from None
    if len(data) > _LONG and data.count(b"\n") > len(data) // _SHORTEST:
        raise VerificationError(f"{path}: its lines are shorter than any entry. The ledger was edited or damaged.")
    return data


def _parse(path: Path, data: bytes, is_entry: IsEntry, begin: Lines = _NO_LINES) -> Lines:
    """The log, checked; of one that begins with `begin`, which was checked before, the rest of it."""
    lines, whole = _whole_lines(path, data, begin.size)
    entries, head = list(begin.entries), begin.head
    for number, line in enumerate(lines, start=len(entries) + 1):
        entries.append(_parse_line(path, number, line, head, is_entry))
        head = sha256_hex(line)
    return Lines(entries, head, whole, unfinished_tail=len(data) > whole)


def _whole_lines(path: Path, data: bytes, start: int) -> tuple[list[bytes], int]:
    """The whole lines from `start` on, and where they end."""
    # A last line without its newline is an append that was killed: what it announced never happened. So is one with
    # zero bytes, which a disk may leave of a write that lost its power; in JSON there are none.
    *lines, tail = data[start:].split(b"\n")
    if lines and b"\0" in lines[-1]:
        lines.pop()
    if len(tail) > limits.LINE.most:
        raise VerificationError(f"{path}: its last line is longer than any entry. The ledger was edited or damaged.")
    return lines, start + sum(len(line) + 1 for line in lines)


def _parse_line(path: Path, number: int, line: bytes, head: str, is_entry: IsEntry) -> dict[str, Any]:
    where = f"{path}, line {number}"
    if len(line) > limits.LINE.most:
        raise VerificationError(f"{where}: longer than any entry. The ledger was edited or damaged.")
    try:
        fields = parse_json(line, canonical=True)
        canonical = canonical_json(fields).encode() == line
    except ValueError:
        raise VerificationError(f"{where}: not JSON. The ledger was edited or damaged.") from None
    linked = isinstance(fields, dict) and type(fields.get("seq")) is int and type(fields.get("previous")) is str
    if not canonical or not linked or not is_entry(fields):
        raise VerificationError(f"{where}: not a ledger entry as fedsynth writes it. The ledger was edited.")
    if fields["previous"] != head or fields["seq"] != number:
        raise VerificationError(f"{where}: the chain is broken: an entry before it was changed, removed or reordered.")
    found: dict[str, Any] = fields
    return found


def _is_numbered(line: bytes, number: int) -> bool:
    return b'"seq":%d,' % number in line or line.endswith(b'"seq":%d}' % number)


@dataclass
class _Checked:
    """A log whose chain was checked: its bytes, how many lines they are, and the digest of the last one.

    `state` is what the operating system said of the file then: while it says the same, nobody has written to it.
    """

    data: bytearray = field(default_factory=bytearray)
    count: int = 0
    head: str = ZEROS
    state: tuple[int, int, int, int] | None = None
    parsed: Lines = _NO_LINES
    # Where each file was named last, by the bytes of the field, so that no search takes longer as the log grows.
    named: dict[bytes, int] = field(default_factory=dict)

    def follow(self, path: Path, data: bytes, is_entry: IsEntry) -> None:
        """Check the chain of what was added to it: by digests, which takes a hundredth of the time of parsing.

        Only the last line, which no other vouches for, is parsed. What is wrong with a broken chain, parsing it says.
        """
        if not data.startswith(self.data):
            self.data, self.count, self.head, self.parsed, self.named = bytearray(), 0, ZEROS, _NO_LINES, {}
        lines, whole = _whole_lines(path, data, len(self.data))
        count, head = self.count, self.head
        for line in lines[:-1]:
            count += 1
            if b'"previous":"%b"' % head.encode() not in line or not _is_numbered(line, count):
                _parse(path, data, is_entry)
            head = sha256_hex(line)
        if lines:
            count += 1
            try:
                _parse_line(path, count, lines[-1], head, is_entry)
            except VerificationError:
                _parse(path, data, is_entry)  # an earlier line may be the cause
                raise
            head = sha256_hex(lines[-1])
        self.add(data[len(self.data) : whole])
        self.count, self.head = count, head

    def add(self, lines: bytes) -> None:
        start = len(self.data)
        self.data += lines
        for found in _FILE.finditer(lines):
            self.named[found.group()] = start + found.start()


class _Known:
    """Logs that this process has checked, so that only what was added to one since is checked again."""

    def __init__(self) -> None:
        self._logs: OrderedDict[tuple[Path, IsEntry], _Checked] = OrderedDict()

    def of(self, path: Path, is_entry: IsEntry) -> _Checked:
        checked = self._logs.setdefault((path, is_entry), _Checked())
        self._logs.move_to_end((path, is_entry))
        while len(self._logs) > 1 and sum(len(log.data) for log in self._logs.values()) > _MOST_KNOWN:
            self._logs.popitem(last=False)
        return checked

    def forget(self, path: Path, is_entry: IsEntry) -> None:
        self._logs.pop((path, is_entry), None)


_known = _Known()


@contextlib.contextmanager
def locked(path: Path, is_entry: IsEntry, *, create: bool = True) -> Iterator[LockedChain]:
    """Hold the log, so that what is read in it stays true until the next entry is there."""
    with explained(path):
        if create:
            make_folder(path.parent)
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create and not path.is_symlink() else 0)
        descriptor = os.open(path, flags, 0o600)
    try:
        status = os.fstat(descriptor)
        refuse_foreign(status, path, "the ledger")
        refuse_shared(status, path, "the ledger")
        with explained(path, "lock"):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield LockedChain(path, descriptor, is_entry)
    finally:
        os.close(descriptor)


class LockedChain:
    def __init__(self, path: Path, descriptor: int, is_entry: IsEntry) -> None:
        self._path, self._descriptor, self._is_entry = path, descriptor, is_entry

    def read(self) -> Lines:
        """All entries; those that this process has parsed before are not parsed again."""
        checked = self._checked()
        if checked.parsed.size != len(checked.data):
            checked.parsed = _parse(self._path, bytes(checked.data), self._is_entry, checked.parsed)
        return checked.parsed

    def latest(self, file: str) -> dict[str, Any] | None:
        """The last entry on this file: found by its bytes, so that it alone is parsed."""
        checked = self._checked()
        wanted = f'"file":{canonical_json(file)}'.encode()
        found = checked.named.get(wanted, -1)
        while found >= 0:
            start = checked.data.rfind(b"\n", 0, found) + 1
            fields: dict[str, Any] = parse_json(bytes(checked.data[start : checked.data.index(b"\n", found)]))
            if fields.get("file") == file:
                return fields
            found = checked.data.rfind(wanted, 0, start)  # it was deeper inside
        return None

    def append(self, fields: dict[str, Any]) -> None:
        """Add an entry, durably; an append that was killed before is cut off."""
        with explained(self._path):
            checked = self._checked()
            size = len(checked.data)
            if os.fstat(self._descriptor).st_size > size:
                os.ftruncate(self._descriptor, size)
            line = canonical_json({"seq": checked.count + 1, "previous": checked.head, **fields}).encode()
            if not checked.count:
                # A new log has its name made durable before its first entry; later ones need not do it again.
                sync_folder(self._path.parent)
            try:
                if os.write(self._descriptor, line + b"\n") != len(line) + 1:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(self._descriptor)
            except OSError:
                # A line that stays, although the disk did not take it, would be one that the next entry builds on.
                os.ftruncate(self._descriptor, size)
                raise
            checked.add(line + b"\n")
            checked.count, checked.head, checked.state = checked.count + 1, sha256_hex(line), self._state()

    def _checked(self) -> _Checked:
        """The log as it is now, its chain checked; read from the disk only if somebody else has written to it."""
        checked, state = _known.of(self._path, self._is_entry), self._state()
        if checked.state != state:
            with explained(self._path, "read"):
                os.lseek(self._descriptor, 0, os.SEEK_SET)
                with os.fdopen(os.dup(self._descriptor), "rb") as handle:
                    data = _contents(self._path, handle)
            try:
                checked.follow(self._path, data, self._is_entry)
            except BaseException:
                _known.forget(self._path, self._is_entry)
                raise
            checked.state = state
        return checked

    def _state(self) -> tuple[int, int, int, int]:
        status = os.fstat(self._descriptor)
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
