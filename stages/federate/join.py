"""`federate join`: a participant's home for the terms that it has read: data, key and identity, each made once."""

from __future__ import annotations

from pathlib import Path

from artifacts.errors import UsageError
from artifacts.identity import keys
from artifacts.identity.roster import write_identity
from artifacts.places import SERVER, RunFolder
from artifacts.writing import atomic
from stages.execution.progress import Summary
from stages.federate.terms import FILE, read_terms
from stages.ingest import Reading, ingest
from stages.keygen import keygen
from stages.run_folder.files import ROSTER, TEST, data_file

IDENTITY = "identity.json"


def join(terms: Path, home: Path, *, client: str | None, data: str, like: Path | None = None) -> Summary:
    """Make the home of a client, or without a name that of the server, whose data is the public test set.

    Called again it makes what is missing. The identity in it is to be carried to the one who writes the roster.
    """
    agreed = read_terms(terms)
    if client is not None and client not in agreed.participants:
        raise UsageError(f"--client {client}: not in {terms}, whose clients are {', '.join(agreed.participants)}.")
    if client is not None and like is None:
        raise UsageError("--like: give the federation's public test set, which fixes classes and image size.")
    folder = RunFolder(home)
    place = folder.server if client is None else folder.client(client)
    atomic.write(home / FILE, [terms.read_bytes()], force=False)
    out = home / (TEST if client is None else data_file(client))
    if out.exists():
        atomic.settle(out)
    else:
        ingest(data, out, reading=Reading(), like=like, client=client)
    if place.key.exists():
        atomic.settle(place.key)  # a copy of the key beside it would be one too many
    else:
        keygen(place.key)
    atomic.make_folder((home / ROSTER).parent)
    write_identity(home / IDENTITY, client or SERVER, keys.read(place.key), force=False)
    return {
        "home": str(home), "party": client or SERVER, "terms_sha256": agreed.digest, "data": str(out),
        "identity": str(home / IDENTITY), "roster_goes_to": str(home / ROSTER),
    }  # fmt: skip
