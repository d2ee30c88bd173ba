"""Our envelopes are verified by tools that know nothing of fedsynth. Nothing of it is imported here."""

import base64
import json

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from google.protobuf.json_format import Parse
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1.statement_pb2 import Statement as StatementMessage
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def public_key(federation, name):
    return json.loads(federation.roster.read_text())["clients"][name]["envelopes"]


def test_securesystemslib_verifies_them(federation):
    key = SSlibKey(public_key(federation, "a"), "ed25519", "ed25519", {"public": public_key(federation, "a")})
    other = SSlibKey(public_key(federation, "b"), "ed25519", "ed25519", {"public": public_key(federation, "b")})
    for line in lines_of(federation.envelope("a")):
        assert len(Envelope.from_dict(line).verify([key], 1)) == 1
    for line in lines_of(federation.envelope("a")):
        try:
            Envelope.from_dict(line).verify([other], 1)
        except VerificationError:
            continue
        raise AssertionError("verified by a key that did not sign")


def test_plain_ed25519_over_the_dsse_encoding_verifies_them(federation):
    """The pre-authentication encoding of the DSSE specification, written out."""
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key(federation, "a")))
    for line in lines_of(federation.envelope("a")):
        payload, kind = base64.b64decode(line["payload"]), line["payloadType"].encode()
        encoded = b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload])
        (signature,) = line["signatures"]
        key.verify(base64.b64decode(signature["sig"]), encoded)
        try:
            key.verify(base64.b64decode(signature["sig"]), encoded + b" ")
        except InvalidSignature:
            continue
        raise AssertionError("the signature does not cover the payload")


def test_in_toto_reads_the_statements(federation, tmp_path):
    import hashlib

    kinds = []
    for line in lines_of(federation.envelope("a")):
        message = Parse(base64.b64decode(line["payload"]), StatementMessage())
        Statement.copy_from_pb(message).validate()
        (subject,) = message.subject
        assert subject.digest["sha256"] == hashlib.sha256(federation.message("a").read_bytes()).hexdigest()
        assert subject.name == federation.message("a").name
        kinds.append(message.predicate_type)
    assert kinds == ["https://slsa.dev/provenance/v1", "urn:fedsynth:privacy-claim:v1"]


def test_the_provenance_is_slsas(federation):
    """Every field of it is one of the published schema: an unknown one would not parse."""
    payload = json.loads(base64.b64decode(lines_of(federation.envelope("a"))[0]["payload"]))
    provenance = Parse(json.dumps(payload["predicate"]), Provenance())
    assert provenance.build_definition.external_parameters["stage"] == "encode"
    assert [d.name for d in provenance.build_definition.resolved_dependencies] == ["model", "update"]
    assert provenance.run_details.builder.id == "urn:fedsynth:builder"
