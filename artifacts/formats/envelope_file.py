"""Files of envelopes, a line each: statements on a file, heads of ledgers, receipts with the tree that they are in.

Read without trusting a byte of them: only what is spelt as we spell it passes. Whether the signatures are those of the
right people is another question, which needs the roster: `attestation` and `receipts` answer it.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from artifacts import limits
from artifacts.digests import is_sha256, sha256_hex
from artifacts.errors import InputError
from artifacts.formats import Format
from artifacts.identity import dsse
from artifacts.identity.dsse import Envelope, EnvelopeError
from artifacts.identity.statements import CLAIM, HEAD, LEDGER, PROVENANCE, TREE
from artifacts.kinds import CUSTODIES, Custody
from artifacts.ledgers.tree_heads import tree_of
from artifacts.limits import LimitError
from artifacts.metadata import InputRef, Metadata, MetadataError
from artifacts.publish import publish

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=,+-]{0,199}")
_HEAD: dict[str, type] = {
    "federation": str, "client": str, "round": int, "seq": int, "simulation": bool, "spend": str,
}  # fmt: skip
_CLAIM = {
    "federation", "client", "round", "model", "kind", "custody", "simulation", "events", "disclosures", "picked",
    "epsilon",
}  # fmt: skip


@dataclass(frozen=True)
class EnvelopeArtifact:
    """A file that was read and found whole, with the metadata that follow from what it says."""

    path: Path
    metadata: Metadata
    envelopes: tuple[Envelope, ...]
    data: bytes

    @cached_property
    def sha256(self) -> str:
        return sha256_hex(self.data)

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def heads(self) -> tuple[Envelope, ...]:
        """Without the tree head at the end of receipts."""
        return self.envelopes[:-1] if self.metadata.kind == "receipt" else self.envelopes


@dataclass(frozen=True)
class Head:
    """What a head or a receipt says: after `seq` entries the client's ledger had this head."""

    federation: str
    client: str
    round: int
    seq: int
    head: str
    simulation: bool
    spend: str

    @property
    def occasion(self) -> str:
        """What the commitment to the spend ledger is bound to."""
        return f"{self.federation} {self.client} {self.round} {self.seq}"


def beside(file: Path) -> Path:
    """Where the envelope of a file is."""
    return file.with_name(file.name + Format.ENVELOPES)


def content(envelopes: tuple[Envelope, ...]) -> bytes:
    """The bytes of a file of these envelopes."""
    return b"".join(envelope.line() for envelope in envelopes)


def write(path: Path, envelopes: tuple[Envelope, ...], *, force: bool) -> EnvelopeArtifact:
    """Write them by the one door, so that what is in an outbox is in its ledger."""
    data = content(envelopes)
    try:
        artifact = EnvelopeArtifact(path, _metadata(envelopes), envelopes, data)
    except (EnvelopeError, MetadataError) as error:
        raise InputError(f"{path} cannot be written: {error}.") from error
    publish(path, [data], artifact.metadata, force=force)
    return artifact


def read(path: Path, *, kind: str | None = None) -> EnvelopeArtifact:
    """Read one file whole. `kind` is the one that is needed."""
    try:
        data = limits.read_bytes(path, limits.ENVELOPES)
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise InputError(f"cannot read {path}: {reason}. Check the path.") from error
    except LimitError as error:
        raise InputError(f"{path} is not a whole file of envelopes: {error}.") from error
    try:
        if not data.endswith(b"\n"):
            raise EnvelopeError("it is empty or cut off")
        envelopes = tuple(dsse.parse(line[:-1]) for line in io.BytesIO(data))
        metadata = _metadata(envelopes)
        if kind is not None and metadata.kind != kind:
            raise EnvelopeError(f"it holds a {metadata.kind}, but a {kind} is needed")
    except (EnvelopeError, MetadataError) as error:
        raise InputError(f"{path} is not a whole file of envelopes: {error}. Get it again.") from error
    return EnvelopeArtifact(path, metadata, envelopes, data)


def head_of(envelope: Envelope) -> Head:
    """What a head or a receipt says."""
    statement = envelope.statement
    said, subject = statement["predicate"], statement["subject"][0]
    if statement["predicateType"] != HEAD or said.keys() != _HEAD.keys() or subject["name"] != LEDGER:
        raise EnvelopeError("its statement is not on the head of a ledger")
    if any(type(said[name]) is not wanted for name, wanted in _HEAD.items()) or said["seq"] < 1:
        raise EnvelopeError("its statement on a head has a malformed field")
    if not is_sha256(said["spend"]):
        raise EnvelopeError("its statement on a head has no commitment to the spend ledger")
    return Head(head=subject["digest"]["sha256"], **said)


def _metadata(envelopes: tuple[Envelope, ...]) -> Metadata:
    """What kind of file these envelopes make, and whose; `EnvelopeError` where they make none."""
    types = [envelope.statement["predicateType"] for envelope in envelopes]
    signers = {len(envelope.signatures) for envelope in envelopes}
    if types == [PROVENANCE, CLAIM] and signers == {1}:
        return _of_statements(*envelopes)
    asked = types == [HEAD] and signers == {1}
    lines = envelopes if asked else envelopes[:-1]
    given = types == [*[HEAD] * len(lines), TREE] and {len(line.signatures) for line in lines} == {2}
    if not asked and not given:
        raise EnvelopeError("it holds neither two statements on one file, nor a head, nor receipts with a tree head")
    heads = [head_of(envelope) for envelope in lines]
    names = [head.client for head in heads]
    if names != sorted(set(names)) or len({(head.round, head.federation) for head in heads}) != 1:
        raise EnvelopeError("its heads are not of one round, sorted by client, each once")
    simulation = any(head.simulation for head in heads)
    if given:
        tree_of(envelopes[-1]).check(lines)
    if asked:
        return Metadata(
            kind="head", stage="receipt", method="ask", custody="outbound", client=heads[0].client,
            round=heads[0].round, simulation=simulation, versions={},
        )  # fmt: skip
    return Metadata(
        kind="receipt", stage="receipt", method="give", custody="downlink", round=heads[0].round,
        simulation=simulation, versions={},
    )  # fmt: skip


def _of_statements(provenance: Envelope, claim: Envelope) -> Metadata:
    if provenance.signatures.keys() != claim.signatures.keys():
        raise EnvelopeError("its two statements are signed by different people")
    subject, other = claim.statement["subject"], provenance.statement["subject"]
    said = claim.statement["predicate"]
    if subject != other or not _NAME.fullmatch(subject[0]["name"]):
        raise EnvelopeError("its two statements are not on one file with a plain name")
    _check_claim(said)
    custody: Custody = said["custody"]
    file = InputRef(role="file", kind=str(said["kind"]), sha256=subject[0]["digest"]["sha256"])
    return Metadata(
        kind="envelope", stage="sign", custody=custody, client=said["client"], round=said["round"], inputs=(file,),
        simulation=said["simulation"], versions={},
    )  # fmt: skip


def _check_claim(said: Any) -> None:
    """As far as the file itself goes; that it is true of the file which it is on, `attestation.check` says."""
    if said.keys() != _CLAIM or said["custody"] not in CUSTODIES:
        raise EnvelopeError("its privacy claim does not have the fields of one")
    texts = [value for name in ("federation", "kind", "epsilon") if not isinstance(value := said[name], str)]
    whole = type(said["round"]) in (int, type(None)) and isinstance(said["client"], str | None)
    if texts or not whole or type(said["picked"]) is not bool or type(said["simulation"]) is not bool:
        raise EnvelopeError("its privacy claim has a malformed field")
