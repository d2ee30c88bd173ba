"""Who is who: the identity of each participant, and the roster of all of them that everybody keeps a copy of.

An identity is a set of keys that HKDF makes from a participant's key, one for each purpose, so that no signature made
for one can pass for another: Ed25519 for signatures, X25519 for what is sealed to the participant. The public halves
are carried to the others once, by a way that the server cannot bend (a call, a signed mail): with the roster nobody can
add a client that does not exist.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from artifacts import limits
from artifacts.digests import canonical_json, is_sha256
from artifacts.errors import FedsynthError, InputError, VerificationError
from artifacts.formats.plain_data import read_json
from artifacts.identity.keys import Key
from artifacts.kinds import KINDS
from artifacts.metadata import MAX_ROUND, Metadata, MetadataError, check_client_name
from artifacts.places import SERVER, Place
from artifacts.writing import atomic

Purpose = Literal["envelopes", "secagg", "parcels", "sealing"]
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
_LABELS: dict[Purpose, str] = {
    "envelopes": "envelope identity", "secagg": "secagg identity", "parcels": "parcel identity",
    "sealing": "sealing identity",
}  # fmt: skip
# Who signs what: the server takes no part in secure aggregation with a key of its own.
_OF_SERVER: tuple[Purpose, ...] = ("envelopes", "parcels", "sealing")
# Identities of earlier versions lack these two: their rosters still count for everything else.
_LATER: frozenset[Purpose] = frozenset({"parcels", "sealing"})
_IDENTITY, _ROSTER = "fedsynth.identity/1", "fedsynth.roster/1"
_FEDERATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

VerifyKeys = Mapping[Purpose, bytes]


@dataclass(frozen=True)
class SigningRule:
    """What must be signed: files of these kinds, in rounds from the first to the last; those without a round too."""

    kinds: tuple[str, ...]
    rounds: tuple[int, int] = (0, MAX_ROUND)

    def asks_for(self, metadata: Metadata) -> bool:
        first, last = self.rounds
        return metadata.kind in self.kinds and (metadata.round is None or first <= metadata.round <= last)

    def to_json(self) -> dict[str, Any]:
        return {"kinds": list(self.kinds), "rounds": list(self.rounds)}

    @classmethod
    def from_json(cls, path: Path, fields: Any) -> SigningRule:
        given: dict[str, Any] = fields if isinstance(fields, dict) else {}
        kinds, rounds = given.get("kinds"), given.get("rounds")
        known = {kind.name for kind in KINDS.values() if kind.travels and not kind.is_signed}
        if not isinstance(kinds, list) or not kinds or kinds != sorted(known & set(map(str, kinds))):
            raise InputError(f"{path}: what must be signed is some of {', '.join(sorted(known))}, in order.")
        whole = isinstance(rounds, list) and len(rounds) == 2 and all(type(number) is int for number in rounds)
        first, last = rounds if whole and isinstance(rounds, list) else (1, 0)
        if not 0 <= first <= last <= MAX_ROUND or given.keys() != {"kinds", "rounds"}:
            raise InputError(f"{path}: rounds in which files must be signed are a first and a last one.")
        return cls(tuple(kinds), (first, last))


@dataclass(frozen=True)
class Roster:
    """Verify keys by purpose, of each client by its name, and of the server if it signs anything.

    `federation` is what signatures are bound to: it tells this federation from every other.
    """

    path: Path
    federation: str
    clients: Mapping[str, VerifyKeys]
    server: VerifyKeys | None
    expires: str | None = None  # the last day on which it counts, YYYY-MM-DD
    signing: SigningRule | None = None

    @property
    def has_expired(self) -> bool:
        return self.expires is not None and datetime.datetime.now(datetime.UTC).date().isoformat() > self.expires

    def refuse_expired(self) -> None:
        """For one who signs or relies on a signature now."""
        if self.has_expired:
            raise VerificationError(f"{self.path} expired on {self.expires}: nothing is signed or accepted by it.")

    @property
    def fingerprint(self) -> str:
        """A digest of everything in it: who has compared it once with the others knows whose keys these are."""
        everybody = {name: _spelt(keys) for name, keys in self.clients.items()}
        server = None if self.server is None else _spelt(self.server)
        fields = {"federation": self.federation, "clients": everybody, SERVER: server, **_terms(self)}
        return hashlib.sha256(canonical_json(fields).encode()).hexdigest()

    def of(self, name: str, purpose: Purpose) -> bytes | None:
        """The public key of a client, or of the server by its name; None for a stranger, or if it has none."""
        known = self.server if name == SERVER else self.clients.get(name)
        return None if known is None else known.get(purpose)


def _terms(roster: Roster) -> dict[str, Any]:
    """What it asks of signatures, where it asks for anything."""
    asked = {"expires": roster.expires, "signing": roster.signing and roster.signing.to_json()}
    return {name: value for name, value in asked.items() if value is not None}


def _spelt(keys: VerifyKeys) -> dict[str, str]:
    return {str(purpose): public.hex() for purpose, public in keys.items()}


def signing_key(key: Key, purpose: Purpose) -> bytes:
    """The secret half of an identity, for this purpose: of a signature, or of what is sealed to its owner."""
    return key.derive(_LABELS[purpose])


def public_half(key: Key, purpose: Purpose) -> bytes:
    """What a roster says of the holder of this key, for this purpose."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    secret = signing_key(key, purpose)
    if purpose == "sealing":
        return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    return verify_key(secret)


