"""What is for its owner alone: made so that nobody else on the machine can read it, and checked when it is used.

Private is what is in a `private/`, `pending/` or `simulation/` folder, or is in the custody of a client or the
server, wherever it is. What leaves and what is public follows the umask.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from artifacts.errors import InputError
from artifacts.kinds import Custody
from artifacts.places import is_private_folder

_OTHERS = 0o077


def file_mode(path: Path, custody: Custody) -> int:
    """The permissions of a file that is made at `path`."""
    kept = custody in ("private", "server") or is_private_folder(path.parent)
    return 0o600 if kept else 0o644


def folder_mode(folder: Path) -> int:
    """The permissions of a folder that is made there."""
    return 0o700 if is_private_folder(folder) else 0o777


def is_open_to_others(status: os.stat_result) -> bool:
    return bool(status.st_mode & _OTHERS)


def refuse_shared(status: os.stat_result, path: Path, what: str) -> None:
    """Refuse a secret file that others could have read or changed."""
    if is_open_to_others(status):
        mode = stat.S_IMODE(status.st_mode)
        raise InputError(f"{what} {path} can be read by others (mode {mode:04o}). Run: chmod 600 {path}")


def refuse_foreign(status: os.stat_result, path: Path, what: str) -> None:
    """Refuse to work on a file of another user, root's privilege or not: what is made beside it would be ours."""
    me = os.geteuid()
    if status.st_uid != me:
        raise InputError(
            f"{what} {path} belongs to {_user(status.st_uid)}, and this is {_user(me)}. Run as its owner, or make it "
            f"yours: chown {me} {path}"
        )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
