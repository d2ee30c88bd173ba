"""`--format model-signing`: an OpenSSF model signature over one file or a whole outbox, with an elliptic-curve key.

The bundle is that of model-signing 1.0: a Sigstore bundle with a DSSE envelope over an in-toto statement that lists
every file by its SHA-256. ECDSA is made without random numbers (RFC 6979): the same files and key give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.digests import canonical_json
from artifacts.errors import InputError
from stages.export.document import Document
from stages.export.text import as_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    from stages.export.facts import Facts

PREDICATE = "https://model_signing/signature/v1.0"
_BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_MOST_KEY = 1 << 16
_ALONE = "."  # how the specification calls a model that is one file


def _make(facts: Facts) -> Mapping[str, bytes]:
    from artifacts.identity.dsse import PAYLOAD_TYPE, STATEMENT_TYPE

    assert facts.said.key is not None  # it is needed
    key, files = _read_key(facts.said.key), _digests(facts)
    root = hashlib.sha256(b"".join(bytes.fromhex(digest) for digest in files.values())).hexdigest()
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": facts.name, "digest": {"sha256": root}}],
        "predicateType": PREDICATE,
        "predicate": {
            "serialization": {"method": "files", "hash_type": "sha256", "allow_symlinks": False},
            "resources": [{"name": name, "algorithm": "sha256", "digest": digest} for name, digest in files.items()],
        },
    }
    payload = canonical_json(statement).encode()
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"sig": base64.b64encode(_signed(key, PAYLOAD_TYPE, payload)).decode(), "keyid": ""}],
    }
    material = {"publicKey": {"hint": hashlib.sha256(_public_pem(key)).hexdigest()}, "tlogEntries": []}
    return {"": as_json({"mediaType": _BUNDLE, "verificationMaterial": material, "dsseEnvelope": envelope})}


def _digests(facts: Facts) -> dict[str, str]:
    """The one file, or all of an outbox, by name."""
    from artifacts.digests import sha256_file
    from artifacts.places import OUTBOX

    if facts.run is None:
        return {_ALONE: facts.file.sha256}
    if facts.run.root == facts.path or (facts.path / OUTBOX).is_dir():
        raise InputError(f"{facts.path} has private files in it, too: give its outbox/, or one file of that.")
    paths = sorted(facts.path.iterdir())
    strange = next((path for path in paths if path.is_symlink() or not path.is_file()), None)
    if strange is not None:
        raise InputError(f"{strange} is not a regular file, and cannot be signed.")
    return {path.name: sha256_file(path) for path in paths}


def _read_key(path: Path) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1, SECP521R1, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    from artifacts import limits
    from artifacts.identity.owner import refuse_shared

    try:
        with limits.open_file(path) as handle:
            refuse_shared(path.stat(), path, "the key")
            text = handle.read(_MOST_KEY)
        key = load_pem_private_key(text, password=None)
    except OSError as error:
        raise InputError(f"cannot read the key {path}: {error.strerror}.") from error
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} is not a private key in PEM without a password.") from error
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1 | SECP384R1 | SECP521R1):
        raise InputError(
            f"{path} is not a key on P-256, P-384 or P-521. Make one: openssl ecparam -name prime256v1 -genkey -noout"
        )
    return key


def _signed(key: EllipticCurvePrivateKey, payload_type: str, payload: bytes) -> bytes:
    """Over DSSE's encoding, with the hash that belongs to the curve."""
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512

    hashes: dict[int, Any] = {256: SHA256, 384: SHA384, 521: SHA512}
    encoded = f"DSSEv1 {len(payload_type)} {payload_type} {len(payload)} ".encode() + payload
    return key.sign(encoded, ECDSA(hashes[key.key_size](), deterministic_signing=True))


def _public_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


DOCUMENT = Document(
    name="model-signing",
    place=7,
    text="OpenSSF model signature over one file or an outbox; .sig",
    make=_make,
    subjects=("folder", "file"),
    endings=(".sig",),
    needs={"key": "an elliptic-curve key in PEM signs; the clients' keys are Ed25519, which the format does not have"},
)
