"""A client's secret key, and what is derived from it.

32 bytes, mode 0600. A real client takes them from the operating system (`fedsynth keygen`). A simulation may
derive them from its seed, so that whole runs can be compared byte for byte; such a key begins with a mark, so
that every file made with it says «simulation» and cannot forget to. (A random key begins so once in 2⁶⁴.)
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from artifacts.digests import canonical_json
from artifacts.errors import InputError
from artifacts.identity.owner import refuse_foreign, refuse_shared
from artifacts.writing import atomic

SIZE = 32
_SIMULATION_MARK = b"SIMULATE"


@dataclass(frozen=True)
class Key:
    """Never printed: `repr` hides the bytes."""

    secret: bytes

    def __repr__(self) -> str:
        return "Key(simulation)" if self.simulation else "Key(…)"

    @property
    def simulation(self) -> bool:
        return self.secret.startswith(_SIMULATION_MARK)

    @cache  # noqa: B019  (a process holds one key or a few, and derives from them all the time)
    def derive(self, label: str) -> bytes:
        """HKDF-SHA256 with its own label for each purpose, so that no two purposes share a key."""
        # cryptography is imported where a key is used: `--help` and `inspect` never need it.
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        info = f"fedsynth/1 {label}".encode()
        return HKDF(algorithm=SHA256(), length=SIZE, salt=None, info=info).derive(self.secret)


def generate() -> Key:
    """A fresh key from the operating system."""
    while True:
        key = Key(secrets.token_bytes(SIZE))
        if not key.simulation:
            return key


def simulated(seed: int, owner: str) -> Key:
    """The key of `owner` in the simulation with this root seed."""
    root = Key(canonical_json({"seed": seed}).encode())
    return Key(_SIMULATION_MARK + root.derive(f"simulation key {owner}")[len(_SIMULATION_MARK) :])


def write(path: Path, key: Key, *, force: bool = False) -> None:
    try:
        atomic.write(path, [key.secret], force=force, custody="private")
    except atomic.ExistsError:
        raise taken(path) from None


def taken(path: Path) -> InputError:
    """Never by --force: who loses a key loses what was made with it."""
    return InputError(
        f"{path} already holds a key, which was left as it is. Keep it: under another one nothing that was sent can be "
        "replayed, the roster is void, and the same noise is charged anew. For a new participant choose another --out."
    )


def read(path: Path) -> Key:
    """Read a key, refusing one that others could have read."""
    try:
        # Without O_NONBLOCK a pipe in the key's place would be waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise InputError(f"no key at {path}. Make one with: fedsynth keygen -o {path}") from None
    except OSError as error:
        raise InputError(f"cannot read the key {path}: {error.strerror}.") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"the key {path} is not a regular file.")
        refuse_shared(status, path, "the key")
        if os.geteuid():  # an auditor may be root, on a disk of the client's
            refuse_foreign(status, path, "the key")
        secret = os.read(descriptor, SIZE + 1)
    except OSError as error:
        raise InputError(f"cannot read the key {path}: {error.strerror}.") from error
    finally:
        os.close(descriptor)
    if len(secret) != SIZE:
        found_size = f"{len(secret)} bytes" if len(secret) < SIZE else f"more than {SIZE} bytes"
        raise InputError(f"the key {path} must hold exactly {SIZE} bytes, found {found_size}.")
    return Key(secret)


def hmac_sha256(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")
