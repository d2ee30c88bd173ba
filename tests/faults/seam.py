"""The one place where the tests of faults come between a command and the disk.

Whatever a command does to files goes through a function of `os`, `fcntl.flock` or a file object of `io`. While a block
is `watched`, each such operation on a path below a folder is shown to a watcher first, which may record it or let it
fail. Nothing else of the process is touched: imports and the standard streams lie elsewhere.
"""

import builtins
import contextlib
import fcntl
import io
import os
from dataclasses import dataclass
from pathlib import Path

# How each function names the files that it is about: by path or by descriptor, and where among its arguments.
_BY_PATH = {"mkdir": 1, "rmdir": 1, "unlink": 1, "remove": 1, "chmod": 1, "truncate": 1, "open": 1,
            "link": 2, "rename": 2, "replace": 2, "symlink": 2}  # fmt: skip
_BY_DESCRIPTOR = ("write", "pwrite", "ftruncate", "fsync", "fdatasync", "sendfile")
_KINDS = {"remove": "unlink", "replace": "rename", "pwrite": "write", "sendfile": "write", "ftruncate": "truncate",
          "fdatasync": "fsync"}  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """`kind` is that of the system call. `data` and `offset` are those of a write, `size` that of a truncation.

    `emptied`: a file that is opened loses what it held.
    """

    kind: str
    path: str
    target: str = ""
    writing: bool = False
    data: bytes = b""
    offset: int | None = None
    size: int = 0
    emptied: bool = False

    def __str__(self):
        return f"{self.kind} {self.path}" + (f" → {self.target}" if self.target else "")


class Watcher:
    """What a test does with the operations of a command."""

    def before(self, operation):
        """Raise `OSError` to let it fail."""

    def after(self, operation):
        """It has happened."""


@contextlib.contextmanager
def watched(root, watcher):
    """Show the operations below `root` to `watcher`. Not for two threads at once."""
    seam = _Seam(str(Path(root).resolve()), watcher)
    real = {name: getattr(os, name) for name in (*_BY_PATH, *_BY_DESCRIPTOR)}
    opens, flock = (io.open, builtins.open), fcntl.flock
    try:
        for name, function in real.items():
            wrap = seam.by_path if name in _BY_PATH else seam.by_descriptor
            setattr(os, name, wrap(name, function))
        io.open = builtins.open = seam.open_file
        fcntl.flock = seam.lock(flock)
        yield
    finally:
        for name, function in real.items():
            setattr(os, name, function)
        io.open, builtins.open = opens
        fcntl.flock = flock


class _Seam:
    def __init__(self, root, watcher):
        self._root, self._watcher, self._busy = root, watcher, False
        self._readlink, self._seek, self._open = os.readlink, os.lseek, io.open

    def by_path(self, name, real):
        def call(*arguments, **options):
            places = arguments[: _BY_PATH[name]]
            folder = options.get("dir_fd") or options.get("src_dir_fd")
            paths = [self._below(place, folder) for place in places]
            if paths[-1] is None and paths[0] is None:
                return real(*arguments, **options)
            flags = arguments[1] if name == "open" else 0
            operation = Operation(
                _KINDS.get(name, name), paths[0] or "", paths[1] or "" if len(paths) > 1 else "",
                writing=bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)),
                size=arguments[1] if name == "truncate" else 0,
                emptied=bool(flags & os.O_TRUNC),
            )  # fmt: skip
            return self._done(operation, real, arguments, options)

        return call

    def by_descriptor(self, name, real):
        def call(descriptor, *arguments, **options):
            path = self._of(descriptor)
            if path is None:
                return real(descriptor, *arguments, **options)
            kind = _KINDS.get(name, name)
            data = bytes(arguments[0]) if name in ("write", "pwrite") else b""
            offset = None
            if kind == "write":
                offset = arguments[1] if name == "pwrite" else self._offset(descriptor)
            size = arguments[0] if kind == "truncate" else 0
            operation = Operation(kind, path, writing=True, data=data, offset=offset, size=size)
            if name == "sendfile":  # its bytes are not seen, and need not be: copies are only made to be thrown away
                return self._done(operation, real, (descriptor, *arguments), options)
            return self._done(operation, real, (descriptor, *arguments), options, torn=self._torn(real, descriptor))

        return call

    def lock(self, real):
        def call(handle, flags):
            descriptor = handle if isinstance(handle, int) else handle.fileno()
            path = self._of(descriptor)
            if path is None:
                return real(handle, flags)
            return self._done(Operation("flock", path), real, (handle, flags), {})

        return call

    def open_file(self, file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True,
                  opener=None):  # fmt: skip
        """`open`, whose writes are seen one by one."""
        path = self._of(file) if isinstance(file, int) else self._below(file, None)
        if path is None or self._busy:
            return self._open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        writing = not set(mode).isdisjoint("wax+")
        made = {}

        def make():
            made["raw"] = _Raw(self, path, file, mode.replace("t", "").replace("b", ""), closefd, opener)

        if isinstance(file, int):
            make()
        else:
            self._done(Operation("open", path, writing=writing, emptied="w" in mode), make, (), {})
        raw = made["raw"]
        if buffering == 0:
            return raw
        size = io.DEFAULT_BUFFER_SIZE if buffering < 2 else buffering
        kind = io.BufferedRandom if "+" in mode else io.BufferedWriter if writing else io.BufferedReader
        buffered = kind(raw, size)
        if "b" in mode:
            return buffered
        text = io.TextIOWrapper(buffered, encoding, errors, newline)
        text.mode = mode
        return text

    def write(self, raw, path, data):
        """A write of a file object."""
        offset = raw.tell() if raw.seekable() else None
        operation = Operation("write", path, writing=True, data=bytes(data), offset=offset)

        def real(data):
            return io.FileIO.write(raw, data)

        return self._done(operation, real, (data,), {}, torn=lambda _data: real(operation.data[: len(data) // 2]))

    def _torn(self, real, descriptor):
        def write(data, *rest):
            return real(descriptor, bytes(data)[: len(data) // 2], *rest)

        return write

    def _done(self, operation, real, arguments, options, torn=None):
        if self._busy:
            return real(*arguments, **options)
        self._busy = True
        try:
            try:
                self._watcher.before(operation)
            except OSError:
                if operation.kind == "write" and torn is not None:  # a full disk takes the first half
                    torn(*arguments[1:] if len(arguments) > 1 else arguments)
                raise
            result = real(*arguments, **options)
            self._watcher.after(operation)
            return result
        finally:
            self._busy = False

    def _below(self, place, folder):
        """The path, if it is below the root."""
        if isinstance(place, int):
            return self._of(place)
        path = os.path.join(self._readlink(f"/proc/self/fd/{folder}") if folder else os.getcwd(), os.fspath(place))  # noqa: PTH109, PTH118
        path = os.path.normpath(path)
        return path if path == self._root or path.startswith(self._root + "/") else None

    def _of(self, descriptor):
        try:
            path = self._readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            return None
        return path if path.startswith(self._root + "/") or path == self._root else None

    def _offset(self, descriptor):
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND:
            return os.fstat(descriptor).st_size
        return self._seek(descriptor, 0, os.SEEK_CUR)


class _Raw(io.FileIO):
    def __init__(self, seam, path, file, mode, closefd, opener):
        self._seam, self._path = seam, path
        super().__init__(file, mode, closefd, opener)

    def write(self, data):
        return self._seam.write(self, self._path, data)
