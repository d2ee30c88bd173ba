"""What an audit found, and the one line that it comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from artifacts.errors import FedsynthError, IncompleteError, VerificationError
from artifacts.kinds import KINDS
from stages.audit.subjects import Role
from stages.words import counted

# Every check, in the order in which a file meets them, with what it makes sure of. A finding names one of these.
CHECKS: dict[str, str] = {
    "outbox": "the outbox holds regular files, each an artifact",
    "chain": "no entry of a ledger was changed, removed, repeated or moved",
    "ledger": "every file is recorded, as what it is",
    "digest": "every byte is the one that was recorded",
    "custody": "every file is of the client and of a kind that may leave",
    "params": "what a file says of itself is what its stage declares",
    "tensors": "a file holds the tensors of its kind and of the model, and nothing else",
    "images": "pictures are pixels: nothing is behind or between them",
    "disclosures": "what leaves without noise is declared",
    "events": "noise that a file claims was reserved in the spend ledger",
    "budget": "what was spent is within the client's budget",
    "secrets": "no key and no seed is in a file",
    "headers": "no text of a DICOM header is in a file",
    "lineage": "everything leads back to private inputs, which the client's key opens",
    "envelopes": "a signature is on the file that it says, by the one whose file that is",
    "anchor": "the server countersigned the ledger, which has not been rewritten since",
    "replay": "inputs and keys give the same bytes again",
}


# Checks for which the records of a participant are needed: ledger, spend ledger, key and private files.
_BY_RECORDS = frozenset({"chain", "ledger", "events", "budget", "secrets", "lineage", "anchor"})

_SIGNED = frozenset(name for name, kind in KINDS.items() if kind.is_signed)

# What a replay can come to, from best to worst.
State = Literal[
    "identical", "within tolerance", "no computation", "not confirmed", "not replayable", "unfinished", "different"
]
STATES: tuple[State, ...] = get_args(State)

# «unknown» is what could not be looked at this time, «unchecked» what needs something that was not given: neither right
# nor wrong.
Level = Literal["failure", "unknown", "unchecked", "note"]
LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True)
class Finding:
    level: Level
    check: str
    where: str
    what: str


@dataclass
class Sent:
    """What left one participant."""

    name: str
    role: Role = "own"
    files: int = 0
    bytes: int = 0
    rounds: set[int] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)
    disclosures: set[str] = field(default_factory=set)
    without_noise: bool = False
    simulation: bool = False
    entries: int = 0
    # Entries of the ledger that a receipt of the server vouches for, and those after that it does not yet.
    anchored: int = 0
    unanchored: int = 0
    # By unit, at the δ that was asked for; «inf» where there is none.
    epsilon: dict[str, Any] | None = None
    # By kind, the parameters that had an effect on its files, as these state them.
    made: set[tuple[str, str]] = field(default_factory=set)
    budget: dict[str, Any] | None = None
    # (round, kind) → files, bytes
    totals: dict[tuple[int | None, str], tuple[int, int]] = field(default_factory=dict)

    @property
    def is_server(self) -> bool:
        return self.name == "server"

    def count(self, kind: str, round: int | None, size: int) -> None:
        files, total = self.totals.get((round, kind), (0, 0))
        self.totals[round, kind] = (files + 1, total + size)
        self.files += 1
        self.bytes += size
        self.kinds.add(kind)
        self.rounds |= {round} if round is not None else set()

    def to_json(self) -> dict[str, Any]:
        epsilon: Any = self.epsilon
        if epsilon is None and not self.is_server and self.files:
            epsilon = "inf" if self.without_noise else "finite"
        return {
            "name": self.name,
            "role": self.role,
            "files": self.files,
            "bytes": self.bytes,
            "rounds": sorted(self.rounds),
            "kinds": sorted(self.kinds),
            "disclosures": sorted(self.disclosures),
            "made": [{"kind": kind, "params": params} for kind, params in sorted(self.made)],
            "epsilon": epsilon,
            "budget": self.budget,
            "entries": self.entries,
            "anchored": self.anchored,
            "unanchored": self.unanchored if self.anchored else self.entries,
        }


@dataclass(frozen=True)
class Total:
    """What all clients sent of one kind in one round, or in each of several rounds that are alike."""

    rounds: tuple[int | None, int | None]
    kind: str
    files: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        return {"rounds": list(self.rounds), "kind": self.kind, "files": self.files, "bytes": self.bytes}


@dataclass
class AuditReport:
    findings: list[Finding] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    # How many files a replay gave again, by state.
    replayed: dict[str, int] | None = None
    # Of the roster by which signatures were checked, and whether it is the one that the auditor trusts.
    fingerprint: str | None = None
    trusted: bool = False
    # How many texts of DICOM headers were looked for.
    headers: int | None = None

    def add(self, level: Level, check: str, where: object, what: str) -> None:
        assert check in CHECKS
        self.findings.append(Finding(level, check, str(where), what))

    def needs(self, check: str, where: object, what: str) -> None:
        """A check that was not made, and what it would take."""
        self.add("unchecked", check, where, what)

    def add_all(self, other: AuditReport) -> None:
        """Everything that was found elsewhere, after what is here."""
        self.findings += other.findings
        self.sent += other.sent
        if other.replayed is not None:
            self.replayed = dict(Counter(self.replayed) + Counter(other.replayed))

    def count(self, level: Level) -> int:
        return sum(f.level == level for f in self.findings)

    @property
    def passed(self) -> bool:
        """Whether everything was checked, and nothing is wrong."""
        return not any(finding.level != "note" for finding in self.findings)

    @property
    def error(self) -> FedsynthError | None:
        """What the command ends with."""
        if self.passed:
            return None
        return VerificationError(self.verdict) if self.count("failure") else IncompleteError(self.verdict)

    @property
    def anchored(self) -> bool:
        """Whether the server's receipts vouch for every entry of every client that sent anything."""
        clients = [s for s in self.sent if not s.is_server and s.entries]
        return bool(clients) and all(s.anchored and not s.unanchored for s in clients)

    @property
    def partly_anchored(self) -> bool:
        return any(s.anchored for s in self.sent if not s.is_server)

    @property
    def verdict(self) -> str:
        clients = [s for s in self.sent if not s.is_server]
        files, size = sum(s.files for s in clients), sum(s.bytes for s in clients)
        there = f"{counted(files, 'file')}, {size:,} bytes in the outboxes"
        again = f"; {self._replayed()}" if self.replayed is not None else "; values not computed again (--replay)"
        again += "; identity not checked" if self.fingerprint is not None and not self.trusted else ""
        if self.count("failure"):
            more = "".join(f"; {words}" for words in self._open_questions())
            return f"FAIL: {counted(self.count('failure'), 'failure')}{more}; {there}"
        if not self.passed:
            questions = "; ".join(self._open_questions())
            return f"INCOMPLETE: {questions}; nothing that was looked at is wrong; {there}{again}"
        mark = " (simulation)" if any(s.simulation for s in self.sent) else ""
        own = [s for s in clients if s.role == "own"]
        if not own:
            there = f"{counted(files, 'file')}, {size:,} bytes received from {counted(len(clients), 'client')}"
            sent = sum(s.files for s in self.sent if s.is_server)
            return (
                f"PASS for the server{mark}: {counted(sent, 'file')} sent, every one recorded and whole; {there}{again}"
            )
        anchor = "anchored" if self.anchored else "partly anchored" if self.partly_anchored else "unanchored"
        files, size = sum(s.files for s in own), sum(s.bytes for s in own)
        left = f"{counted(files, 'file')}, {size:,} bytes left, every one of them recorded and whole"
        return f"PASS, {anchor}{mark}: {left}{again}"

    def _open_questions(self) -> Iterator[str]:
        if self.count("unknown"):
            yield f"{counted(self.count('unknown'), 'thing')} could not be checked"
        needed: dict[str, dict[str, None]] = {}
        for finding in self.findings:
            if finding.level == "unchecked":
                needed.setdefault(finding.what, {})[finding.check] = None
        for what, checks in needed.items():
            yield f"needs {what} for {', '.join(checks)}"

    def _replayed(self) -> str:
        assert self.replayed is not None
        counts = ", ".join(f"{self.replayed[word]} {word}" for word in STATES if word in self.replayed)
        return f"replay: {counts or 'no files'}"

    def by_check(self) -> Iterator[tuple[str, Counter[Level]]]:
        """Each check with its findings by level."""
        for check in CHECKS:
            if (check == "replay" and self.replayed is None) or (check == "headers" and self.headers is None):
                continue
            yield check, Counter(f.level for f in self.findings if f.check == check)

    def result_of(self, check: str, found: Mapping[Level, int]) -> str:
        """What a check came to, in a word or two."""
        if found.get("failure"):
            return counted(found["failure"], "failure")
        if found.get("unknown"):
            return f"{found['unknown']} unknown"
        if found.get("unchecked"):
            needs = dict.fromkeys(f.what for f in self.findings if f.check == check and f.level == "unchecked")
            return f"not checked: needs {', '.join(needs)}"
        word = counted(found["note"], "note") if found.get("note") else "ok"
        if check == "budget" and not any(s.budget for s in self.sent):
            word = "none set"
        if check == "envelopes" and not any(s.kinds & _SIGNED for s in self.sent) and not found.get("note"):
            word = "unsigned"
        own = [s.name for s in self.sent if s.role == "own"]
        if check in _BY_RECORDS and 0 < len(own) < len(self.sent):
            word = f"{word} for {' and '.join(own)} alone"
        return word

    def totals(self) -> list[Total]:
        """What left the clients by kind and round; rounds in a row that are alike stand together."""
        summed: dict[tuple[str, int | None], tuple[int, int]] = {}
        for sent in self.sent:
            if sent.is_server:
                continue
            for (round, kind), (files, size) in sent.totals.items():
                before = summed.get((kind, round), (0, 0))
                summed[kind, round] = (before[0] + files, before[1] + size)
        rows: list[Total] = []
        for (kind, round), (files, size) in sorted(summed.items(), key=lambda item: (item[0][0], item[0][1] or -1)):
            last = rows[-1] if rows else None
            alike = last is not None and (last.kind, last.files, last.bytes) == (kind, files, size)
            if last is not None and alike and round is not None and last.rounds[1] == round - 1:
                rows[-1] = Total((last.rounds[0], round), kind, files, size)
            else:
                rows.append(Total((round, round), kind, files, size))
        return rows

    def to_json(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "roster": {"fingerprint": self.fingerprint, "trusted": self.trusted},
            "verdict": self.verdict,
            "checks": {
                check: {
                    "failures": found["failure"],
                    "unknown": found["unknown"],
                    "unchecked": found["unchecked"],
                    "notes": found["note"],
                    "result": self.result_of(check, found),
                }
                for check, found in self.by_check()
            },
            "findings": [vars(f) for f in self.findings],
            "sent": [s.to_json() for s in self.sent],
            "totals": [total.to_json() for total in self.totals()],
            **({"replayed": self.replayed} if self.replayed is not None else {}),
            **({"header_texts": self.headers} if self.headers is not None else {}),
        }
