"""Who is who: each client's identity, and the roster of all of them that everybody keeps a copy of.

An identity is an Ed25519 key that HKDF makes from the client's key. Its public half is carried to the others once, by a
way that the server cannot bend (a call, a signed mail): with the roster nobody can add a client that does not exist.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts import atomic, keys, tensors_file
from artifacts.digests import is_sha256
from artifacts.errors import InputError, VerificationError
from artifacts.metadata import MetadataError, check_client_name
from artifacts.places import client_of
from artifacts.publish import prepare
from stages.progress import Summary
from stages.secagg.primitives import ForgeryError, check_signature, verify_key
from stages.spending import key_of

_IDENTITY, _ROSTER = "fedsynth.identity/1", "fedsynth.roster/1"
_LABEL = "secagg identity"


@dataclass(frozen=True)
class Roster:
    """Verify keys by client name."""

    path: Path
    clients: Mapping[str, bytes]

    def check(self, client: str, signature: bytes, statement: Mapping[str, Any], where: Path) -> None:
        """Refuse a signature that is not this client's."""
        if client not in self.clients:
            raise VerificationError(f"{where}: client {client!r} is not in the roster {self.path}. Leave it out.")
        try:
            check_signature(self.clients[client], signature, statement)
        except ForgeryError:
            raise VerificationError(
                f"{where}: the signature of client {client!r} is not by its key in {self.path}: forged, changed on the "
                "way, or of another round. Get the file again from the client."
            ) from None


def signing_key(key: keys.Key) -> bytes:
    """The secret half of the identity that belongs to a client's key."""
    return key.derive(_LABEL)


def identity(out: Path, *, key: Path | None = None, client: str | None = None, force: bool = False) -> Summary:
    """Write the public half of a client's identity, to be carried to the others once."""
    prepare(out, "public", force=force)
    name = client_of(out, client)
    public = verify_key(signing_key(keys.read(key_of(out, key)))).hex()
    _write(out, {"schema": _IDENTITY, "client": name, "verify_key": public}, force=force)
    return {"out": str(out), "client": name, "verify_key": public}


def roster(identities: Sequence[Path], out: Path, *, force: bool = False) -> Summary:
    """Write the roster of all clients from their identities."""
    prepare(out, "public", force=force)
    clients: dict[str, str] = {}
    for path in identities:
        fields = _read(path, _IDENTITY)
        name, public = fields.get("client"), fields.get("verify_key")
        if fields.keys() != {"schema", "client", "verify_key"} or not isinstance(name, str) or not is_sha256(public):
            raise InputError(f"{path} is not an identity as `fedsynth secagg identity` writes it. Get it again.")
        _check_new(path, name, str(public), clients)
        clients[name] = str(public)
    _write(out, {"schema": _ROSTER, "clients": clients}, force=force)
    return {"out": str(out), "clients": sorted(clients)}


def read_roster(path: Path) -> Roster:
    fields = _read(path, _ROSTER)
    found = fields.get("clients")
    if fields.keys() != {"schema", "clients"} or not isinstance(found, dict):
        raise InputError(f"{path} is not a roster as `fedsynth secagg roster` writes it. Get it again.")
    clients: dict[str, str] = {}
    for name, public in found.items():
        if not is_sha256(public):
            raise InputError(f"{path}: the verify key of {name!r} is not 64 hexadecimal digits. Get it again.")
        _check_new(path, name, public, clients)
        clients[name] = public
    return Roster(path, {name: bytes.fromhex(public) for name, public in clients.items()})


def _check_new(path: Path, name: str, public: str, clients: Mapping[str, str]) -> None:
    try:
        check_client_name(name)
    except MetadataError as error:
        raise InputError(f"{path}: {error}.") from None
    if name in clients:
        raise InputError(f"{path}: client {name!r} is in the roster already. Each stands there once.")
    twin = next((other for other, known in clients.items() if known == public), None)
    if twin is not None:
        raise InputError(f"{path}: {name!r} and {twin!r} have the same key: one client would count twice.")


def _write(out: Path, fields: Mapping[str, Any], *, force: bool) -> None:
    text = json.dumps(fields, indent=2, sort_keys=True)
    atomic.write(out, [text.encode() + b"\n"], force=force)


def _read(path: Path, schema: str) -> dict[str, Any]:
    try:
        fields = json.loads(path.read_bytes())
    except OSError as error:
        raise tensors_file.unreadable(path, error) from error
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or fields.get("schema") != schema:
        raise InputError(f"{path} is not a {schema} file. Give the one that fedsynth secagg wrote.")
    return fields
