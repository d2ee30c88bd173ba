"""`keygen`: a client's or the server's secret key, from the operating system, and the spend ledger beside it."""

from __future__ import annotations

from pathlib import Path

from artifacts import atomic, keys, spend
from artifacts.errors import UsageError
from artifacts.keys import Key
from artifacts.places import is_leaving
from stages.progress import Summary


def keygen(out: Path, *, force: bool = False) -> Summary:
    """Write 32 random bytes, mode 0600."""
    if is_leaving(out):
        raise UsageError(f"{out}: a key never stands in an outbox. Write it into private/.")
    settle(out, keys.generate(), force=force)
    return {"out": str(out), "mode": "0600", "bytes": keys.SIZE, "spend_ledger": str(spend.beside(out))}


def settle(path: Path, key: Key, *, force: bool) -> None:
    """Write the key and enter it in its spend ledger: a rotated key goes on with what was spent under the old one.

    The ledger comes first: where it is damaged, the old key stays.
    """
    atomic.refuse_existing(path, force=force)
    spend.open_for(spend.beside(path), key)
    keys.write(path, key, force=force)