def verify_key(secret: bytes) -> bytes:
    """The public half of a signing key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def write_identity(out: Path, name: str, key: Key, *, force: bool) -> dict[str, str]:
    """Write the public halves of the identity that belongs to `key`."""
    purposes = _OF_SERVER if name == SERVER else PURPOSES
    public = {str(purpose): public_half(key, purpose).hex() for purpose in purposes}
    _write(out, {"schema": _IDENTITY, "name": name, "verify_keys": public}, force=force)
    return public


def is_identity_in(roster: Roster, path: Path) -> bool:
    """Whether a file is, byte for byte, the identity that a participant of the roster gave for it."""
    for name, known in ({SERVER: roster.server} | dict(roster.clients)).items():
        if known is not None:
            wanted = _text({"schema": _IDENTITY, "name": name, "verify_keys": _spelt(known)})
            if path.stat().st_size == len(wanted) and path.read_bytes() == wanted:
                return True
    return False


def write_roster(
    out: Path,
    identities: Sequence[Path],
    federation: str | None,
    *,
    expires: str | None = None,
    signing: SigningRule | None = None,
    force: bool,
) -> Roster:
    """Write the roster of all participants from their identities.

    By default the federation has an id that no other has, so that what was signed in one counts in no other with the
    same keys. Anyone who adds a client later says the old one.
    """
    found: dict[str, dict[str, str]] = {}
    owners: dict[str, str] = {}
    for path in identities:
        identity = _read(path, _IDENTITY)
        if identity.keys() != {"schema", "name", "verify_keys"}:
            raise InputError(f"{path} is not an identity as `fedsynth identity` writes it. Get it again.")
        _add(path, identity["name"], identity["verify_keys"], found, owners)
    server = found.pop(SERVER, None)
    fields: dict[str, Any] = {"schema": _ROSTER, "clients": found}
    fields |= {} if server is None else {SERVER: server}
    fields |= {} if expires is None else {"expires": expires}
    fields |= {} if signing is None else {"signing": signing.to_json()}
    fields["federation"] = federation or (None if force else _same(out, fields)) or secrets.token_hex(16)
    roster = _parse(out, fields)
    _write(out, fields, force=force)
    return roster


def _same(path: Path, fields: Mapping[str, Any]) -> str | None:
    """The id in a roster that says the same otherwise: to write it again changes nothing."""
    try:
        found = _read(path, _ROSTER)
    except FedsynthError:
        return None
    federation = found.pop("federation", None)
    return federation if found == fields and isinstance(federation, str) else None


def read_roster(path: Path) -> Roster:
    """Only as `write_roster` writes it, byte for byte: what two readers could take for two things is refused."""
    fields = _read(path, _ROSTER)
    found = _parse(path, fields)
    if limits.read_bytes(path, limits.ROSTER) != _text(fields):
        raise InputError(f"{path} is not a roster as `fedsynth roster` writes it. Get it again.")
    return found


def federation_of(place: Place) -> str:
    """The id of the federation that a participant is in, by the roster of its run folder or home; else empty."""
    return read_roster(place.roster).federation if os.path.lexists(place.roster) else ""


def _parse(path: Path, fields: Mapping[str, Any]) -> Roster:
    clients, federation = fields.get("clients"), fields.get("federation")
    optional = {SERVER, "expires", "signing"}
    if fields.keys() - optional != {"schema", "federation", "clients"} or not isinstance(clients, dict):
        raise InputError(f"{path} is not a roster as `fedsynth roster` writes it. Get it again.")
    if not isinstance(federation, str) or not _FEDERATION.fullmatch(federation):
        raise InputError(
            f"{path}: the federation {federation!r} must be 1 to 64 letters, digits, '.', '-' or '_', beginning with a "
            "letter or digit."
        )
    found: dict[str, dict[str, str]] = {}
    owners: dict[str, str] = {}
    for name, keys in clients.items():
        _check_client(path, name)
        _add(path, name, keys, found, owners)
    if SERVER in fields:
        _add(path, SERVER, fields[SERVER], found, owners)
    everybody: dict[str, VerifyKeys] = {
        name: {purpose: bytes.fromhex(keys[purpose]) for purpose in PURPOSES if purpose in keys}
        for name, keys in found.items()
    }
    server = everybody.pop(SERVER, None)
    signing = SigningRule.from_json(path, fields["signing"]) if "signing" in fields else None
    return Roster(path, federation, everybody, server, _date(path, fields.get("expires")), signing)


def _date(path: Path, text: Any) -> str | None:
    try:
        if text is None or datetime.date.fromisoformat(text).isoformat() == text:
            return text  # type: ignore[no-any-return]
    except (ValueError, TypeError):
        pass
    raise InputError(f"{path}: it expires on {text!r}, which is no day as YYYY-MM-DD.")


def _add(path: Path, name: Any, keys: Any, found: dict[str, dict[str, str]], owners: dict[str, str]) -> None:
    """A participant whose keys are whole and nobody else's. `owners`: whose each key is."""
    if name != SERVER:
        _check_client(path, name)
    wanted = _OF_SERVER if name == SERVER else PURPOSES
    whole = isinstance(keys, dict) and set(wanted) - _LATER <= keys.keys() <= set(wanted)
    if not whole or not all(is_sha256(public) for public in keys.values()):
        raise InputError(
            f"{path}: the verify keys of {name!r} must be 64 hexadecimal digits for each of {', '.join(wanted)}. "
            "Get it again."
        )
    if name in found:
        raise InputError(f"{path}: {name!r} is in the roster already. Each is there once.")
    for public in keys.values():
        if owners.setdefault(public, name) != name:
            raise InputError(
                f"{path}: {name!r} and {owners[public]!r} have the same key: one client would count twice."
            )
    found[name] = dict(keys)


def _check_client(path: Path, name: Any) -> None:
    try:
        check_client_name(str(name))
    except MetadataError as error:
        raise InputError(f"{path}: {error}.") from None


def _write(out: Path, fields: Mapping[str, Any], *, force: bool) -> None:
    atomic.write(out, [_text(fields)], force=force)


def _text(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, indent=2, sort_keys=True).encode() + b"\n"


def _read(path: Path, schema: str) -> dict[str, Any]:
    try:
        fields = read_json(path, limits.ROSTER)
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise InputError(f"cannot read {path}: {reason}. Check the path.") from error
    except ValueError as error:
        raise InputError(f"{path} is not a {schema} file: {error}. Give the one that fedsynth wrote.") from error
    if not isinstance(fields, dict) or fields.get("schema") != schema:
        raise InputError(f"{path} is not a {schema} file. Give the one that fedsynth wrote.")
    return fields
