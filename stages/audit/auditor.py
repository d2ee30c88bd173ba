"""The audit of a run folder, a home, one participant or an outbox: every file is read once by every check.

A check that finds nothing says nothing. What a check cannot see by its nature is a note. What it could not look at this
time (a full disk, no rights, a file that was replaced meanwhile) is «unknown»; what needs something that was not given
(a ledger, a key, what the server sent) is «unchecked»: never a silent pass, and never a failure. Nothing is written
into what is audited.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from artifacts.digests import sha256_file
from artifacts.errors import FedsynthError, IncompleteError
from artifacts.ledgers import lineage
from artifacts.metadata import InputRef
from artifacts.places import OUTBOX, Place
from stages.audit.budget import epsilons
from stages.audit.findings import AuditReport, Level
from stages.audit.header_texts import check_headers
from stages.audit.obstacles import is_gone
from stages.audit.participant import Audited, Common, add_error, audit_one, could_not
from stages.audit.public_files import check_elsewhere, different_public, roots_of
from stages.audit.replay import Federation, ReplayOptions
from stages.audit.secure_rounds import check_answers
from stages.audit.signatures import check_trust, find_roster, receipts_in
from stages.audit.snapshot import Snapshot
from stages.audit.subjects import Subjects, find_subjects
from stages.audit.surrounding_files import Given, Kept
from stages.execution.progress import Report, silent
from stages.execution.workers import Workers

_TRIES = 3  # for files that are replaced while they are read
_MANY_FILES = 2000  # to look at fewer takes less than to start a process
_TASKS_A_WORKER = 8
_RECORD = ".lineage.json"
_RECORDED = ("aggregate", "shuffle")  # stages whose files do not say themselves what they were made from


def audit(
    target: Path,
    *,
    delta: float | None = None,
    received: Sequence[Path] = (),
    trust: str | None = None,
    remembered: Path | None = None,
    replay: ReplayOptions | None = None,
    headers: Path | None = None,
    workers: int = 1,
    report: Report = silent,
) -> AuditReport:
    """Audit a whole run folder, a home, the folder of one participant, or an outbox alone.

    With `delta` the ε of what left is computed. `received` are folders with what a client was sent by the server, and
    with the roster: inside a run folder or a home they are found, elsewhere they must be given. `trust` is the
    fingerprint of the roster, which the auditor has from elsewhere. `remembered` is a folder with the heads that the
    client's machine remembers, by default that of this user. With `replay` files are computed again as well.
    `headers` is a folder of DICOM files, of whose headers nothing may be found. Many files are looked at by `workers`
    processes; what comes out is the same.
    """
    for left in reversed(range(_TRIES)):
        try:
            result, replaced = _look(target, received, trust, remembered, replay, workers, report)
        except OSError as error:
            raise IncompleteError(f"{target} could not be looked at: {error.strerror}.") from error
        doubted = [finding for finding in result.findings if finding.level == "failure" and finding.where in replaced]
        if not doubted:
            break
        if not left:
            what = "it was replaced each time it was looked at. Audit again when nobody works there"
            result.findings = [
                dataclasses.replace(finding, level="unknown", what=what) if finding in doubted else finding
                for finding in result.findings
            ]
    _note_anchors(target, result)
    if headers is not None:
        check_headers(target, headers, result)
    if delta is not None:
        _add_epsilons(target, delta, result)
    return result


def _look(
    target: Path,
    received: Sequence[Path],
    trust: str | None,
    remembered: Path | None,
    replay: ReplayOptions | None,
    workers: int,
    report: Report,
) -> tuple[AuditReport, set[str]]:
    """One look at everything; and which files were replaced while they were read."""
    result, subjects = AuditReport(), find_subjects(target, received)
    for path, what in subjects.wrong:
        result.add("failure", "custody", path, what)
    roots = roots_of(target)
    for level, path, what in check_elsewhere(roots, subjects.folders):
        result.add(level, "custody", path, what)
    for path, what in different_public(roots) if len(roots) > 1 else ():
        result.add("failure", "custody", path, what)
    # Clients are listed before the server, and what they can have been given is read after both.
    clients = [Snapshot(subject) for subject in subjects.clients]
    server = Snapshot(subjects.server) if subjects.server is not None else None
    made_from = _read_records(server.place, result) if server is not None and server.has_records else []
    given = _given(subjects, server, result)
    roster, receipts = find_roster(subjects.folders, result), receipts_in(subjects.folders, result)
    check_trust(roster, trust, target, result)
    common = Common(given, roster, receipts, replay, remembered)
    number, files = len(subjects.all), sum(snapshot.num_files for snapshot in clients)
    parts: list[Audited] = []
    for done in _each(clients, common, workers if files >= _MANY_FILES and replay is None else 1):
        parts += done
        report(len(parts), number, parts[-1].name)
    parts.sort(key=lambda part: part.number)
    recorded = set().union(*(part.recorded for part in parts))
    if server is not None:
        alone = not subjects.clients
        with_clients = common if not alone else dataclasses.replace(common, given=None)
        around = _federation(subjects, parts, made_from, common)
        parts.append(audit_one(len(parts), server, with_clients, recorded, around))
        recorded |= parts[-1].recorded | (given.paths.keys() if given is not None else set())
        report(number, number, parts[-1].name)
    for part in parts:
        result.add_all(part.result)
    _check_rounds([one for part in parts for one in part.sent], common, result)
    if server is not None:
        ledgers = bool(subjects.clients) and all(subject.role == "own" for subject in subjects.clients)
        _check_server_lineage(made_from, server, recorded, result, ledgers=ledgers)
    _check_copies(subjects, {part.name: part.recorded for part in parts}, result)
    return result, set().union(*(part.replaced for part in parts))


def _given(subjects: Subjects, server: Snapshot | None, result: AuditReport) -> Given | None:
    """What everybody was given; None where nobody knows what that was."""
    own = server.subject.outbox if server is not None else None
    folders = [folder for folder in subjects.folders if folder != own]
    if not folders and server is None:
        return None
    given = Given.read(folders)
    for path, why in given.obstacles:
        result.add("unknown", "lineage", path, could_not(why))
    for seen in server.seen if server is not None else ():
        specs = seen.tensors.specs if seen.tensors is not None else ()
        try:
            given.remember(seen.path, seen.sha256, seen.metadata, specs)
        except Exception as error:
            add_error(error, "params", seen.path, result)
    if server is not None:
        _add_followed(server, given)
    return given


def _add_followed(server: Snapshot, given: Given) -> None:
    """Models that everybody makes of a proxy that the server sent: in the server's home they are its copy alone."""
    kept = [
        one for one in server.shelf.files.values() if one.metadata.kind == "model" and one.metadata.stage == "decode"
    ]
    for one in sorted(kept, key=lambda model: model.metadata.round or 0):
        if one.metadata.custody == "public" and all(found.sha256 in given.paths for found in one.metadata.inputs):
            given.remember(one.path, one.sha256, one.metadata, one.specs)


