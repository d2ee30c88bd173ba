"""A program that reaches no files but its own: `python -P -m stages.federate.confined PLACES PROGRAM …`.

Flower runs whatever app it is handed. Under Linux's Landlock its processes, and all that they start, read the system
and their own folder; a participant's data, keys and files are not there for them, nor other processes of its user.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls, the same on all of Linux's machines
_PATH_BENEATH, _NO_NEW_PRIVILEGES, _VERSION = 1, 38, 1
_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_READING = _EXECUTE | _READ | _LIST
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_KNOWN = {1: 13, 2: 14, 3: 15, 4: 15}  # by version, how many rights it knows; later ones know 16
_SCOPES = 3  # abstract sockets and signals
_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc", "/run/systemd/resolve", "/proc", "/sys")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


class _Rules(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """Of Landlock here; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(ctypes.CDLL(None).syscall(_CREATE, None, 0, _VERSION)))


def command(program: Sequence[str | Path], *, writable: Sequence[Path], readable: Sequence[Path]) -> list[str | Path]:
    """What starts the program so that it writes and reads these places, beside Python's and the system's own."""
    places = {
        "writable": [str(path.absolute()) for path in writable],
        "readable": [str(path.absolute()) for path in readable],
    }
    return [sys.executable, "-P", "-m", "stages.federate.confined", json.dumps(places), *program]


def confine(*, writable: Sequence[str], readable: Sequence[str]) -> None:
    """From now on, for this process and all that it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    known = version()
    all_rights = (1 << _KNOWN.get(known, 16)) - 1
    rules = _Rules(all_rights, 0, _SCOPES if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    ruleset = _checked(libc.syscall(_CREATE, ctypes.byref(rules), size, 0))
    python = {sys.prefix, sys.base_prefix, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    for path in (*_SYSTEM, *sorted(python), *readable):
        _allow(libc, ruleset, path, _READING & all_rights)
    for path in writable:
        _allow(libc, ruleset, path, all_rights & ~_EXECUTE)
    for path in _DEVICES:
        _allow(libc, ruleset, path, (_READ | _WRITE) & all_rights)
    _checked(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(libc.syscall(_RESTRICT, ruleset, 0))
    os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not Path(path).is_dir():
            rights &= _OF_FILES
        rule = _Beneath(rights, folder)
        _checked(libc.syscall(_ADD, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))
    finally:
        os.close(folder)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return result


def main() -> None:
    places, *program = sys.argv[1:]
    confine(**json.loads(places))
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
