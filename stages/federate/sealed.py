"""A sealed parcel: a message encrypted to its one reader, signed by its sender, bound to where and when it belongs.

A line with the format's name; a line with the address and a fresh X25519 key, as canonical JSON; the padded message in
chunks under ChaCha20-Poly1305; an Ed25519 signature of all that. X25519 and HKDF-SHA256 agree on the key, which is used
for this parcel alone. The second line is associated data of every chunk, so that no word of the address can be changed.
Who carries parcels sees addresses and sizes, and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

from artifacts.digests import canonical_json, is_sha256
from artifacts.errors import InputError
from artifacts.formats.plain_data import parse_json
from artifacts.identity.keys import Key
from artifacts.identity.roster import Roster, signing_key
from stages.federate.parcels import ParcelError

_FORMAT = b"fedsynth.sealed/1\n"
_LABEL = b"fedsynth/1 sealed parcel\0"
_LINE_BYTES = 1024  # of every address: a long name shows in no size
_LENGTH_BYTES, _SIGNATURE_BYTES, _TAG_BYTES, _NONCE_BYTES = 8, 64, 16, 12
_CHUNK = 2**20
_STEP = 4096  # sizes are multiples of it


@dataclass(frozen=True)
class Address:
    """What a parcel is bound to. `exchange` counts the server's parcels to everybody; `answers` is the digest of the
    sealed parcel that this one answers, empty where it is a task.
    """

    federation: str
    terms: str
    round: int
    exchange: int
    sender: str
    recipient: str
    answers: str = ""


def padded_size(length: int) -> int:
    """The smallest size of a parcel that has room for a message of this length."""
    return -(-(length + _LENGTH_BYTES) // _STEP) * _STEP


def seal(message: bytes, address: Address, *, size: int, key: Key, roster: Roster) -> bytes:
    """`size`: to which the message is padded, the same for everybody. `key` is the sender's own."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    if padded_size(len(message)) > size:
        raise ValueError(f"a message of {len(message)} bytes does not fit into {size}")
    public = roster.of(address.recipient, "sealing")
    if public is None:
        raise InputError(
            f"{roster.path} has no sealing key of {address.recipient!r}. Write its identity with this version of "
            "fedsynth, and the roster anew."
        )
    fresh = X25519PrivateKey.generate()
    line = _line(address, fresh.public_key().public_bytes_raw())
    cipher = ChaCha20Poly1305(_shared(fresh, public, line, public))
    digest = hashlib.sha256(_FORMAT + line)
    parts = [_FORMAT, line]
    for nonce, start, end in _chunks(size):
        parts.append(cipher.encrypt(nonce, _padded(message, start, end), line))
        digest.update(parts[-1])
    signer = Ed25519PrivateKey.from_private_bytes(signing_key(key, "parcels"))
    return b"".join([*parts, signer.sign(_LABEL + digest.digest())])


def _padded(message: bytes, start: int, end: int) -> bytes:
    """A piece of: the length of the message, the message, zeros. Large messages are not copied for it."""
    before = len(message).to_bytes(_LENGTH_BYTES)[start:end]
    inside = message[max(0, start - _LENGTH_BYTES) : max(0, end - _LENGTH_BYTES)]
    return (before + inside).ljust(end - start, b"\0")


def address_of(data: bytes) -> Address:
    """What a parcel says of itself, before anything is checked. `ParcelError` if it is none."""
    return _parsed(data)[0]


