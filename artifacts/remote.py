"""Files by URL: an object in a store such as S3, fetched whole and put whole.

Nothing is read in place: an object is fetched into a private folder, where the ordinary readers check it. Credentials
come from the environment or the store's usual places; a URL with user info is refused, and what is shown or recorded of
a URL has no query.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from artifacts.atomic import explained
from artifacts.errors import InputError, UsageError

# Object stores alone: a file system such as HDFS shows a file while it is being written.
SCHEMES = ("s3", "gs", "gcs")
_CHUNK = 1 << 22
_ATTEMPTS = 3
_AT_A_TIME = 8
_S3_OPTIONS = {"endpoint_override", "region", "scheme"}
_S3_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
# What stores say, and what that means to whoever typed the URL. Their own texts are not shown: they quote requests.
_REASONS = {
    "NO_SUCH_BUCKET": "no such bucket. Make it first",
    "ACCESS_DENIED": "access denied. Check the credentials in the environment, and what they may do",
    "INVALID_ACCESS_KEY_ID": "the store does not know these credentials. Check the environment",
    "SIGNATURE_DOES_NOT_MATCH": "the store does not accept these credentials. Check the environment",
    "NETWORK_CONNECTION": "the store cannot be reached, or the connection broke. Check endpoint and network",
}


@dataclass(frozen=True)
class Found:
    """An object as the store tells it. `changed` is in seconds: S3 counts no finer."""

    size: int
    changed: int

    @classmethod
    def of(cls, info: Any) -> Found:
        return cls(info.size, (info.mtime_ns or 0) // 10**9)


class _Store:
    """A bucket, and the file system that reaches it: pyarrow's part for stores is loaded when it is used."""

    def __init__(self, scheme: str, bucket: str, options: str) -> None:
        self.scheme, self.bucket, self.options = scheme, bucket, options

    @functools.cached_property
    def system(self) -> Any:
        from pyarrow import ArrowInvalid
        from pyarrow.fs import FileSystem

        shown = f"{self.scheme}://{self.bucket}"
        try:
            with _told(shown, "reach"):
                return self._s3() if self.scheme == "s3" else FileSystem.from_uri(f"{shown}/?{self.options}")[0]
        except (ArrowInvalid, TypeError):
            raise UsageError(f"{shown}: no such bucket can be, or its URL has an option that is not known.") from None

    def _s3(self) -> Any:
        from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem, resolve_s3_region

        options = dict(parse_qsl(self.options, keep_blank_values=True))
        if options.keys() - _S3_OPTIONS:
            raise TypeError
        endpoint = next(filter(None, (os.environ.get(name) for name in _S3_ENDPOINTS)), None)
        if "endpoint_override" not in options and endpoint is not None:
            parts = urlsplit(endpoint)
            options |= {"endpoint_override": parts.netloc.rpartition("@")[2], "scheme": parts.scheme}
        if "region" not in options and "endpoint_override" not in options:
            options["region"] = resolve_s3_region(self.bucket)
        return S3FileSystem(
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            allow_delayed_open=True,  # a small file is one request, and not three
            # Else a stream that is closed after a part was refused asks to complete the object all the same. The price:
            # Arrow keeps a copy of all that is still on its way.
            background_writes=True,
            **options,
        )