def _each(clients: list[Snapshot], common: Common, workers: int) -> Iterator[list[Audited]]:
    """One client's folder says nothing of another's: they are looked at one by one, or side by side."""
    numbered = list(enumerate(clients))
    clients.clear()
    size = 1 if workers == 1 else -(-len(numbered) // (_TASKS_A_WORKER * workers))
    tasks = [(_audit_some, (numbered[i : i + size], common)) for i in range(0, len(numbered), size)]
    del numbered
    if workers == 1:
        yield from (function(*arguments) for function, arguments in tasks)
        return
    with Workers(workers - 1) as pool:  # this process works too
        for _, parts in pool.spread(tasks):
            yield parts


def _audit_some(snapshots: list[tuple[int, Snapshot]], common: Common) -> list[Audited]:
    """Takes each from the list, so that one client's metadata at a time are in memory."""
    return [audit_one(*snapshots.pop(), common) for _ in range(len(snapshots))]


def _federation(
    subjects: Subjects, parts: list[Audited], made_from: list[tuple[Path, list[InputRef]]], common: Common
) -> Federation:
    """What a replay of the server's files goes on from."""
    seeds = [seed for part in parts for seed in part.seeds] + ([subjects.seed] if subjects.seed is not None else [])
    return Federation(
        [one for part in parts for one in part.sent],
        {path.name.removesuffix(_RECORD): references for path, references in made_from},
        tuple(dict.fromkeys(seeds)),
        common.roster.path if common.roster is not None else None,
        common.given,
    )


def _check_rounds(sent: list[Kept], common: Common, result: AuditReport) -> None:
    """What the clients' files of a secure round say together."""
    try:
        for path, what in check_answers(sent, common.rounds):
            result.add("failure", "tensors", path, what)
    except Exception as error:
        add_error(error, "tensors", sent[0].path, result)


def _check_copies(subjects: Subjects, recorded: Mapping[str, set[str]], result: AuditReport) -> None:
    """What somebody received from a participant is what that one recorded: nobody was sent something else."""
    for owner, folder in subjects.copies:
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            try:
                if path.is_file() and sha256_file(path) not in recorded[owner]:
                    result.add("failure", "ledger", path, f"received from {owner}, which recorded no such file")
            except OSError as error:
                result.add("unknown", "ledger", path, could_not(str(error.strerror)))


def _read_records(server: Place, result: AuditReport) -> list[tuple[Path, list[InputRef]]]:
    """What the server noted of where its files come from, before the clients' ledgers are read."""
    found = []
    for path in sorted(server.private.glob(f"*{_RECORD}")):
        try:
            found.append((path, lineage.read_record(path)))
        except FedsynthError as error:
            if not is_gone(error):
                add_error(error, "lineage", path, result)
    return found


def _check_server_lineage(
    made_from: list[tuple[Path, list[InputRef]]],
    server: Snapshot,
    recorded: set[str],
    result: AuditReport,
    *,
    ledgers: bool,
) -> None:
    """Each aggregate was made from what clients recorded, or from what the server made of that, as a secure sum.

    `ledgers`: whether those of all clients are here, so that what none of them records was never sent.
    """
    # Where a ledger or a private file could not be read, what is missing may be there.
    hindered = any(found.level == "unknown" and found.check != "replay" for found in result.findings)
    level: Level = "unknown" if hindered else "failure"
    recorded_files = {path.name.removesuffix(_RECORD) for path, _ in made_from}
    for one in server.seen if server.has_records else ():
        if one.metadata.stage in _RECORDED and one.path.stem not in recorded_files:
            result.add(level, "lineage", one.path, "the server has no record of what it was made from")
    for path, references in made_from:
        for reference in references:
            between = server.shelf.files.get(reference.sha256 or "")
            sources = between.metadata.inputs if between is not None else [reference]
            for source in sources:
                if source.role == "model" or source.sha256 in recorded:
                    continue
                if ledgers:
                    result.add(level, "lineage", path, f"made from a {source.kind} that no client recorded")
                else:
                    result.needs("lineage", path, f"every {source.kind} that it was made from")


def _note_anchors(target: Path, result: AuditReport) -> None:
    if not result.partly_anchored and any(sent.role == "own" and not sent.is_server for sent in result.sent):
        result.add("note", "anchor", target, "no receipts: a ledger rewritten as a whole would not be noticed")


def _add_epsilons(target: Path, delta: float, result: AuditReport) -> None:
    alone = [sent.name for sent in result.sent if sent.role == "alone"]
    folder = target / OUTBOX if (target / OUTBOX).is_dir() else target
    try:
        homes = roots_of(target) if not (target / "clients").is_dir() else []
        places = [subject.base for subject in find_subjects(target, ()).all] if homes else [target]
        found = epsilons(sorted(folder.iterdir()) if alone else places, delta)
    except Exception as error:
        add_error(error, "events", target, result)
        return
    for sent in result.sent:
        sent.epsilon = found.get(sent.name)
