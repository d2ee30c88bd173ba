"""The files of a folder that may be copied to a store, and what tells one state of a file from another."""

from __future__ import annotations

import contextlib
from pathlib import Path

from artifacts.formats import format_named

State = tuple[int, int, int]
_KEY = ".key"  # a key stays on the machine where it was made


def states(root: Path) -> dict[str, State]:
    """Every whole file that is no key, by its name from `root`; a state begins with when the file was written.

    Ledgers are looked at last: whatever was found in an outbox before has its entry in them.
    """
    names = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
    whole = [
        name.as_posix()
        for name in names
        if name.suffix != _KEY and not any(part.startswith(".") for part in name.parts)  # «.….part»: being written
    ]
    found: dict[str, State] = {}
    for name in sorted(whole, key=is_ledger):
        with contextlib.suppress(FileNotFoundError):
            status = (root / name).stat()
            found[name] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return found


def is_ledger(name: str) -> bool:
    """A chained log, which grows in place; an envelope has the same ending and does not."""
    return name.endswith(".jsonl") and format_named(name) is None
