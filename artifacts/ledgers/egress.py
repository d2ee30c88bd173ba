"""The egress ledger: a chained log of everything that left (see `chain`).

The entry comes first, the file second: an entry whose file is not there is «sent or unfinished», a file without an
entry is a failure. The ledger itself is private; only its head may leave.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from artifacts.digests import canonical_json, sha256_hex
from artifacts.errors import VerificationError
from artifacts.ledgers import chain
from artifacts.ledgers.chain import LockedChain
from artifacts.metadata import Metadata

_PICKED = "picked"


@dataclass(frozen=True)
class Entry:
    """One line of the ledger; a new field is declared here, and `from_file` says what it is for a file.

    `picked`: someone who saw private data chose what of it leaves, so that no ε holds (privacy contract, 16).
    """

    seq: int
    file: str
    sha256: str
    bytes: int
    kind: str
    round: int | None
    picked: bool
    privacy: list[Any]
    disclosures: list[str]
    previous: str


@dataclass(frozen=True)
class Chain:
    """The entries of a ledger and its head: the digest of the last line."""

    entries: list[Entry]
    head: str
    unfinished_tail: bool = False

    def latest(self, file: str) -> Entry | None:
        return next((e for e in reversed(self.entries) if e.file == file), None)


# JSON's types for the annotations of `Entry`: `int | None` has two, `list[Any]` is a list.
_FIELDS: dict[str, tuple[type, ...]] = {
    name: tuple(get_origin(part) or part for part in (get_args(hint) if isinstance(hint, UnionType) else (hint,)))
    for name, hint in get_type_hints(Entry).items()
}


def from_file(metadata: Metadata, *, picked: bool) -> dict[str, Any]:
    """The fields of an entry that follow from what the file says of itself, by their names.

    `picked` is what the one who released it knows; a file that says so of itself is picked anyhow.
    """
    return {
        "kind": metadata.kind,
        "round": metadata.round,
        "picked": picked or was_picked(metadata),
        "privacy": [dict(event) for event in metadata.privacy],
        "disclosures": list(metadata.disclosures),
    }


def was_picked(metadata: Metadata) -> bool:
    """Whether the file says that someone picked it over."""
    return metadata.params.get(_PICKED) is True


def read(path: Path) -> Chain:
    """Read and check the chain; raise `VerificationError` naming the first line that does not fit."""
    lines = chain.read(path, _is_entry)
    return Chain([Entry(**fields) for fields in lines.entries], lines.head, lines.unfinished_tail)


def excerpt(lines: Sequence[Any]) -> Chain:
    """Entries of a ledger that follow one another, without those before; `VerificationError` where they do not."""
    entries: list[Entry] = []
    head = ""
    for number, fields in enumerate(lines):
        if not isinstance(fields, dict) or not _is_entry(fields):
            raise VerificationError(f"line {number + 1} of it is not a ledger entry as fedsynth writes it")
        entry = Entry(**fields)
        if entries and (entry.previous, entry.seq) != (head, entries[-1].seq + 1):
            raise VerificationError(f"line {number + 1} of it does not follow the one before")
        entries.append(entry)
        head = sha256_hex(canonical_json(fields).encode())
    if not entries:
        raise VerificationError("it has no entries")
    return Chain(entries, head)


def _is_entry(fields: Any) -> bool:
    if fields.keys() != _FIELDS.keys():
        return False
    typed = all(type(value) in _FIELDS[name] for name, value in fields.items())
    inner = typed and all(isinstance(event, dict) for event in fields["privacy"])
    return inner and all(isinstance(name, str) for name in fields["disclosures"])


@contextlib.contextmanager
def locked(path: Path) -> Iterator[LockedLedger]:
    """Hold the ledger while a file is entered and put in place, so that two writers cannot cross."""
    with chain.locked(path, _is_entry) as log:
        yield LockedLedger(log)


class LockedLedger:
    def __init__(self, log: LockedChain) -> None:
        self._log = log

    def enter(self, *, file: str, sha256: str, size: int, metadata: Metadata, picked: bool = False) -> None:
        """Append an entry, durably. The same bytes under the same name add nothing."""
        latest = self._log.latest(file)
        if latest is not None and latest["sha256"] == sha256 and (latest["picked"] or not picked):
            return
        self._log.append({"file": file, "sha256": sha256, "bytes": size, **from_file(metadata, picked=picked)})
