"""Commitments: how an outbound file names a private input without telling anything about it.

commitment = HMAC(HKDF(key, "commitment"), salt ‖ sha256 of the private file). Anyone who holds the key and the file
can open it; to everyone else it is random. The salt differs from file to file: equal commitments would tell that
the data did not change from one round to the next. It is derived, not drawn, so that a replay gives equal bytes.
"""

from __future__ import annotations

import hmac
from typing import Any

from artifacts.digests import canonical_json
from artifacts.identity.keys import Key, hmac_sha256
from artifacts.metadata import InputRef

_SALT_BYTES = 16


def commit(key: Key, *, role: str, kind: str, sha256: str, context: dict[str, Any]) -> InputRef:
    """Commit to the private file with this digest; `context` names the file that will carry the commitment."""
    place = canonical_json({"role": role, "kind": kind, "sha256": sha256, "context": context}).encode()
    salt = hmac_sha256(key.derive("commitment salt"), place)[:_SALT_BYTES]
    value = hmac_sha256(key.derive("commitment"), salt + bytes.fromhex(sha256))
    return InputRef(role=role, kind=kind, commitment=value.hex(), salt=salt.hex())


def opens(key: Key, reference: InputRef, sha256: str) -> bool:
    """Whether the commitment is to the private file with this digest."""
    if reference.commitment is None or reference.salt is None:
        return False
    value = hmac_sha256(key.derive("commitment"), bytes.fromhex(reference.salt) + bytes.fromhex(sha256))
    return hmac.compare_digest(value.hex(), reference.commitment)
