"""DSSE envelopes with in-toto statements: one JSON object a line, signed with Ed25519, made and checked offline.

securesystemslib signs and verifies, in-toto-attestation holds a statement against its published schema. A line has one
spelling only, and Ed25519 draws no random numbers: the same statement under the same key is the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from artifacts.digests import canonical_json, is_sha256
from artifacts.formats.plain_data import parse_json
from artifacts.identity.roster import verify_key

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
SIGNATURE_BYTES = 64
_STATEMENT = {"_type", "subject", "predicateType", "predicate"}


class EnvelopeError(ValueError):
    """Not an envelope, or not signed by whom it should be. The reader adds the file's name and what to do."""


@dataclass(frozen=True)
class Envelope:
    """A statement and who signed it: signatures by verify key, which is the key id too, in hexadecimal digits."""

    payload: bytes
    signatures: Mapping[str, bytes]

    @property
    def statement(self) -> dict[str, Any]:
        fields: dict[str, Any] = parse_json(self.payload, canonical=True)
        return fields

    def line(self) -> bytes:
        """The envelope as a line of a file."""
        return canonical_json(self._foreign().to_dict()).encode() + b"\n"

    def signed(self, secret: bytes) -> Envelope:
        """The same with one more signature."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from securesystemslib.signer import CryptoSigner

        signer = CryptoSigner(Ed25519PrivateKey.from_private_bytes(secret), _public(verify_key(secret)))
        signature = self._foreign().sign(signer)
        return Envelope(self.payload, {**self.signatures, signature.keyid: bytes.fromhex(signature.signature)})

    def is_signed_by(self, *verify_keys: bytes) -> bool:
        """Whether each of these keys signed it, and nobody else did."""
        from securesystemslib.exceptions import VerificationError

        if {public.hex() for public in verify_keys} != self.signatures.keys():
            return False
        try:
            self._foreign().verify([_public(public) for public in verify_keys], threshold=len(verify_keys))
        except VerificationError:
            return False
        return True

    def _foreign(self) -> Any:
        """As securesystemslib knows it, which spells, signs and verifies it."""
        from securesystemslib.dsse import Envelope as Foreign
        from securesystemslib.signer import Signature

        signatures = {who: Signature(who, sig.hex()) for who, sig in sorted(self.signatures.items())}
        return Foreign(self.payload, PAYLOAD_TYPE, signatures)


def stated(subject: str, sha256: str, predicate_type: str, predicate: Mapping[str, Any]) -> Envelope:
    """A statement on one thing, by its digest; not signed yet."""
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": subject, "digest": {"sha256": sha256}}],
        "predicateType": predicate_type,
        "predicate": dict(predicate),
    }
    check_statement(statement)
    return Envelope(canonical_json(statement).encode(), {})


def parse(line: bytes) -> Envelope:
    """Read one line, without its end. Whatever is not spelt as `line` spells it is refused."""
    from securesystemslib.dsse import Envelope as Foreign
    from securesystemslib.exceptions import Error

    try:
        found = Foreign.from_dict(parse_json(line, canonical=True))
        signatures = {who: bytes.fromhex(signature.signature) for who, signature in found.signatures.items()}
        statement = parse_json(found.payload, canonical=True)
        plain = canonical_json(statement).encode() == found.payload
    except (ValueError, TypeError, KeyError, AttributeError, Error):
        raise EnvelopeError("it is not a DSSE envelope") from None
    if found.payload_type != PAYLOAD_TYPE:
        raise EnvelopeError("it is not a DSSE envelope with an in-toto statement")
    if not all(is_sha256(who) and len(sig) == SIGNATURE_BYTES for who, sig in signatures.items()):
        raise EnvelopeError("a signature in it is not Ed25519's")
    envelope = Envelope(found.payload, signatures)
    if not plain or envelope.line() != line + b"\n":
        raise EnvelopeError("it is not in canonical form")
    check_statement(statement)
    return envelope


def check_statement(statement: Any) -> None:
    """Held against the schema of in-toto, with one subject that has one SHA-256."""
    from google.protobuf.json_format import ParseDict, ParseError
    from in_toto_attestation.v1.statement import Statement
    from in_toto_attestation.v1.statement_pb2 import Statement as Message

    try:
        if not isinstance(statement, dict) or statement.keys() != _STATEMENT:
            raise EnvelopeError("its payload is not an in-toto statement")
        Statement.copy_from_pb(ParseDict(statement, Message())).validate()
    except (ParseError, ValueError) as error:
        raise error if isinstance(error, EnvelopeError) else EnvelopeError(f"its statement: {error}") from None
    subjects = statement["subject"]
    known = len(subjects) == 1 and subjects[0].keys() == {"name", "digest"}
    if not known or subjects[0]["digest"].keys() != {"sha256"} or not is_sha256(subjects[0]["digest"]["sha256"]):
        raise EnvelopeError("its statement is not on one file by its SHA-256")


def _public(public: bytes) -> Any:
    from securesystemslib.signer import SSlibKey

    return SSlibKey(public.hex(), "ed25519", "ed25519", {"public": public.hex()})
