"""The cryptography of secure aggregation, all of it the `cryptography` library's, each key with one purpose.

X25519 (RFC 7748) and HKDF-SHA256 agree on keys, ChaCha20-Poly1305 (RFC 8439) encrypts shares, ChaCha20 expands masks,
Ed25519 (RFC 8032) signs. Whatever a key is used for is in its HKDF label, with the session, so that nothing from
one round, direction or pair fits another. Secrets come from the operating system.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

KEY_BYTES = 32
SIGNATURE_BYTES = 64
_NONCE_BYTES = 12
SEAL_BYTES = _NONCE_BYTES + 16  # by how much a ciphertext is longer than its text
_PREFIX = b"fedsynth/1 secagg "


class ForgeryError(ValueError):
    """A signature or a ciphertext that its author did not make."""


@dataclass(frozen=True)
class KeyPair:
    """An X25519 key pair of one round; `repr` hides the secret half."""

    secret: bytes
    public: bytes

    def __repr__(self) -> str:
        return f"KeyPair({self.public.hex()[:8]}…)"


def new_pair() -> KeyPair:
    """Fresh from the operating system."""
    return pair_of(secrets.token_bytes(KEY_BYTES))


def pair_of(secret: bytes) -> KeyPair:
    return KeyPair(secret, _private(secret).public_key().public_bytes_raw())


@lru_cache(maxsize=1)
def _private(secret: bytes) -> Any:
    """The library makes the public half of each secret that it reads: once for all peers, not once for each."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(secret)


def agreed(secret: bytes, public: bytes, purpose: str, context: Mapping[str, Any]) -> bytes:
    """The key that both ends of a pair can compute and nobody else. `ForgeryError` for a degenerate public key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    try:
        shared = _private(secret).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise ForgeryError("a public key is of small order") from error
    return expanded(shared, purpose, context)


def check_public(public: bytes) -> None:
    """Raise `ForgeryError` for a point of small order: whatever is agreed with it, everybody knows.

    Every X25519 secret is a multiple of 8, so any of them takes such a point to zero, which the library refuses.
    """
    agreed(bytes(KEY_BYTES), public, "check", {})


def expanded(secret: bytes, purpose: str, context: Mapping[str, Any]) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=_labelled(purpose, context)).derive(secret)


def seal(text: bytes, secret: bytes, public: bytes, context: Mapping[str, Any]) -> bytes:
    """Encrypt for the holder of `public`; `context` names session, sender and receiver, and is authenticated."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    nonce = secrets.token_bytes(_NONCE_BYTES)
    key = agreed(secret, public, "share", context)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, text, _labelled("share", context))


def unseal(data: bytes, secret: bytes, public: bytes, context: Mapping[str, Any]) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    key = agreed(secret, public, "share", context)
    try:
        return ChaCha20Poly1305(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _labelled("share", context))
    except (InvalidTag, ValueError) as error:
        raise ForgeryError("the ciphertext is not its sender's") from error


def commitment(seed: bytes, context: Mapping[str, Any]) -> bytes:
    """A digest by which the server knows a recovered seed. The seed has 256 random bits: the digest tells nothing."""
    return hashlib.sha256(_labelled("seed commitment", context) + seed).digest()


def verify_key(identity: bytes) -> bytes:
    """The public half of a client's signing key."""
    return _signer(identity).public_key().public_bytes_raw()  # type: ignore[no-any-return]


def sign(identity: bytes, statement: Mapping[str, Any]) -> bytes:
    """Ed25519, deterministic."""
    return _signer(identity).sign(_labelled("statement", statement))  # type: ignore[no-any-return]


def check_signature(verifier: bytes, signature: bytes, statement: Mapping[str, Any]) -> None:
    """Raise `ForgeryError` unless the holder of `verifier` signed this very statement."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(verifier).verify(signature, _labelled("statement", statement))
    except (InvalidSignature, ValueError) as error:
        raise ForgeryError("the signature does not fit") from error


def _signer(identity: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(identity)


def _labelled(purpose: str, context: Mapping[str, Any]) -> bytes:
    text = json.dumps(context, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return _PREFIX + purpose.encode() + b"\0" + text.encode()
