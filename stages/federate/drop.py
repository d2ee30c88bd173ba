"""The drop folder: where parties who are not connected leave sealed parcels for each other.

A path (a share, a stick) or a URL of the storage layer. Everybody may read all of it; each party writes and removes its
own parcels. A parcel's name says from whom it is, to whom, and of which exchange; the parcel itself proves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from artifacts.digests import sha256_file
from artifacts.errors import InputError
from artifacts.storage.url import is_url, local_path
from artifacts.writing import atomic
from artifacts.writing.scratch import cache_folder, scratch
from stages.federate.parcels import ParcelError

SUFFIX = ".sealed"
_CHUNK = 2**20
_MOST_KNOWN = 1000
_known: dict[Path, tuple[int, int, str]] = {}  # of files: when written, size, digest


@dataclass(frozen=True)
class Label:
    """What the name of a parcel says."""

    exchange: int
    sender: str
    recipient: str


class DropFolder:
    """The parcels of one federation in a drop folder, which others may share."""

    def __init__(self, place: str, federation: str) -> None:
        self._federation = federation
        self._path = local_path(place) if is_url(place) else Path(place)
        if self._path is None:
            from artifacts.storage.remote import Remote

            self._remote = Remote.parse(place)
        elif not self._path.is_dir():
            raise InputError(f"no drop folder at {self._path}. Make or mount it, where all parties can write.")

    def name(self, label: Label) -> str:
        return f"{self._federation}.{label.exchange:06}-{label.sender}-to-{label.recipient}{SUFFIX}"

    def labels(self, *, sender: str = "(.+)", recipient: str = "(.+)") -> list[Label]:
        """The parcels from someone to someone, in order."""
        start, end = re.escape(f"{self._federation}."), re.escape(SUFFIX)
        pattern = re.compile(rf"{start}(\d{{6,9}})-(?P<sender>{sender})-to-(?P<recipient>{recipient}){end}")
        found = (pattern.fullmatch(name) for name in self.names())
        known = (Label(int(m[1]), m["sender"], m["recipient"]) for m in found if m)
        return sorted(known, key=lambda label: (label.exchange, label.sender, label.recipient))

    def __str__(self) -> str:
        return str(self._remote if self._path is None else self._path)

    def names(self) -> list[str]:
        """All that lies there. What is still being written has no name yet."""
        if self._path is None:
            return sorted(name for name in self._remote.files() if "/" not in name)
        found = self._path.iterdir() if self._path.is_dir() else ()
        return sorted(path.name for path in found if not path.name.startswith("."))

    def read(self, label: Label, most: int) -> bytes:
        """The bytes of a parcel; `ParcelError` if there are more of them than anybody may send."""
        name = self.name(label)
        if self._path is not None:
            path = self._path / name
            with atomic.explained(path, "read"):
                if not path.is_file():
                    raise ParcelError("it is not a file.")
                return _bounded(path, most)
        remote = self._remote.below(name)
        found = remote.find()
        if found is None:
            raise ParcelError("it is gone.")
        if found.size > most:
            raise ParcelError(f"it has {found.size:,} bytes, at most {most:,} are taken.")
        with scratch(cache_folder(), "drop") as folder:
            remote.fetch(folder / name)
            return _bounded(folder / name, most)

    def digest(self, label: Label) -> str:
        """Of the bytes of a parcel, whatever they are."""
        if self._path is not None:
            path = self._path / self.name(label)
            with atomic.explained(path, "read"):
                return sha256_file(path)
        remote = self._remote.below(self.name(label))
        with scratch(cache_folder(), "drop") as folder:
            remote.fetch(folder / "parcel")
            return sha256_file(folder / "parcel")

    def keep(self, label: Label, sealed: Path) -> None:
        """Make sure that a parcel of ours lies there, whole: put there if it is missing, cut or another."""
        name = self.name(label)
        if self._path is not None:
            path = self._path / name
            if not path.is_file() or path.stat().st_size != sealed.stat().st_size or _differ(path, sealed):
                atomic.write(path, _read(sealed), force=True)
            return
        remote = self._remote.below(name)
        found = remote.find()
        if found is None or found.size != sealed.stat().st_size:
            remote.put(sealed)

    def remove(self, label: Label) -> None:
        if self._path is not None:
            atomic.remove(self._path / self.name(label))
        else:
            self._remote.below(self.name(label)).delete()


def _bounded(path: Path, most: int) -> bytes:
    size = path.stat().st_size
    if size > most:
        raise ParcelError(f"it has {size:,} bytes, at most {most:,} are taken.")
    return path.read_bytes()


def _differ(path: Path, sealed: Path) -> bool:
    with atomic.explained(path, "read"):
        return sha256_file(path) != sha256_file(sealed)


def _read(path: Path) -> Iterator[bytes]:
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK):
            yield chunk


def digest_of(path: Path) -> str:
    """Computed once for a file that stays as it is, however often somebody asks."""
    found = path.stat()
    known = _known.get(path)
    if known is None or known[:2] != (found.st_mtime_ns, found.st_size):
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[path] = known = (found.st_mtime_ns, found.st_size, sha256_file(path))
    return known[2]
