"""Writing so that a file is whole or absent, whatever kills the process.

A temporary file, fsync, an exclusive link (or a rename under `--force`), fsync of the folder. The writer holds a
lock on its temporary file, so that a later writer can tell a stale leftover from work under way.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

from artifacts.errors import InputError

Chunks = Iterable[bytes | memoryview]


def exists_error(path: Path) -> InputError:
    return InputError(f"{path} already exists. Add --force to replace it, or choose another --out.")


def refuse_existing(path: Path, *, force: bool) -> None:
    with explained(path):
        if not force and path.exists():
            raise exists_error(path)


@contextlib.contextmanager
def staged(path: Path, chunks: Chunks, *, mode: int = 0o644, staging: Path | None = None) -> Iterator[Path]:
    """Write `chunks` to a temporary file beside `path` (or in `staging`) and yield it, ready to be put in place."""
    folder = staging or path.parent
    with explained(path):
        folder.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder, path.name)
        temporary, descriptor = _open_temporary(folder, path.name, mode)
    try:
        with explained(path), os.fdopen(descriptor, "wb") as handle:
            for chunk in chunks:
                handle.write(chunk)
            handle.flush()
            os.fsync(handle.fileno())
            yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def place(temporary: Path, path: Path, *, force: bool) -> None:
    """Give the temporary file its name. Without `force` the loser of a race is refused and nothing is lost."""
    with explained(path):
        if force:
            temporary.replace(path)
        else:
            try:
                os.link(temporary, path)
            except FileExistsError:
                raise exists_error(path) from None
        sync_folder(path.parent)


def write(path: Path, chunks: Chunks, *, force: bool, mode: int = 0o644) -> None:
    """Write a file that is whole or absent."""
    refuse_existing(path, force=force)
    with staged(path, chunks, mode=mode) as temporary:
        place(temporary, path, force=force)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals (full disk, read-only folder, …) into a message for the user."""
    try:
        yield
    except OSError as error:
        # mkdir says «File exists» of a file where a folder is needed, which is no help.
        reason = os.strerror(errno.ENOTDIR) if isinstance(error, FileExistsError) else error.strerror or error
        raise InputError(f"cannot write {path}: {reason}. Nothing was left behind; mend that and run again.") from error


def _open_temporary(folder: Path, name: str, mode: int) -> tuple[Path, int]:
    """A new temporary file with its lock held. Another writer may sweep it before the lock: then once more."""
    while True:
        temporary = folder / f".{name}.{secrets.token_hex(8)}.part"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return temporary, descriptor
        os.close(descriptor)


def _sweep(folder: Path, name: str) -> None:
    """Remove leftovers of writers that were killed: their lock is free."""
    for leftover in folder.glob(f".{_escaped(name)}.*.part"):
        with contextlib.suppress(OSError), leftover.open("rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            leftover.unlink(missing_ok=True)


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
