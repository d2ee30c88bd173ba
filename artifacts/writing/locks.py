"""A folder that one process at a time works in.

The lock is the operating system's (flock, on a file in the folder): it ends with its process, however that ends. The
file says who holds it. It is gone when the work is done; one that a killed process left means nothing, and is swept as
all temporary files are. Where files cannot be made or locked, on a read-only disk or a file system without locks, the
work is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from artifacts.errors import InputError
from artifacts.writing.atomic import explained, make_folder

_PATIENCE = 0.2  # a process that sweeps a leftover holds it for a moment


class InUseError(InputError):
    """Another process is at work in the folder."""


@contextlib.contextmanager
def held(folder: Path, who: str, *, wait: bool = False, name: str = "lock") -> Iterator[None]:
    """Hold the folder. The second process is refused, with the words of the first; or waits, for what is short."""
    path, made = folder / f".{name}.part", not folder.exists()
    with explained(path):
        descriptor = _take(path, wait=wait)
    try:
        with explained(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{who} (process {os.getpid()} on {os.uname().nodename})".encode(), 0)
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            _remove(path, descriptor)
            if made:
                folder.rmdir()  # if nothing was written
        raise
    else:
        with explained(path, "remove"):
            _remove(path, descriptor)
    finally:
        os.close(descriptor)


def _take(path: Path, *, wait: bool) -> int:
    """The file, locked, and still the one of this name: the one before removes it."""
    end = time.monotonic() + _PATIENCE
    while True:
        make_folder(path.parent)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # the one before removed the folder that it had made
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if _is_named(path, descriptor):
                return descriptor
        except BlockingIOError:
            if time.monotonic() > end:
                holder = os.pread(descriptor, 1000, 0).decode(errors="replace") or "another process"
                os.close(descriptor)
                raise InUseError(
                    f"{path.parent} is in use: {holder} is at work there. Wait for its end, or stop it."
                ) from None
            time.sleep(_PATIENCE / 10)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _remove(path: Path, descriptor: int) -> None:
    """While it is held: nobody else can have taken the lock by this name."""
    if _is_named(path, descriptor):
        path.unlink()


def _is_named(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
