"""`audit`: exactly which bytes left, whether each is recorded, and what it discloses. Free of torch.

Each check is a function that yields what is wrong; a check that finds nothing yields nothing. What a check cannot
see is a note, never a silent pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from artifacts import dataset_file, keys, ledger, lineage, tensors_file
from artifacts.commitments import opens
from artifacts.digests import sha256_file
from artifacts.errors import FedsynthError, InputError, VerificationError
from artifacts.keys import Key
from artifacts.kinds import KINDS
from artifacts.ledger import Chain, Entry
from artifacts.metadata import Metadata, MetadataError
from artifacts.places import Place, RunFolder
from stages.data.png import chunks
from stages.progress import Report, silent

_CRITICAL_CHUNKS = {"IHDR", "PLTE", "IDAT", "IEND"}


@dataclass(frozen=True)
class Finding:
    level: Literal["failure", "note"]
    check: str
    where: str
    what: str


@dataclass
class Sent:
    """What left one participant."""

    name: str
    files: int = 0
    bytes: int = 0
    rounds: set[int] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)
    disclosures: set[str] = field(default_factory=set)
    without_noise: bool = False
    simulation: bool = False
    digests: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        epsilon = None
        if self.name != "server" and self.files:
            epsilon = "inf" if self.without_noise else "finite"
        return {
            "name": self.name,
            "files": self.files,
            "bytes": self.bytes,
            "rounds": sorted(self.rounds),
            "kinds": sorted(self.kinds),
            "disclosures": sorted(self.disclosures),
            "epsilon": epsilon,
        }


@dataclass
class AuditReport:
    findings: list[Finding] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not any(f.level == "failure" for f in self.findings)

    @property
    def verdict(self) -> str:
        clients = [s for s in self.sent if s.name != "server"]
        files, size = sum(s.files for s in clients), sum(s.bytes for s in clients)
        if not self.passed:
            count = sum(f.level == "failure" for f in self.findings)
            return f"FAIL: {count} failure{'s' if count > 1 else ''}; {files} files, {size:,} bytes in the outboxes"
        mark = " (simulation)" if any(s.simulation for s in self.sent) else ""
        return f"PASS, unanchored{mark}: {files} files, {size:,} bytes left, every one of them recorded and whole"

    def to_json(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "verdict": self.verdict,
            "findings": [vars(f) for f in self.findings],
            "sent": [s.to_json() for s in self.sent],
        }


def audit(target: Path, *, report: Report = silent) -> AuditReport:
    """Audit a whole run folder, or the folder of one participant."""
    run, result = RunFolder(target), AuditReport()
    if run.clients.is_dir():
        places = [*_client_places(run, result), run.server]
    elif (target / "outbox").is_dir():
        places = [Place(target.absolute())]
    else:
        raise InputError(f"{target} is neither a run folder (clients/…) nor a participant's (outbox/).")
    # What clients may have been given: the server's outbox and the public files, if they are at hand.
    known = _digests(run.public) | _digests(run.server.outbox) if len(places) > 1 else None
    for number, place in enumerate(places, start=1):
        if known is not None and place.is_server:  # the last: what it keeps is made from what clients sent
            known |= {digest: place.base for sent in result.sent for digest in sent.digests}
        _audit_place(place, known, result)
        report(number, len(places), place.base.name)
    if len(places) > 1:
        _check_server_lineage(run, result)
    result.findings.append(
        Finding("note", "anchor", str(target), "no receipts: a ledger rewritten as a whole would not be noticed")
    )
    return result


def _client_places(run: RunFolder, result: AuditReport) -> list[Place]:
    places = []
    for name in run.client_names():
        try:
            places.append(run.client(name))
        except MetadataError as error:
            result.findings.append(Finding("failure", "custody", str(run.clients / name), str(error)))
    return places


def _audit_place(place: Place, known: dict[str, Path] | None, result: AuditReport) -> None:
    sent = Sent(place.base.name)
    result.sent.append(sent)
    if not place.outbox.is_dir():
        result.findings.append(Finding("note", "outbox", str(place.base), "it has no outbox: nothing left"))
        return
    try:
        book = ledger.read(place.ledger)
    except VerificationError as error:
        result.findings.append(Finding("failure", "chain", str(place.ledger), str(error)))
        book = Chain([], "")
    if book.unfinished_tail:
        result.findings.append(Finding("note", "chain", str(place.ledger), "its last line was never finished"))
    present = sorted(place.outbox.iterdir())
    names = {path.name for path in present}
    for entry in {e.file: e for e in book.entries}.values():
        if entry.file not in names:
            where = str(place.outbox / entry.file)
            result.findings.append(Finding("note", "ledger", where, "recorded, but not here: sent or unfinished"))
    secret, private = _private_side(place, result)
    # By round, as names end: what a message was made from is found at once, however long the run.
    of_round: dict[str, list[str]] = {}
    for digest, file in private.items():
        of_round.setdefault(file.stem[-4:], []).append(digest)
    entries: dict[str, list[Entry]] = {}
    for entry in book.entries:
        entries.setdefault(entry.file, []).append(entry)
    digests = {entry.sha256 for entry in book.entries}
    for path in present:
        failures = list(_check_file(path, entries.get(path.name, []), place, secret, sent))
        result.findings += [Finding("failure", check, str(path), what) for check, what in failures]
        if not failures:
            likely = of_round.get(path.stem[-4:], [])
            result.findings += _check_lineage(path, secret, likely, private, known, own=digests)
    _check_private_lineage(place, private, known, result)


def _check_file(
    path: Path, entries: list[Entry], place: Place, secret: Key | None, sent: Sent
) -> Iterator[tuple[str, str]]:
    """Everything that can be said of one file in an outbox; `entries` are those under its name."""
    if path.is_symlink() or not path.is_file():
        yield "outbox", "not a regular file"
        return
    if not entries:
        yield "ledger", "in the outbox, but not in the ledger"
    try:
        artifact: Any = dataset_file.read(path) if path.suffix == ".parquet" else tensors_file.read(path)
    except FedsynthError as error:
        yield "digest", str(error)
        return
    metadata: Metadata = artifact.metadata
    sent.files += 1
    sent.bytes += len(artifact.data)
    sent.rounds |= {metadata.round} if metadata.round is not None else set()
    sent.kinds.add(metadata.kind)
    sent.disclosures |= set(metadata.disclosures)
    from_data = KINDS[metadata.kind].from_data
    sent.without_noise |= from_data and (bool(metadata.disclosures) or not metadata.privacy)
    sent.simulation |= metadata.simulation
    sent.digests[artifact.sha256] = path.name
    if entries:
        picked = ledger.was_picked(metadata)
        told = (metadata.kind, metadata.round, picked, list(metadata.privacy), list(metadata.disclosures))
        # Any entry will do: a replacement that was entered and then killed leaves the file of the entry before.
        entry = next((e for e in entries if (e.sha256, e.bytes) == (artifact.sha256, len(artifact.data))), None)
        if entry is None:
            yield "digest", "not the bytes that the ledger records"
        elif (entry.kind, entry.round, entry.picked, entry.privacy, entry.disclosures) != told:
            yield "ledger", "the ledger describes it otherwise than the file itself"
    wanted = "downlink" if place.is_server else "outbound"
    if metadata.custody != wanted:
        yield "custody", f"a {metadata.custody} {metadata.kind} stands in an outbox"
    if not place.is_server:
        if metadata.client != place.base.name:
            yield "custody", f"it says it is from client {metadata.client!r}"
        if from_data and not metadata.privacy and not metadata.disclosures:
            yield "disclosures", "neither privacy events nor disclosures: it does not say what it tells"
    if metadata.kind == "dataset":
        extra = {name for png in artifact.pngs for name in chunks(png.as_py())} - _CRITICAL_CHUNKS
        if extra:
            yield "images", f"a PNG carries the chunk {min(extra)}, which no viewer shows"
    if secret is not None:
        raw = secret.secret
        if raw in artifact.data or raw.hex().encode() in artifact.data:
            yield "secrets", "the secret key stands in the file"


def _private_side(place: Place, result: AuditReport) -> tuple[Key | None, dict[str, Path]]:
    """The key and the digests of the private files, where they are at hand."""
    if not place.key.exists():
        result.findings.append(Finding("note", "lineage", str(place.base), "no key here: commitments stay closed"))
        return None, {}
    try:
        secret = keys.read(place.key)
    except FedsynthError as error:
        result.findings.append(Finding("failure", "secrets", str(place.key), str(error)))
        return None, {}
    return secret, _digests(place.private)


def _check_lineage(
    path: Path,
    secret: Key | None,
    likely: list[str],
    private: dict[str, Path],
    known: dict[str, Path] | None,
    *,
    own: set[str],
) -> Iterator[Finding]:
    """Inputs lead to files that exist; private ones are named by commitments that open, to `likely` ones mostly.

    What a client goes on from may also be what it sent before: `own` are the digests in its ledger.
    """
    for reference in _metadata(path).inputs:
        name = f"its input {reference.role!r}"
        if reference.sha256 is not None:
            if reference.sha256 in private and _metadata(private[reference.sha256]).custody == "public":
                continue  # what everybody in the federation can make: its own lineage is checked as well
            if reference.sha256 in private:
                yield Finding("failure", "lineage", str(path), f"{name} is private, but named by its digest")
            elif reference.role == "previous":
                if reference.sha256 not in own:
                    yield Finding("failure", "lineage", str(path), f"{name} is no file that this client recorded")
            elif known is not None and reference.sha256 not in known:
                yield Finding("failure", "lineage", str(path), f"{name} is no file that the server sent")
        elif secret is not None and not any(opens(secret, reference, digest) for digest in chain(likely, private)):
            yield Finding("failure", "lineage", str(path), f"{name} opens to no file in private/")


def _check_private_lineage(
    place: Place, private: dict[str, Path], known: dict[str, Path] | None, result: AuditReport
) -> None:
    """The chain goes on inside the client: what a message was made from names its own inputs in turn."""
    for path in private.values():
        if path.suffix not in (".safetensors", ".parquet"):
            continue
        try:
            inputs = _metadata(path).inputs
        except FedsynthError as error:
            # A person's own file, or a damaged one: had anything that left come from it, a commitment would not open.
            result.findings.append(Finding("note", "digest", str(path), str(error)))
            continue
        for reference in inputs:
            there = reference.sha256 in private or known is None or reference.sha256 in known
            if not there:
                what = f"its input {reference.role!r} is nowhere in {place.base.name} or with the server"
                result.findings.append(Finding("failure", "lineage", str(path), what))


def _check_server_lineage(run: RunFolder, result: AuditReport) -> None:
    """Each aggregate was made from messages that clients recorded."""
    recorded = {digest for sent in result.sent for digest in sent.digests}
    for path in sorted(run.server.private.glob("*.lineage.json")):
        for reference in lineage.read_record(path):
            if reference.sha256 not in recorded:
                result.findings.append(
                    Finding("note", "lineage", str(path), f"made from a {reference.kind} no longer in an outbox")
                )


def _metadata(path: Path) -> Metadata:
    if path.suffix == ".parquet":
        return dataset_file.read_metadata(path)
    return tensors_file.read_header(path)[0]


def _digests(folder: Path) -> dict[str, Path]:
    return {sha256_file(p): p for p in sorted(folder.iterdir()) if p.is_file()} if folder.is_dir() else {}
