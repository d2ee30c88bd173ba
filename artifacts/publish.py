"""The one way an artifact gets its name, and the only way anything enters an outbox."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from artifacts.digests import sha256_file
from artifacts.errors import UsageError
from artifacts.formats import seal
from artifacts.identity.owner import file_mode
from artifacts.kinds import TRAVEL, Custody
from artifacts.ledgers import egress, gate
from artifacts.metadata import Metadata
from artifacts.places import METRICS, PUBLIC, Place, deep_in_outbox, in_pending, is_leaving
from artifacts.writing import atomic
from artifacts.writing.atomic import make_folder

_LARGE = 1 << 20


def prepare(path: Path, custody: Custody) -> None:
    """Called before the work, so that an hour of training is not lost to a name that is forbidden.

    A file that leaves goes into an outbox, or waits to be released into it; a file that stays never does. A file that
    is there already may have the very bytes that will come out; `any_file.refuse_other` says more before long work.
    """
    leaves = custody in TRAVEL
    if leaves and not is_leaving(path):
        raise UsageError(
            f"{path} would leave unrecorded: write it into a folder named outbox/ (its ledger is beside it)."
        )
    if not leaves and is_leaving(path):
        raise UsageError(f"{path}: a file that is {custody} may not be in an outbox. Choose another --out.")
    if deep_in_outbox(path):
        raise UsageError(
            f"{path} lies deeper inside an outbox: files that leave are directly in it, all others elsewhere."
        )


def prepare_private(path: Path) -> None:
    """For what is computed from private images: not in an outbox, nor in a folder of a run that anyone may read."""
    prepare_kept(path, "private")


def prepare_kept(path: Path, custody: Custody) -> None:
    """The same for whatever stays with one participant: private, or the server's own."""
    prepare(path, custody)
    if path.absolute().parent.name in (PUBLIC, METRICS):
        raise UsageError(f"{path}: a file that is {custody} may not be in {path.parent.name}/. Choose another --out.")


def publish(path: Path, chunks: Sequence[bytes | memoryview], metadata: Metadata, *, force: bool) -> str:
    """Write the file, whole or not at all, entering it in the ledger first if it leaves. Returns its SHA-256.

    Behind a gate it waits in `pending/` instead, and is entered when it is released.
    """
    prepare(path, metadata.custody)
    with ThreadPoolExecutor(1) as pool:
        # Of a large file in a second thread: hashing releases the interpreter's lock, so the disk need not wait for it.
        large = sum(map(len, chunks)) >= _LARGE
        digest = pool.submit(seal.digest, chunks).result if large else functools.partial(seal.digest, chunks)
        if not is_leaving(path):
            atomic.write(path, chunks, force=force, custody=metadata.custody)
            return digest()
        mode = file_mode(gate.destination(path), metadata.custody)
        # Staged outside the outbox: whatever is in there, even for a moment, has its entry.
        with atomic.staged(path, chunks, mode=mode, staging=path.absolute().parent.parent) as temporary:
            sha256 = digest()
            _send(temporary, path, sha256, metadata, force=force)
        return sha256


def publish_staged(temporary: Path, sha256: str, path: Path, metadata: Metadata, *, force: bool) -> None:
    """The same for a file too large for memory, which the caller has written, whole and synced, outside the outbox.

    `temporary`, with this digest, is on the same file system as `path`; the caller removes it if it is still there.
    """
    prepare(path, metadata.custody)
    with atomic.explained(path):
        make_folder(path.parent)
        if file_mode(gate.destination(path), metadata.custody) == 0o600:
            temporary.chmod(0o600)
    if is_leaving(path):
        _send(temporary, path, sha256, metadata, force=force)
    else:
        atomic.place(temporary, path, force=force)


def release(temporary: Path, path: Path, metadata: Metadata, *, picked: bool, force: bool) -> str:
    """Let a file out that waited: `temporary` holds its bytes, on the same file system as the outbox of `path`.

    `picked`: the person who let it out had seen private data.
    """
    with atomic.explained(path):
        make_folder(path.parent)
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
    with egress.locked(place.ledger) as book:
        atomic.refuse_other(path, digest, force=force)
        with atomic.explained(path):
            size = temporary.stat().st_size
            same = path.is_file() and sha256_file(path) == digest
        book.enter(file=path.name, sha256=digest, size=size, metadata=metadata, picked=picked)
        if force and same:
            with atomic.explained(path):
                atomic.sync_folder(path.parent)  # the process that put it there may have been killed before
        else:
            atomic.place(temporary, path, force=force)
