"""`keygen`: a client's or the server's secret key, from the operating system."""

from __future__ import annotations

from pathlib import Path

from artifacts import keys
from artifacts.errors import UsageError
from artifacts.places import in_outbox
from stages.progress import Summary


def keygen(out: Path, *, force: bool = False) -> Summary:
    """Write 32 random bytes, mode 0600."""
    if in_outbox(out):
        raise UsageError(f"{out}: a key never stands in an outbox. Write it into private/.")
    keys.write(out, keys.generate(), force=force)
    return {"out": str(out), "mode": "0600", "bytes": keys.SIZE}
