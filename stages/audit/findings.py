"""What an audit found, and the one line that it comes to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

# Every check, in the order in which a file meets them, with what it makes sure of. A finding names one of these.
CHECKS: dict[str, str] = {
    "outbox": "the outbox holds regular files, each an artifact",
    "chain": "no entry of a ledger was changed, removed, repeated or moved",
    "ledger": "every file is recorded, as what it is",
    "digest": "every byte is the one that was recorded",
    "custody": "every file is of the client and of a kind that may leave",
    "params": "what a file says of itself is what its stage declares",
    "tensors": "a file holds the tensors of its kind and of the model, and nothing else",
    "images": "pictures are pixels: nothing stands behind or between them",
    "disclosures": "what is told without noise is declared",
    "events": "noise that a file claims was reserved in the spend ledger",
    "budget": "what was spent is within the client's budget",
    "secrets": "no key and no seed stands in a file",
    "lineage": "everything leads back to private inputs, which the client's key opens",
    "envelopes": "a signature is on the file that it says, by the one whose file that is",
    "anchor": "the server countersigned the ledger, which has not been rewritten since",
    "replay": "the client's inputs and key give the same bytes again",
}


# What a replay can come to, from best to worst.
State = Literal["identical", "within tolerance", "not replayable", "different"]
STATES: tuple[State, ...] = get_args(State)


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
    entries: int = 0
    # Entries of the ledger that a receipt of the server vouches for, and those after that it does not yet.
    anchored: int = 0
    unanchored: int = 0
    # By unit, at the δ that was asked for; «inf» where there is none.
    epsilon: dict[str, Any] | None = None
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
            "files": self.files,
            "bytes": self.bytes,
            "rounds": sorted(self.rounds),
            "kinds": sorted(self.kinds),
            "disclosures": sorted(self.disclosures),
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

    def add(self, level: Literal["failure", "note"], check: str, where: object, what: str) -> None:
        assert check in CHECKS
        self.findings.append(Finding(level, check, str(where), what))

    @property
    def passed(self) -> bool:
        return not any(f.level == "failure" for f in self.findings)

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
        if not self.passed:
            count = sum(f.level == "failure" for f in self.findings)
            return f"FAIL: {count} failure{'s' if count > 1 else ''}; {files} files, {size:,} bytes in the outboxes"
        mark = " (simulation)" if any(s.simulation for s in self.sent) else ""
        anchor = "anchored" if self.anchored else "partly anchored" if self.partly_anchored else "unanchored"
        again = f"; {self._replayed()}" if self.replayed is not None else ""
        return f"PASS, {anchor}{mark}: {files} files, {size:,} bytes left, every one of them recorded and whole{again}"

    def _replayed(self) -> str:
        assert self.replayed is not None
        counts = ", ".join(f"{self.replayed[word]} {word}" for word in STATES if word in self.replayed)
        return f"replay: {counts or 'no files'}"

    def by_check(self) -> Iterator[tuple[str, int, int]]:
        """Each check with its failures and its notes."""
        for check in CHECKS:
            if check == "replay" and self.replayed is None:
                continue
            mine = [f.level for f in self.findings if f.check == check]
            yield check, mine.count("failure"), mine.count("note")

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
            "verdict": self.verdict,
            "checks": {check: {"failures": bad, "notes": notes} for check, bad, notes in self.by_check()},
            "findings": [vars(f) for f in self.findings],
            "sent": [s.to_json() for s in self.sent],
            "totals": [total.to_json() for total in self.totals()],
            **({"replayed": self.replayed} if self.replayed is not None else {}),
        }
