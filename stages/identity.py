"""`identity` and `roster`: the public half of a participant's signing keys, and the list of everybody's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from artifacts.identity import keys
from artifacts.identity.roster import write_identity, write_roster
from artifacts.places import SERVER, Place, client_of
from artifacts.publish import prepare
from stages.charging.spending import key_of
from stages.execution.progress import Summary


def identity(out: Path, *, key: Path | None = None, client: str | None = None, force: bool = False) -> Summary:
    """Write a client's or the server's identity, to be carried to the others once."""
    prepare(out, "public")
    path = key_of(out, key)
    place = Place.of(out)
    of_server = client is None and place is not None and place.is_server
    name = SERVER if of_server else client_of(out, client)
    public = write_identity(out, name, keys.read(path), force=force)
    return {"out": str(out), "name": name, "verify_keys": public}


def roster(identities: Sequence[Path], out: Path, *, federation: str | None = None, force: bool = False) -> Summary:
    """Write the roster of all participants from their identities."""
    prepare(out, "public")
    written = write_roster(out, identities, federation, force=force)
    everybody = sorted(written.clients) + ([SERVER] if written.server else [])
    return {
        "out": str(out),
        "federation": written.federation,
        "participants": everybody,
        "fingerprint": written.fingerprint,
    }