def unseal(data: bytes, *, key: Key, roster: Roster) -> bytes:
    """The message, once the signature is found to be that of the sender in the address. `key` is the reader's own.

    Whether the address is the one that was waited for is asked before, by `check_address`.
    """
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    address, fresh, line = _parsed(data)
    known, own = roster.of(address.sender, "parcels"), roster.of(address.recipient, "sealing")
    if known is None or own is None:
        missing = address.sender if known is None else address.recipient
        raise ParcelError(f"{roster.path} has no key for parcels of {missing!r}.")
    try:
        Ed25519PublicKey.from_public_bytes(known).verify(
            data[-_SIGNATURE_BYTES:], _statement(memoryview(data)[:-_SIGNATURE_BYTES])
        )
    except (InvalidSignature, ValueError):
        raise ParcelError(
            f"it is not signed by {address.sender!r}: changed or cut on its way, or sent by another in that name."
        ) from None
    body = memoryview(data)[len(_FORMAT) + len(line) : -_SIGNATURE_BYTES]
    try:
        secret = X25519PrivateKey.from_private_bytes(signing_key(key, "sealing"))
        cipher = ChaCha20Poly1305(_shared(secret, fresh, line, own))
        size = len(body) - _TAG_BYTES * max(1, -(-len(body) // (_CHUNK + _TAG_BYTES)))
        texts, left, empty = [], 0, True
        for number, (nonce, start, end) in enumerate(_chunks(size)):
            piece = body[start + number * _TAG_BYTES : end + (number + 1) * _TAG_BYTES]
            text = cipher.decrypt(nonce, piece, line)
            if not number:
                left, text = int.from_bytes(text[:_LENGTH_BYTES]), text[_LENGTH_BYTES:]
            texts.append(text[:left])
            empty = empty and not text[left:].strip(b"\0")  # else something travels that nobody unpacks
            left -= len(texts[-1])
    except (InvalidTag, ValueError):
        raise ParcelError(f"it cannot be opened with the key of {address.recipient!r}.") from None
    if left:
        raise ParcelError("it says that it is longer than it is.")
    if not empty:
        raise ParcelError("there is something behind its message, where zeros belong.")
    return b"".join(texts)


def check_address(found: Address, expected: Address) -> None:
    """Refuse a parcel that is foreign, re-addressed, late, replayed, or in another's name: each in a sentence."""
    if found.federation != expected.federation:
        raise ParcelError(f"it is of another federation, {found.federation!r}; this one is {expected.federation!r}.")
    if found.terms != expected.terms:
        raise ParcelError(
            f"it was sent under other terms, {found.terms[:12]}; those here are {expected.terms[:12]}. Compare them."
        )
    if found.recipient != expected.recipient:
        raise ParcelError(f"it is addressed to {found.recipient!r}, not to {expected.recipient!r}.")
    if found.sender != expected.sender:
        raise ParcelError(f"it is from {found.sender!r}; one from {expected.sender!r} is waited for.")
    if (found.exchange, found.round) != (expected.exchange, expected.round):
        when = "late or replayed" if found.exchange < expected.exchange else "not of this exchange"
        raise ParcelError(
            f"it is {when}: of exchange {found.exchange}, round {found.round}; waited for is exchange "
            f"{expected.exchange}, round {expected.round}."
        )
    if found.answers != expected.answers:
        raise ParcelError("it answers another parcel than the one that was sent.")


def _parsed(data: bytes) -> tuple[Address, bytes, bytes]:
    """The address, the sender's fresh key, and the line that both are in."""
    end = len(_FORMAT) + _LINE_BYTES
    if not data.startswith(_FORMAT) or len(data) < end + _LENGTH_BYTES + _TAG_BYTES + _SIGNATURE_BYTES:
        raise ParcelError("it is no sealed parcel, or cut off.")
    line = data[len(_FORMAT) : end]
    try:
        said = parse_json(line.rstrip(), canonical=True)
        fresh = said.pop("key")
        kinds = {field.name: int if field.name in ("round", "exchange") else str for field in fields(Address)}
        fits = said.keys() == kinds.keys() and all(type(said[name]) is kind for name, kind in kinds.items())
        address = Address(**said) if fits else None
        if address is None or not is_sha256(fresh) or _line(address, bytes.fromhex(fresh)) != line:
            raise ValueError("another layout")
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ParcelError("its address is not laid out as agreed.") from None
    return address, bytes.fromhex(fresh), line


def _line(address: Address, fresh: bytes) -> bytes:
    line = canonical_json({**asdict(address), "key": fresh.hex()}).encode()
    return line.ljust(_LINE_BYTES - 1) + b"\n"


def _shared(secret: Any, public: bytes, line: bytes, reader: bytes) -> bytes:
    """The key of one parcel. The label has the address, both public keys included."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    agreed = secret.exchange(X25519PublicKey.from_public_bytes(public))
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=_LABEL + reader + line).derive(agreed)


def _chunks(size: int) -> Iterator[tuple[bytes, int, int]]:
    """Nonce, begin and end of each chunk. The last one's nonce says so: a parcel cannot be cut between two."""
    count = max(1, -(-size // _CHUNK))
    for number in range(count):
        nonce = number.to_bytes(_NONCE_BYTES - 1) + bytes([number == count - 1])
        yield nonce, number * _CHUNK, min(size, (number + 1) * _CHUNK)


def _statement(text: bytes | memoryview) -> bytes:
    return _LABEL + hashlib.sha256(text).digest()
