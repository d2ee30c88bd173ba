"""`keygen`: a client's or the server's secret key, from the operating system, and the spend ledger beside it."""

from __future__ import annotations

from pathlib import Path

from artifacts.errors import UsageError
from artifacts.identity import keys
from artifacts.identity.keys import Key
from artifacts.ledgers import spend
from artifacts.places import is_leaving
from stages.execution.progress import Summary


def keygen(out: Path, *, force: bool = False) -> Summary:
    """Write 32 random bytes, mode 0600."""
    if is_leaving(out):
        raise UsageError(f"{out}: a key may not be in an outbox. Write it into private/.")
    if force or not out.exists():
        settle(out, keys.generate(), force=force)
    else:
        _keep(out)
    return {"out": str(out), "mode": "0600", "bytes": keys.SIZE, "spend_ledger": str(spend.beside(out))}


def settle(path: Path, key: Key, *, force: bool) -> None:
    """Write the key and enter it in its spend ledger: a rotated key goes on with what was spent under the old one.

    The ledger comes first: where it is damaged, the old key stays.
    """
    if not force and path.exists() and keys.read(path) != key:
        raise keys.taken(path)
    spend.open_for(spend.beside(path), key)
    keys.write(path, key, force=force)


def _keep(path: Path) -> None:
    """A key that nothing was charged to is the one that was just asked for, perhaps by a call that was interrupted."""
    found = keys.read(path)
    if spend.is_unused(spend.beside(path), found):
        keys.write(path, found)  # which says so, and makes sure that the disk has it
        return
    raise keys.taken(path)
