"""What left each participant: a row a file, from its ledger and from what is in its outbox."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from artifacts import limits
from artifacts.digests import sha256_file
from artifacts.errors import FedsynthError
from artifacts.formats import describe, survey
from artifacts.kinds import KINDS
from artifacts.ledgers import egress
from artifacts.metadata import Metadata
from artifacts.places import Place
from stages.privacy.accountant import Epsilon, epsilon
from stages.privacy.events import PLANNED_ID, PrivacyEvent, distinct
from stages.words import epsilon_words

REPLACED = "replaced"  # it left, and another file has its name now
_LONG = 40  # files of one participant; of a longer list, rounds that differ in nothing but their number are one row


@dataclass(frozen=True)
class SentFile:
    """`status` is empty for a file that is in the outbox and, where there is one, in the ledger."""

    who: str
    file: str
    kind: str
    round: int | None
    size: int
    disclosures: tuple[str, ...]
    events: tuple[Mapping[str, Any], ...]
    picked: bool
    sha256: str
    status: str = ""


@dataclass(frozen=True)
class Row:
    """One line of the table: a file, or files of consecutive rounds that are alike."""

    rounds: str
    file: str
    count: int
    kind: str
    size: int
    disclosures: tuple[str, ...]
    epsilon: str
    status: str


def read_sent(place: Place, *, has_ledger: bool = True) -> list[SentFile]:
    """By round and name. A ledger that cannot be read is the audit's to report; the outbox is listed all the same.

    `has_ledger` is false for what somebody else sent, and for an outbox alone: their ledger is elsewhere.
    """
    try:
        recorded = egress.read(place.ledger).entries
    except FedsynthError:
        recorded = []
    entries = {(entry.file, entry.sha256): entry for entry in recorded}
    newest = {entry.file: entry.sha256 for entry in recorded}
    present = {path.name: path for path in place.outbox.iterdir()} if place.outbox.is_dir() else {}
    who = place.base.name
    found = [
        SentFile(
            who, e.file, e.kind, e.round, e.bytes, tuple(e.disclosures), tuple(e.privacy), e.picked, e.sha256,
            REPLACED if e.sha256 != newest[e.file] else "" if e.file in present else "sent or unfinished",
        )
        for e in entries.values()
    ]  # fmt: skip
    for name, path in present.items():
        if name not in newest:
            found.append(_unrecorded(who, path, "not in the ledger" if has_ledger else ""))
    return sorted(found, key=lambda file: (file.round or 0, file.file))


def _unrecorded(who: str, path: Path, status: str) -> SentFile:
    size = path.lstat().st_size
    metadata = metadata_of(path)
    if metadata is None:
        return SentFile(who, path.name, "unreadable", None, size, (), (), False, "", status)
    stated = metadata.disclosures, metadata.privacy, egress.was_picked(metadata)
    return SentFile(who, path.name, metadata.kind, metadata.round, size, *stated, digest_of(path), status)


def digest_of(path: Path) -> str:
    """Of a file beyond the limits only if it is a whole artifact, which is known before it is read; else no digest."""
    if path.stat().st_size <= limits.FILE.most:
        return sha256_file(path)
    try:
        return survey(path)[0]
    except FedsynthError:
        return f"not read: {path}"


def metadata_of(path: Path) -> Metadata | None:
    """What a file says it is; None where it is not there, damaged, or none of ours."""
    if path.is_symlink() or not path.is_file():
        return None
    try:
        return describe(path).metadata
    except FedsynthError:
        return None


def table(files: Sequence[SentFile], delta: float | None) -> list[Row]:
    """The rows of one participant's table."""
    if len(files) <= _LONG:
        return [_row([file], delta) for file in files]
    by_kind = sorted(files, key=lambda file: (file.kind, file.round or 0, file.file))
    return [_row(list(run), delta) for _, run in groupby(by_kind, key=lambda file: _alike(file, delta))]


def _alike(file: SentFile, delta: float | None) -> tuple[Any, ...]:
    return file.kind, file.size, file.disclosures, cost(file, delta), file.status


def _row(files: Sequence[SentFile], delta: float | None) -> Row:
    first, last = files[0], files[-1]
    rounds = "–" if first.round is None else str(first.round)
    name = first.file
    if len(files) > 1:
        rounds = f"{first.round}–{last.round}"
        name = f"{first.file} … {last.file}"
    size = sum(file.size for file in files)
    return Row(rounds, name, len(files), first.kind, size, first.disclosures, cost(first, delta), first.status)


def tells_nothing(file: SentFile) -> bool:
    """Whether no private record can change a bit of it: signatures, fresh keys."""
    kind = KINDS.get(file.kind)
    return kind is not None and not kind.from_data and not file.events and not file.disclosures


def is_uncovered(file: SentFile) -> bool:
    """Whether something in it depends on private data and has no noise."""
    return not tells_nothing(file) and (bool(file.disclosures) or file.picked or not file.events)


def cost(file: SentFile, delta: float | None) -> str:
    """ε of this file alone, in a word or two; `account` adds them up."""
    if tells_nothing(file):
        return "0"
    if file.who == "server" and not file.events:
        return "–"
    if is_uncovered(file):
        return "∞"
    if delta is None:
        return "finite"
    try:
        events = distinct(PrivacyEvent.from_json(event) for event in file.events)
    except (ValueError, TypeError, AttributeError):
        return "not understood"
    costs = []
    for unit in dict.fromkeys(event.unit for event in events):
        mine = [event for event in events if event.unit == unit]
        plain = json.dumps([dataclasses.asdict(dataclasses.replace(event, id=PLANNED_ID)) for event in mine])
        costs.append(f"{epsilon_words(_epsilon(plain, delta).pld)} a {unit}")
    return ", ".join(costs)


@lru_cache(maxsize=4096)
def _epsilon(plain: str, delta: float) -> Epsilon:
    """Messages of a hundred rounds have one cost: a loss distribution takes a tenth of a second."""
    events = json.loads(plain)
    return epsilon(
        [PrivacyEvent.from_json(event | {"id": f"{number:064x}"}) for number, event in enumerate(events)], delta=delta
    )


def totals_by_round(files: Sequence[SentFile]) -> Iterator[dict[str, Any]]:
    """What all clients together sent: files, bytes and kinds, round by round; first what belongs to no round."""
    ordered = sorted(files, key=lambda file: file.round or 0)
    for number, members in groupby(ordered, key=lambda file: file.round or 0):
        group = list(members)
        yield {
            "round": number,
            "clients": len({file.who for file in group}),
            "files": len(group),
            "bytes": sum(file.size for file in group),
            "kinds": sorted({file.kind for file in group}),
        }
