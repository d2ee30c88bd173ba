"""`verify`: whether files are signed by whom the roster says, and whether what is signed is true of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from artifacts.errors import FedsynthError, InputError, UsageError, VerificationError
from artifacts.formats import Format, any_file, envelope_file, format_named
from artifacts.formats.envelope_file import EnvelopeArtifact
from artifacts.identity.attestation import check_signed
from artifacts.identity.roster import Roster, read_roster
from artifacts.ledgers.receipts import check_asked, check_one_history, check_receipt, check_tree
from stages.execution.progress import Report, Summary, silent
from stages.receipt_proof import verify_by


def verify(
    files: Sequence[Path],
    *,
    roster: Path,
    envelope: Path | None = None,
    proof: Path | None = None,
    head: Path | None = None,
    report: Report = silent,
) -> tuple[Summary, bool]:
    """Check each file by the envelope beside it, or by `envelope`; heads and receipts by themselves.

    With `proof` one file, or one later file of receipts, by that and the tree head in `head` alone. Returns what was
    found, and whether all of it is as it should be.
    """
    if envelope is not None and len(files) != 1:
        raise UsageError("--envelope names the envelope of one file.")
    if (proof is None) != (head is None) or (proof is not None and (len(files) != 1 or envelope is not None)):
        raise UsageError("--proof and --head go together, with one file and without --envelope.")
    known = read_roster(roster)
    known.refuse_expired()
    rows: list[dict[str, Any]] = []
    for number, path in enumerate(files, start=1):
        try:
            if proof is not None and head is not None:
                found = verify_by(proof, path, head=head, roster=known)
            else:
                found = _verify(path, envelope, known)
            rows.append({"file": str(path), "verified": True, **found})
        except FedsynthError as error:
            rows.append({"file": str(path), "verified": False, "reason": str(error)})
        report(number, len(files), path.name)
    _check_history(rows, known)
    passed = all(row["verified"] for row in rows)
    return {"federation": known.federation, "verified": passed, "files": rows}, passed


def require_signed(files: Sequence[Path], roster: Path) -> set[str]:
    """The digests of the files, all of them signed by clients of the roster; else `VerificationError`."""
    known = read_roster(roster)
    known.refuse_expired()
    digests = set()
    for path in files:
        file = any_file.scan(path)
        if file.metadata.custody != "outbound":
            raise VerificationError(
                f"--require-signed: {path} is {file.metadata.custody}, so no client signed it. (The sum of secure "
                "aggregation is made from files whose signatures were checked there.)"
            )
        check_signed(_envelope(path, None), file, known)
        digests.add(file.sha256)
    return digests


def check_same(read: Sequence[str | None], signed: set[str]) -> None:
    """What was aggregated is what was verified: a file may not be exchanged in between."""
    if not set(read) <= signed:
        raise VerificationError("--require-signed: a message changed after its signature was checked. Run again.")


def _verify(path: Path, envelope: Path | None, roster: Roster) -> dict[str, Any]:
    if format_named(path) is Format.ENVELOPES and envelope is None:
        return _verify_heads(envelope_file.read(path), roster)
    file = any_file.scan(path)
    found = _envelope(path, envelope)
    who = check_signed(found, file, roster)
    claim = found.envelopes[1].statement["predicate"]
    return {"signed_by": who, "envelope": str(found.path), "claim": claim}


def _verify_heads(found: EnvelopeArtifact, roster: Roster) -> dict[str, Any]:
    kind = found.metadata.kind
    if kind == "envelope":
        raise InputError(f"{found.path} is the envelope of a file: give that file, or both with --envelope.")
    check = check_receipt if kind == "receipt" else check_asked
    heads = [check(line, roster, found.path) for line in found.heads]
    said = [{"client": head.client, "round": head.round, "seq": head.seq, "head": head.head} for head in heads]
    names = ", ".join(head.client for head in heads)
    if kind != "receipt":
        return {"kind": kind, "signed_by": names, "heads": said}
    tree = check_tree(found, roster)
    log = {"size": tree.size, "root": tree.root}
    return {"kind": kind, "signed_by": f"{names}, server", "heads": said, "log": log}


def _check_history(rows: list[dict[str, Any]], roster: Roster) -> None:
    """Receipts of which one contradicts another are none of them verified."""
    receipts = [row for row in rows if row["verified"] and row.get("kind") == "receipt"]
    try:
        check_one_history([envelope_file.read(Path(row["file"])) for row in receipts], roster)
    except FedsynthError as error:
        for row in receipts:
            row |= {"verified": False, "reason": str(error)}


def _envelope(path: Path, given: Path | None) -> EnvelopeArtifact:
    beside = given or envelope_file.beside(path)
    try:
        return envelope_file.read(beside, kind="envelope")
    except InputError as error:
        if given is None and not beside.exists():
            raise VerificationError(f"{path} is not signed: no envelope at {beside}. Ask its client for it.") from None
        raise VerificationError(str(error)) from error
