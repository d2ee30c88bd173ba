"""A folder for what does not fit into memory: gone when the work is done or fails, swept by the next run if killed.

As in `atomic`, a process at work holds a lock, here on the folder itself, so that a later process can tell a leftover
from work under way.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from artifacts.writing.atomic import explained, make_folder, sweep_file


def cache_folder() -> Path:
    """Where work is kept that belongs to no folder of the user's, such as what was fetched by a URL."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "fedsynth"
    with explained(folder):
        make_folder(folder, mode=0o700)
    return folder


@contextlib.contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """A new folder in `parent`, which others cannot look into."""
    with explained(parent):
        make_folder(parent)
        sweep(parent, name)
        folder, descriptor = _make(parent, name)
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # the first error is the one to tell
        raise
    else:
        with explained(folder, "remove"):
            shutil.rmtree(folder)
    finally:
        os.close(descriptor)


def sweep(parent: Path, name: str) -> None:
    """Remove the folders of processes that were killed: their lock is free."""
    for leftover in parent.glob(f".{name}.*.part"):
        _sweep_folder(leftover)


def sweep_below(root: Path) -> None:
    """Remove whatever killed processes left anywhere in a folder: what was finished is not written again."""
    for leftover in [*root.rglob(".*.part")]:
        if leftover.is_dir():
            _sweep_folder(leftover)
        else:
            sweep_file(leftover)


def _sweep_folder(leftover: Path) -> None:
    """As `atomic.sweep_file`."""
    with explained(leftover, "remove"), contextlib.suppress(BlockingIOError, FileNotFoundError, PermissionError):
        descriptor = os.open(leftover, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(leftover)
        finally:
            os.close(descriptor)


def _make(parent: Path, name: str) -> tuple[Path, int]:
    """A new folder with its lock held. Another process may sweep it before the lock: then once more."""
    while True:
        folder = parent / f".{name}.{secrets.token_hex(8)}.part"
        folder.mkdir(mode=0o700)
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError:
            folder.rmdir()
            raise
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            os.close(descriptor)
            folder.rmdir()
            raise
        if folder.exists():
            return folder, descriptor
        os.close(descriptor)
