"""The one way an artifact gets its name, and the only way anything enters an outbox."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from artifacts import atomic, gate, ledger
from artifacts.digests import sha256_file
from artifacts.errors import UsageError
from artifacts.kinds import Custody
from artifacts.metadata import Metadata
from artifacts.places import Place, deep_in_outbox, in_pending, is_leaving


def prepare(path: Path, custody: Custody, *, force: bool) -> None:
    """Called before the work, so that an hour of training is not lost to a name that is taken or forbidden.

    A file that leaves stands in an outbox, or waits to be released into it; a file that stays never does.
    """
    leaves = custody in ("outbound", "downlink")
    if leaves and not is_leaving(path):
        raise UsageError(
            f"{path} would leave unrecorded: write it into a folder named outbox/ (its ledger stands beside it)."
        )
    if not leaves and is_leaving(path):
        raise UsageError(f"{path}: a file that is {custody} may not stand in an outbox. Choose another --out.")
    if deep_in_outbox(path):
        raise UsageError(f"{path} lies inside an outbox: what leaves stands in it directly, all else elsewhere.")
    atomic.refuse_existing(path, force=force)
    atomic.refuse_existing(gate.destination(path), force=force)


def publish(path: Path, chunks: Sequence[bytes | memoryview], metadata: Metadata, *, force: bool) -> str:
    """Write the file, whole or not at all, entering it in the ledger first if it leaves. Returns its SHA-256.

    Behind a gate it waits in `pending/` instead, and is entered when it is released.
    """
    prepare(path, metadata.custody, force=force)
    state = hashlib.sha256()
    for chunk in chunks:
        state.update(chunk)
    digest = state.hexdigest()
    if not is_leaving(path):
        atomic.write(path, chunks, force=force)
        return digest
    gate.make_room(gate.destination(path))
    # Staged outside the outbox: whatever stands in there, even for a moment, has its entry.
    with atomic.staged(path, chunks, staging=path.absolute().parent.parent) as temporary:
        _send(temporary, path, digest, metadata, force=force)
    return digest


def publish_staged(temporary: Path, path: Path, metadata: Metadata, *, force: bool) -> str:
    """The same for a file too large for memory, which the caller has written, whole and synced, outside the outbox.

    `temporary` is on the same file system as `path`; the caller removes it afterwards, if it is still there.
    """
    prepare(path, metadata.custody, force=force)
    gate.make_room(gate.destination(path))
    with atomic.explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = sha256_file(temporary)
    if is_leaving(path):
        _send(temporary, path, digest, metadata, force=force)
    else:
        atomic.place(temporary, path, force=force)
    return digest


def release(temporary: Path, path: Path, metadata: Metadata, *, picked: bool, force: bool) -> str:
    """Let a file out that waited: `temporary` holds its bytes, on the same file system as the outbox of `path`.

    `picked`: whoever let it out had seen private data.
    """
    with atomic.explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = sha256_file(temporary)
    _enter_and_place(temporary, path, digest, metadata, picked=picked, force=force)
    return digest


def _send(temporary: Path, path: Path, digest: str, metadata: Metadata, *, force: bool) -> None:
    target = gate.destination(path)
    if in_pending(target):
        gate.hold(temporary, target, digest, force=force)
    else:
        _enter_and_place(temporary, path, digest, metadata, picked=False, force=force)


def _enter_and_place(
    temporary: Path, path: Path, digest: str, metadata: Metadata, *, picked: bool, force: bool
) -> None:
    """The entry first, the file second; the same bytes under the same name change nothing."""
    place = Place.of(path)
    assert place is not None  # a path in an outbox always has one
    with ledger.locked(place.ledger) as book:
        if path.exists():
            prepare(path, metadata.custody, force=force)
            if sha256_file(path) == digest and _entered(place.ledger, path.name, digest, picked=picked):
                return
        size = temporary.stat().st_size
        book.enter(file=path.name, sha256=digest, size=size, metadata=metadata, picked=picked)
        atomic.place(temporary, path, force=force)


def _entered(book: Path, file: str, digest: str, *, picked: bool) -> bool:
    latest = ledger.read(book).latest(file)
    return latest is not None and latest.sha256 == digest and (latest.picked or not picked)
