"""`identity` and `roster`: the public half of a participant's signing keys, and the list of everybody's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from artifacts.errors import UsageError
from artifacts.identity import keys
from artifacts.identity.roster import SigningRule, write_identity, write_roster
from artifacts.metadata import MAX_ROUND
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


def roster(
    identities: Sequence[Path],
    out: Path,
    *,
    federation: str | None = None,
    expires: str | None = None,
    signed: Sequence[str] = (),
    rounds: tuple[int, int] | None = None,
    force: bool = False,
) -> Summary:
    """Write the roster of all participants from their identities.

    `signed` are the kinds of files that must be signed, in `rounds` from the first to the last, or in all.
    """
    prepare(out, "public")
    if rounds is not None and not signed:
        raise UsageError("--rounds says in which rounds files must be signed: give their kinds with --signed.")
    rule = SigningRule(tuple(sorted(set(signed))), rounds or (0, MAX_ROUND)) if signed else None
    written = write_roster(out, identities, federation, expires=expires, signing=rule, force=force)
    everybody = sorted(written.clients) + ([SERVER] if written.server else [])
    return {
        "out": str(out),
        "federation": written.federation,
        "participants": everybody,
        "fingerprint": written.fingerprint,
        **({"expires": expires} if expires is not None else {}),
        **({"signed": list(rule.kinds), "rounds": list(rule.rounds)} if rule is not None else {}),
    }
