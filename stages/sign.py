"""`sign`: statements on files, in envelopes beside them: how each was made, and what it claims about privacy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from artifacts.digests import sha256_hex
from artifacts.errors import UsageError, VerificationError
from artifacts.formats import any_file, envelope_file
from artifacts.formats.any_file import Whole
from artifacts.identity import keys
from artifacts.identity.attestation import signer_of
from artifacts.identity.dsse import Envelope
from artifacts.identity.roster import Roster, read_roster, signing_key, verify_key
from artifacts.identity.statements import on_file
from artifacts.ledgers import egress
from artifacts.places import Place, in_outbox, in_pending
from artifacts.publish import prepare
from artifacts.writing import atomic
from stages.charging.spending import key_of
from stages.execution.progress import Report, Summary, silent


def sign(
    files: Sequence[Path],
    *,
    roster: Path,
    out: Path | None = None,
    key: Path | None = None,
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Write an envelope for each file, beside it unless `out` says where; nothing is written if one is refused.

    An envelope that is in an outbox is entered in the ledger like everything else there.
    """
    if out is not None and len(files) != 1:
        raise UsageError("--out names the envelope of one file; leave it out to sign several.")
    known = read_roster(roster)
    known.refuse_expired()
    signed = [_sign(path, out or envelope_file.beside(path), known, key) for path in files]
    for path, envelopes in signed:
        atomic.refuse_other(path, sha256_hex(envelope_file.content(envelopes)), force=force)
    for number, (path, envelopes) in enumerate(signed, start=1):
        envelope_file.write(path, envelopes, force=force)
        report(number, len(signed), path.name)
    return {"federation": known.federation, "files": [str(file) for file in files], "out": [str(p) for p, _ in signed]}


def _sign(path: Path, out: Path, roster: Roster, key: Path | None) -> tuple[Path, tuple[Envelope, ...]]:
    if in_pending(path):
        raise UsageError(f"{path} waits to be released: sign it once it is in the outbox.")
    file = any_file.scan(path)
    who = signer_of(file.metadata, path)
    prepare(out, file.metadata.custody)
    secret = signing_key(keys.read(key_of(path, key)), "envelopes")
    if roster.of(who, "envelopes") != verify_key(secret):
        raise VerificationError(
            f"{path} is {who!r}'s, but the key at hand is not that of {who!r} in {roster.path}. Sign with its own key, "
            "or get the roster again."
        )
    statements = on_file(path.name, file.sha256, file.metadata, roster.federation, picked=_picked(file))
    return out, tuple(statement.signed(secret) for statement in statements)


def _picked(file: Whole) -> bool:
    """Whether someone who saw private data let it leave: the ledger knows. What is not entered there is not signed."""
    place = Place.of(file.path)
    if place is None or not in_outbox(file.path):
        return egress.was_picked(file.metadata)
    entries = [e for e in egress.read(place.ledger).entries if (e.file, e.sha256) == (file.path.name, file.sha256)]
    if not entries:
        raise VerificationError(f"{file.path} is not in the ledger {place.ledger} as it is. Run: fedsynth audit.")
    return entries[-1].picked