@dataclass(frozen=True)
class Remote:
    """A place in a store: an object, or a folder, which is the common beginning of the names of objects."""

    store: _Store
    key: PurePosixPath

    @classmethod
    def parse(cls, text: str) -> Remote:
        """Check a URL. Nothing is asked of the network yet."""
        parts = urlsplit(text)
        scheme, bucket, key = parts.scheme.lower(), parts.netloc.rpartition("@")[2], unquote(parts.path).strip("/")
        shown = f"{scheme}://{bucket}/{key}"
        if "@" in parts.netloc:
            raise UsageError(
                f"{shown}: no credentials in a URL, where others can read them. Set them in the environment (for S3: "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)."
            )
        if scheme not in SCHEMES:
            known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            raise UsageError(f"{shown}: fedsynth knows {known} and paths. Fetch the file, and give its path.")
        if not bucket or not _is_plain(key):
            raise UsageError(f"{shown}: write {scheme}://BUCKET/NAME, without empty parts, . and .. in it.")
        return cls(_Store(scheme, bucket, parts.query), PurePosixPath(key))

    def __str__(self) -> str:
        """What is shown and recorded: no query."""
        return f"{self.store.scheme}://{self._path}"

    @property
    def _path(self) -> str:
        return f"{self.store.bucket}/{self.key}"

    def below(self, name: str) -> Remote:
        """An object in this folder."""
        return replace(self, key=self.key / name)

    def beside(self, name: str) -> Remote:
        """Another object in the same folder."""
        return replace(self, key=self.key.with_name(name))

    def under(self, folder: Path) -> Path:
        """Where a copy of it stands in a folder of copies."""
        return folder / self.store.scheme / self.store.bucket / self.key

    def find(self) -> Found | None:
        """The object, if there is one."""
        found = self._info()
        return Found.of(found) if found.is_file else None

    def is_folder(self) -> bool:
        return bool(self._info().type.name == "Directory")

    def files(self) -> dict[str, Found]:
        """The objects of this folder by their names in it; none if it is not there. Names that lead out are refused."""
        from pyarrow.fs import FileSelector

        system, path = self.store.system, self._path
        with _told(str(self), "list"):
            listed = system.get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
        names = {info.path[len(path) + 1 :]: Found.of(info) for info in listed if info.is_file}
        for name in names:
            if not _is_plain(name):
                raise InputError(f"{self} holds an object named {name!r}, which is no name of a file. Remove it.")
        return names

    def check_bucket(self) -> None:
        """Called before the work, so that an hour of training is not lost to a wrong name."""
        with _told(str(self), "reach"):
            if self.store.system.get_file_info(self.store.bucket).type.name == "NotFound":
                raise InputError(f"{self}: {_REASONS['NO_SUCH_BUCKET']}.")

    def fetch(self, target: Path) -> None:
        """Fetch the object to `target`, which only its owner can read."""
        found = self.find()
        if found is None:
            self.check_bucket()
            raise InputError(f"{self}: no such object.")
        check_room(found.size, target.parent, str(self))
        self._fetch(target, found)

    def fetch_folder(self, target: Path) -> dict[str, Found]:
        """Fetch every object of this folder; returns them as they were found."""
        files = self.files()
        check_room(sum(found.size for found in files.values()), target, str(self))
        with ThreadPoolExecutor(_AT_A_TIME) as threads:
            tasks = [threads.submit(self.below(name)._fetch, target / name, found) for name, found in files.items()]
            for task in tasks:
                task.result()
        return files

    def put(self, content: bytes | Path) -> Found:
        """Put one object: whole, or not at all."""
        # In a thread of its own. Ctrl-C lands in the thread that waits: between the opening of the stream and its end
        # it would close the stream, and closing is what makes an object of whatever was written until then.
        with ThreadPoolExecutor(1) as thread:
            size = thread.submit(self._put, content).result()
        found = self.find()
        if found is None or found.size != size:
            arrived = "is not there" if found is None else f"has {found.size:,} bytes"
            raise InputError(f"{self} {arrived} after {size:,} bytes were put. Run again.")
        return found

    def delete(self) -> None:
        system, path = self.store.system, self._path
        with _told(str(self), "delete"), contextlib.suppress(FileNotFoundError):
            system.delete_file(path)

    def _put(self, content: bytes | Path) -> int:
        import pyarrow as pa

        if isinstance(content, bytes) or not content.stat().st_size:
            buffer = pa.py_buffer(content if isinstance(content, bytes) else b"")
        else:
            buffer = pa.memory_map(str(content)).read_buffer()
        system, path = self.store.system, self._path
        with _told(str(self), "write"):
            # The whole content in one call: no error of ours can come between two halves of it.
            stream = system.open_output_stream(path)
            stream.write(buffer)
            stream.close()
        return int(buffer.size)

    def _fetch(self, target: Path, found: Found) -> None:
        with explained(target):
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with explained(target), os.fdopen(descriptor, "wb") as handle:
                arrived = sum(handle.write(chunk) for chunk in self._chunks())
            # A fetch is several requests, and the object may be another one after the first of them.
            if self.find() != found:
                raise InputError(f"cannot read {self}: it was replaced meanwhile. Run again.")
            if arrived != found.size:
                raise InputError(f"cannot read {self}: {arrived:,} of {found.size:,} bytes arrived. Run again.")
        except BaseException:
            target.unlink()
            raise

    def _chunks(self) -> Iterator[bytes]:
        system, path = self.store.system, self._path
        with _told(str(self), "read"), system.open_input_stream(path) as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk

    def _info(self) -> Any:
        system, path = self.store.system, self._path
        with _told(str(self), "read"):
            return system.get_file_info(path)


def check_room(size: int, folder: Path, shown: str) -> None:
    """Refuse to fetch what the disk has no room for."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(there).free
    if size > free:
        raise InputError(
            f"{shown} has {size:,} bytes, and the disk of {there} has room for {free:,}. Make room, or set "
            "XDG_CACHE_HOME to a folder on another disk."
        )


def _is_plain(name: str) -> bool:
    return all(part not in ("", ".", "..") and "\0" not in part for part in name.split("/"))


@contextlib.contextmanager
def _told(shown: str, doing: str) -> Iterator[None]:
    """Turn what a store answers into a message for the user, without its words: those may quote the request."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{shown}: no such object.") from None
    except OSError as error:
        code = re.search(r"AWS Error ([A-Z_]+)", str(error))
        said = code.group(1) if code else type(error).__name__
        reason = _REASONS.get(said, f"the store answered {said}")
        raise InputError(f"cannot {doing} {shown}: {reason}.") from None
