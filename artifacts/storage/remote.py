"""Files by URL: an object in a store such as S3, fetched whole and put whole, through fsspec's drivers.

Nothing is read in place: an object is fetched into a private folder, where the ordinary readers check it. Credentials
come from the environment or the store's usual places; a URL with a password is refused, and what is shown or recorded
of a URL has neither query nor user.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from artifacts.errors import FedsynthError, InputError, UsageError
from artifacts.writing.atomic import explained, make_folder

_AT_A_TIME = 8


class _Driver(NamedTuple):
    """What serves a scheme. `objects`: a file appears when it is complete; elsewhere it is renamed when it is."""

    package: str
    objects: bool = True
    names_a_user: bool = False  # the part before an @ is an account or a user, not a password
    part: int | None = None  # bytes of a large file that are in memory and on their way at a time


_S3, _GCS, _AZURE = _Driver("fedsynth[s3]", part=8 << 20), _Driver("gcsfs"), _Driver("adlfs", names_a_user=True)
_SFTP = _Driver("paramiko", objects=False, names_a_user=True)
SCHEMES = {
    "s3": _S3, "gs": _GCS, "gcs": _GCS, "abfs": _AZURE, "abfss": _AZURE, "az": _AZURE, "sftp": _SFTP,
    "memory": _Driver("fsspec", objects=False),
}  # fmt: skip
# Where a store says which version of an object this is: by a tag where it has one, else by a time.
_VERSIONS = ("ETag", "etag", "generation", "LastModified", "last_modified", "mtime", "updated", "created")
_UNREACHABLE = re.compile("Connect|Endpoint|Timeout|Payload|Incomplete|Disconnected|SSH|socket|gaierror")


@dataclass(frozen=True)
class StoredFile:
    """An object as the store describes it; `version` differs when its bytes do."""

    size: int
    version: str

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> StoredFile:
        return cls(int(info["size"]), next((str(info[name]) for name in _VERSIONS if info.get(name)), ""))


class _Store:
    """What precedes the name in a URL, and the file system that reaches it, which is made when it is used."""

    def __init__(self, scheme: str, authority: str, options: str) -> None:
        self.scheme, self.authority, self.options = scheme, authority, options
        self.driver = SCHEMES[scheme]
        self.bucket = authority.rpartition("@")[2] if scheme == "sftp" else authority.partition("@")[0]

    @functools.cached_property
    def system(self) -> Any:
        import fsspec

        shown = f"{self.scheme}://{self.bucket}"
        with _explained(shown, "reach"):
            try:
                return fsspec.core.url_to_fs(
                    f"{self.scheme}://{self.authority}/", use_listings_cache=False, skip_instance_cache=True,
                    **self._settings(),
                )[0]  # fmt: skip
            except ImportError:
                raise UsageError(
                    f"{shown}: {self.scheme}:// needs another package. Install it: pip install '{self.driver.package}'"
                ) from None

    def _settings(self) -> dict[str, Any]:
        """What a URL may say after its `?`: of S3, where the server is and in which region."""
        options = dict(parse_qsl(self.options, keep_blank_values=True))
        if options.keys() - ({"endpoint_url", "region"} if self.scheme == "s3" else set()):
            raise UsageError(f"{self.scheme}://{self.bucket}: its URL has an option that is not known.")
        if self.scheme != "s3":
            return {}
        # The driver tries again itself: what botocore adds to that would take minutes.
        settings: dict[str, Any] = {"config_kwargs": {"retries": {"total_max_attempts": 1}, "connect_timeout": 10}}
        region = options.get("region") or os.environ.get("AWS_REGION")
        return settings | {"endpoint_url": options.get("endpoint_url"), "client_kwargs": {"region_name": region}}

    def path(self, key: PurePosixPath) -> str:
        """What the driver calls an object."""
        path: str = self.system._strip_protocol(f"{self.scheme}://{self.authority}/{key}")
        return path


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
        driver = SCHEMES.get(scheme)
        user = parts.netloc.rpartition("@")[0]
        if user and (driver is None or not driver.names_a_user or ":" in user):
            raise UsageError(
                f"{shown}: no credentials in a URL, where others can read them. Set them in the environment (for S3: "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)."
            )
        if driver is None:
            known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            raise UsageError(f"{shown}: fedsynth knows {known} and paths. Fetch the file, and give its path.")
        if not bucket or not _is_plain(key):
            raise UsageError(f"{shown}: write {scheme}://BUCKET/NAME, without empty parts, . and .. in it.")
        return cls(_Store(scheme, parts.netloc, parts.query), PurePosixPath(key))

    def __str__(self) -> str:
        """What is shown and recorded: no query, no user."""
        return f"{self.store.scheme}://{self.store.bucket}/{self.key}"

    def below(self, name: str) -> Remote:
        """An object in this folder."""
        return replace(self, key=self.key / name)

    def beside(self, name: str) -> Remote:
        """Another object in the same folder."""
        return replace(self, key=self.key.with_name(name))

    def under(self, folder: Path) -> Path:
        """Where a copy of it is in a folder of copies."""
        return folder / self.store.scheme / self.store.bucket / self.key

    def find(self) -> StoredFile | None:
        """The object, if there is one."""
        found = self._info()
        return StoredFile.of(found) if found is not None and found["type"] == "file" else None

    def is_folder(self) -> bool:
        found = self._info()
        return found is not None and found["type"] == "directory"

    def files(self) -> dict[str, StoredFile]:
        """The objects of this folder by their names in it; none if it is not there. Names that lead out are refused."""
        system, path = self.store.system, self._path
        with _explained(str(self), "list"):
            try:
                listed = system.find(path, detail=True)
            except FileNotFoundError:
                return {}
        names = {name[len(path) + 1 :]: StoredFile.of(info) for name, info in listed.items() if name != path}
        for name in names:
            if not _is_plain(name):
                raise InputError(f"{self} holds an object named {name!r}, which is no name of a file. Remove it.")
        return names

    def check_bucket(self) -> None:
        """Called before the work, so that an hour of training is not lost to a wrong name."""
        if not self.store.driver.objects:
            return
        with _explained(str(self), "reach"):
            try:
                self.store.system.info(self.store.bucket)
            except FileNotFoundError:
                raise InputError(f"{self}: no such bucket. Make it first.") from None

    def fetch(self, target: Path) -> None:
        """Fetch the object to `target`, which only its owner can read."""
        found = self.find()
        if found is None:
            self.check_bucket()
            raise InputError(f"{self}: no such object.")
        check_room(found.size, target.parent, str(self))
        self._fetch(target, found)

    def fetch_folder(self, target: Path) -> dict[str, StoredFile]:
        """Fetch every object of this folder; returns them as they were found."""
        files = self.files()
        check_room(sum(found.size for found in files.values()), target, str(self))
        with ThreadPoolExecutor(_AT_A_TIME) as threads:
            tasks = [threads.submit(self.below(name)._fetch, target / name, found) for name, found in files.items()]
            for task in tasks:
                task.result()
        return files

    def put(self, content: bytes | Path) -> StoredFile:
        """Put one object: whole, or not at all."""
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        with _explained(str(self), "write"):
            self._put(content)
        found = self.find()
        if found is None or found.size != size:
            arrived = "is not there" if found is None else f"has {found.size:,} bytes"
            raise InputError(f"{self} {arrived} after {size:,} bytes were put. Run again.")
        return found

    def delete(self) -> None:
        system, path = self.store.system, self._path
        with _explained(str(self), "delete"), contextlib.suppress(FileNotFoundError):
            system.rm_file(path)

    @property
    def _path(self) -> str:
        return self.store.path(self.key)

    def _put(self, content: bytes | Path) -> None:
        system, path = self.store.system, self._path
        there = path
        if not self.store.driver.objects:
            system.makedirs(path.rpartition("/")[0], exist_ok=True)
            there = self.store.path(self.key.with_name(f".{self.key.name}.part"))
        if isinstance(content, bytes):
            system.pipe_file(there, content)
        else:
            part = self.store.driver.part
            system.put_file(str(content), there, **({} if part is None else {"chunksize": part}))
        if there != path:
            system.mv(there, path)

    def _fetch(self, target: Path, found: StoredFile) -> None:
        with explained(target):
            make_folder(target.parent, mode=0o700)
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            with _explained(str(self), "read"):
                self.store.system.get_file(self._path, str(target))
            # A fetch is several requests, and the object may be another one after the first of them.
            if self.find() != found:
                raise InputError(f"cannot read {self}: it was replaced meanwhile. Run again.")
            arrived = target.stat().st_size
            if arrived != found.size:
                raise InputError(f"cannot read {self}: {arrived:,} of {found.size:,} bytes arrived. Run again.")
        except BaseException:
            with contextlib.suppress(OSError):  # the first error is the one to report
                target.unlink()
            raise

    def _info(self) -> Mapping[str, Any] | None:
        system, path = self.store.system, self._path
        with _explained(str(self), "read"):
            try:
                info: Mapping[str, Any] = system.info(path)
            except FileNotFoundError:
                return None
        return info


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


def _before(error: BaseException) -> Iterator[BaseException]:
    """The error, and those in whose handling it came up: what a driver gives up after one may fail as well."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__context__


@contextlib.contextmanager
def _explained(shown: str, doing: str) -> Iterator[None]:
    """Turn what a driver raises into a message for the user, without its words: those may quote the request."""
    try:
        yield
    except FedsynthError:
        raise
    except FileNotFoundError:
        raise InputError(f"{shown}: no such object.") from None
    except Exception as error:
        kind = type(error).__name__
        reason = f"the store answered {kind}"
        if any(isinstance(each, PermissionError) for each in _before(error)):
            reason = "access denied. Check the credentials in the environment, and what they may do"
        elif kind == "NoCredentialsError":
            reason = "there are no credentials in the environment"
        elif isinstance(error, ConnectionError | TimeoutError) or _UNREACHABLE.search(kind):
            reason = "the store cannot be reached, or the connection broke. Check endpoint and network"
        raise InputError(f"cannot {doing} {shown}: {reason}.") from None
