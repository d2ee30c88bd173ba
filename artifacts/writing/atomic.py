"""Writing so that a file is whole or absent, whatever kills the process.

A temporary file, fsync, an exclusive link (or a rename under `--force`), fsync of the folder. The writer holds a
lock on its temporary file, so that a later writer can tell a stale leftover from work under way. Whatever went wrong,
the same command again finishes the work: a file that has its bytes already stays, and that is said.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from artifacts.digests import sha256_file
from artifacts.errors import InputError
from artifacts.identity.owner import file_mode, folder_mode
from artifacts.kinds import Custody

_log = logging.getLogger("fedsynth")

Chunks = Iterable[bytes | memoryview]


class ExistsError(InputError):
    """A name is taken by a file with other bytes."""


def exists_error(path: Path) -> ExistsError:
    return ExistsError(f"{path} already exists. Add --force to replace it, or choose another --out.")


@contextlib.contextmanager
def staged(path: Path, chunks: Chunks, *, mode: int = 0o600, staging: Path | None = None) -> Iterator[Path]:
    """Write `chunks` to a temporary file beside `path` (or in `staging`) and yield it, ready to be put in place."""
    folder = staging or path.parent
    with explained(path):
        make_folder(folder)
        make_folder(path.parent)
        _sweep(folder, path.name)
        temporary, descriptor = _open_temporary(folder, path.name, mode)
    try:
        with explained(path), os.fdopen(descriptor, "wb") as handle:
            for chunk in chunks:
                handle.write(chunk)
            handle.flush()
            os.fsync(handle.fileno())
            yield temporary
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            temporary.unlink(missing_ok=True)
        raise
    remove(temporary)


def place(temporary: Path, path: Path, *, force: bool) -> None:
    """Give the temporary file its name. Without `force` one that is there stays, if it has the same bytes."""
    with explained(path):
        if force:
            temporary.replace(path)
        else:
            try:
                os.link(temporary, path)
            except FileExistsError:
                refuse_other(path, sha256_file(temporary), force=False)
                note_kept(path)
        sync_folder(path.parent)


def refuse_other(path: Path, sha256: str, *, force: bool) -> None:
    """Refuse to replace a file unless it has these very bytes, or by `force`."""
    with explained(path, "read"):
        if not force and path.exists() and (not path.is_file() or sha256_file(path) != sha256):
            raise exists_error(path)


def note_kept(path: Path) -> None:
    """Say that there was nothing to do; the command line does so on stderr."""
    _log.warning("note: %s is there already, with the same bytes. It was left as it is.", path)


def write(path: Path, chunks: Chunks, *, force: bool, custody: Custody = "public", mode: int | None = None) -> None:
    """Write a file that is whole or absent. Who may read it follows from its custody and its place."""
    with staged(path, chunks, mode=mode or file_mode(path, custody)) as temporary:
        place(temporary, path, force=force)


def write_json(path: Path, value: Mapping[str, Any], *, force: bool) -> None:
    """Write an object for people and programs; `custody` in it says who may read it."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    write(path, [text.encode() + b"\n"], force=force, custody=value["custody"])


def make_folder(folder: Path, mode: int | None = None) -> None:
    """Make a folder and those above it, durably: what is in a folder whose name is lost is lost with it.

    A private one is for its owner alone; one that exists keeps its permissions.
    """
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folder(folder.parent)
    folder.mkdir(mode=mode or folder_mode(folder), exist_ok=True)
    sync_folder(folder.parent)


def settle(path: Path) -> None:
    """For a file that is not made again: nothing is left beside it of a writer that was killed, and its name lasts."""
    with explained(path):
        _sweep(path.parent, path.name)
        sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove a file, if it is there."""
    with explained(path, "remove"):
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def explained(path: Path, doing: str = "write") -> Iterator[None]:
    """Turn the operating system's refusals (full disk, read-only folder, …) into a message for the user."""
    try:
        yield
    except OSError as error:
        # mkdir says «File exists» of a file where a folder is needed, which is no help.
        reason = os.strerror(errno.ENOTDIR) if isinstance(error, FileExistsError) else error.strerror or error
        raise InputError(
            f"cannot {doing} {path}: {reason}. Whatever was written is whole; mend that and run again."
        ) from error


def _open_temporary(folder: Path, name: str, mode: int) -> tuple[Path, int]:
    """A new temporary file with its lock held. Another writer may sweep it before the lock: then once more."""
    while True:
        temporary = folder / f".{name}.{secrets.token_hex(8)}.part"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)
            raise
        if os.fstat(descriptor).st_nlink:
            return temporary, descriptor
        os.close(descriptor)


def _sweep(folder: Path, name: str) -> None:
    """Remove leftovers of writers that were killed: their lock is free."""
    found: list[str] = []
    with contextlib.suppress(PermissionError), os.scandir(folder) as entries:
        found = [entry.name for entry in entries if entry.name.startswith(f".{name}.") and entry.name.endswith(".part")]
    for leftover in found:
        sweep_file(folder / leftover)


def sweep_file(leftover: Path) -> None:
    """Remove a temporary file, unless someone is at work on it, has just ended, or is another user."""
    with (
        explained(leftover, "remove"),
        contextlib.suppress(BlockingIOError, FileNotFoundError, PermissionError),
        leftover.open("rb") as handle,
    ):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        leftover.unlink(missing_ok=True)
