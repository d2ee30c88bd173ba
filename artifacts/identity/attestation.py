"""Whether the statements on a file are true of it, and signed by the one whose file it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from artifacts.errors import InputError, VerificationError
from artifacts.formats.any_file import Whole
from artifacts.formats.envelope_file import EnvelopeArtifact
from artifacts.identity.roster import Roster
from artifacts.identity.statements import on_file
from artifacts.kinds import KINDS
from artifacts.ledgers import egress
from artifacts.metadata import Metadata
from artifacts.places import SERVER


def signer_of(metadata: Metadata, where: Path) -> str:
    """Who signs such a file: the client that it is from, or the server. What stays is not signed by anybody."""
    if metadata.custody in ("private", SERVER):
        raise InputError(f"{where} is {metadata.custody}: it stays where it is, and is not signed.")
    if KINDS[metadata.kind].is_signed:
        raise InputError(f"{where} is itself a signed {metadata.kind}.")
    return str(metadata.client) if metadata.custody == "outbound" else SERVER


def check_true(envelope: EnvelopeArtifact, file: Whole, federation: str) -> None:
    """Both statements, word for word, follow from the file. Who signed them is not asked here.

    The one thing that a file cannot know is whether someone who had seen private data let it leave: `picked`.
    """
    stated = [e.statement for e in envelope.envelopes]
    subject, claim = stated[1]["subject"][0], stated[1]["predicate"]
    if subject["digest"]["sha256"] != file.sha256:
        raise VerificationError(f"{envelope.path} is the envelope of another file than {file.path}, or of other bytes.")
    picked = bool(claim["picked"]) or egress.was_picked(file.metadata)
    true = on_file(subject["name"], file.sha256, file.metadata, federation, picked=picked)
    for right, found in zip(true, envelope.envelopes, strict=True):
        if right.payload != found.payload:
            where, wanted, said = _difference(right.statement, found.statement)
            raise VerificationError(
                f"{envelope.path} says {said} of {where}, where {file.path} itself, in the federation {federation!r}, "
                f"gives {wanted}."
            )


def check_signed(envelope: EnvelopeArtifact, file: Whole, roster: Roster) -> str:
    """True statements, signed by the client or server of the roster whose file it is. Returns its name."""
    who = signer_of(file.metadata, file.path)
    known = roster.of(who, "envelopes")
    if known is None:
        raise VerificationError(f"{file.path}: {who!r} is not in the roster {roster.path}.")
    if not all(line.is_signed_by(known) for line in envelope.envelopes):
        raise VerificationError(
            f"{envelope.path} is not signed by the key of {who!r} in {roster.path}: forged, or changed on the way."
        )
    check_true(envelope, file, roster.federation)
    return who


def _difference(right: Any, found: Any, where: str = "") -> tuple[str, str, str]:
    """The first place where two statements differ, what it should be, and what it is."""
    if isinstance(right, dict) and isinstance(found, dict):
        for name in sorted(right.keys() | found.keys()):
            if right.get(name, _ABSENT) != found.get(name, _ABSENT):
                return _difference(right.get(name, _ABSENT), found.get(name, _ABSENT), f"{where}.{name}".lstrip("."))
    return where, _short(right), _short(found)


_ABSENT = "nothing"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
