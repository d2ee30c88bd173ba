"""`release`: what waits in front of an outbox, and its way out: by the rules of the policy, or by a person.

A file leaves as it was held, or not at all. Its bytes are copied, checked against the log of the gate, entered in the
ledger and put in place; then it is taken out of `pending/`. Killed anywhere, the next `release` goes on.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from artifacts import publish
from artifacts.digests import sha256_file
from artifacts.errors import BudgetError, InputError, VerificationError
from artifacts.formats import any_file
from artifacts.formats.any_file import Whole
from artifacts.kinds import KINDS
from artifacts.ledgers import gate
from artifacts.ledgers.gate import By, Decision
from artifacts.places import Place, in_pending
from artifacts.writing import atomic
from artifacts.writing.scratch import scratch
from stages.charging.spending import BUDGET, read_budget
from stages.evaluate import attack_report
from stages.policy import NO_RULES, Policy, read_policy

_SHEETS = "release"  # in the private folder


@dataclass(frozen=True)
class Waiting:
    """A file that waits, found whole and as it was held."""

    file: Whole
    place: Place
    policy: Policy

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def target(self) -> Path:
        return self.place.outbox / self.path.name

    @property
    def from_data(self) -> bool:
        return KINDS[self.file.metadata.kind].from_data

    @cached_property
    def judged(self) -> tuple[int | None, str]:
        """The number of the rule that lets it leave, and words."""
        return self.policy.judge(
            self.file, self._total, lambda: attack_report.reached(self.place.private, self.file.sha256)
        )

    @property
    def rule_saw_data(self) -> bool:
        """Whether the rule that lets it leave goes by attacks, which saw private data."""
        return self.policy.saw_data(self.judged[0])

    def described(self) -> dict[str, Any]:
        """What a person should know before saying yes."""
        metadata = self.file.metadata
        rule, words = self.judged
        return {
            "file": str(self.path),
            "kind": metadata.kind,
            "about": KINDS[metadata.kind].text,
            "round": metadata.round,
            "bytes": self.file.size,
            "sha256": self.file.sha256,
            "disclosures": list(metadata.disclosures),
            "epsilon": self._epsilon(),
            "rule": rule,
            "policy": words,
        }

    def _epsilon(self) -> str:
        metadata, delta = self.file.metadata, self.policy.delta
        if not self.from_data:
            return "none"
        if metadata.disclosures or not metadata.privacy:
            return "∞"
        if delta is None:
            return "by its events"
        total = self._total(delta)
        return "∞ with what left before" if math.isinf(total) else f"{total:.3f} with what left before, δ {delta:g}"

    def _total(self, delta: float) -> float:
        """ε of everything that left, and of this file, for the unit that it costs most; by PLD."""
        from stages.run_folder.charges import read_charges
        from stages.run_folder.totals import epsilon_after

        before = [self.place.base] if self.place.outbox.is_dir() else []
        charged = read_charges([*before, self.path]).charged
        units: list[str] = sorted({event.unit for one in charged for event in one.events}) or [""]
        last = max((one.round for one in charged), default=0)
        try:
            return max(epsilon_after(charged, unit, last, delta)[0].pld for unit in units)
        except ValueError as error:
            raise InputError(f"{self.path}: {error}.") from error


def waiting(targets: Sequence[Path]) -> list[Path]:
    """The files that wait: those given, and all in the `pending/` of folders that are given."""
    found: list[Path] = []
    for target in targets:
        if target.is_dir():
            pending = target if target.name == "pending" else target / "pending"
            if not pending.is_dir() and not (target / "private").is_dir():
                raise InputError(f"{target} is no participant's folder: it has neither pending/ nor private/.")
            there = pending.iterdir() if pending.is_dir() else ()
            found += sorted(path for path in there if not path.name.startswith("."))
        elif in_pending(target):
            found.append(target)
        else:
            raise InputError(f"{target} does not wait for anything: it is not in a folder named pending/.")
    return found


def look(path: Path) -> Waiting:
    """Check a file that waits: whole, as it was held, by the owner of the folder."""
    place = Place.of(path)
    assert place is not None  # it is in pending/
    policy = read_policy(place.policy) if os.path.lexists(place.policy) else NO_RULES
    if not os.path.lexists(path):
        raise gate.gone(path)
    if path.is_symlink() or not path.is_file():
        raise InputError(f"{path} is not a regular file.")
    file = any_file.scan(path)
    gate.check_held(path, file.sha256)
    wanted = "downlink" if place.is_server else "outbound"
    if file.metadata.custody != wanted:
        raise VerificationError(f"{path} is {file.metadata.custody}: it may not be in an outbox.")
    return Waiting(file, place, policy)


def let_out(one: Waiting, *, by: By, seen_private: bool, force: bool = False) -> Path:
    """Move the file into the outbox: the decision is entered, then the ledger's entry, then the file."""
    picked = seen_private and one.from_data
    if picked:
        _refuse_budget(one)
    with (
        gate.deciding(one.path, one.file.sha256) as decide,
        scratch(one.place.private, "release") as folder,
        _copied(one, folder) as copy,
    ):
        # The very bytes may be there already, from a release that was killed: that is finished here.
        atomic.refuse_other(one.target, one.file.sha256, force=force)
        decide("released", by, seen_private)
        publish.release(copy, one.target, one.file.metadata, picked=picked, force=force)
        atomic.remove(one.path)
        with atomic.explained(one.path, "remove"):
            atomic.sync_folder(one.place.pending)
    return one.target


def reject(one: Waiting, *, seen_private: bool) -> Path:
    """Keep the file from leaving: it moves into the private folder, and stays charged."""
    kept = _rejected(one.place, one.path, one.file.sha256)
    with gate.deciding(one.path, one.file.sha256) as decide, atomic.explained(kept):
        atomic.make_folder(kept.parent)
        decide("rejected", "person", seen_private)
        one.path.replace(kept)
        atomic.sync_folder(kept.parent)
        atomic.sync_folder(one.place.pending)
    return kept


def _rejected(place: Place, path: Path, sha256: str) -> Path:
    return place.private / "rejected" / f"{sha256[:8]}-{path.name}"


def settled(path: Path, decision: Decision) -> Path | None:
    """Where the file went, if this was decided of it before; None where it waits, or went another way."""
    place = Place.of(path)
    assert place is not None  # it was in pending/
    last = None if os.path.lexists(path) else gate.last_entry(path)
    if last is None or last["entry"] != decision:
        return None
    there = place.outbox / path.name if decision == "released" else _rejected(place, path, last["sha256"])
    with atomic.explained(there, "read"):
        if not there.is_file() or sha256_file(there) != last["sha256"]:
            return None
        for folder in (there.parent, place.pending):
            atomic.sync_folder(folder)  # the process that moved it may have been killed before
    return there


def sheets(one: Waiting) -> list[Path]:
    """Contact sheets of the images in the file, in the private folder; none where it has no images."""
    from stages.inspect.pictures import images_in, write_sheets

    metadata = one.file.metadata
    if KINDS[metadata.kind].pictures is None:
        return []
    about = {"file": str(one.path), "artifact": True, "kind": metadata.kind, "client": metadata.client}
    content = images_in(about)
    out = one.place.private / _SHEETS / f"{one.path.stem}.png"
    return write_sheets(content, about, out, force=True) if len(content) else []


@contextmanager
def _copied(one: Waiting, folder: Path) -> Iterator[Path]:
    """A copy that nobody else writes to, found to be the bytes that were looked at."""
    copy = folder / one.path.name
    with atomic.explained(one.target):
        shutil.copyfile(one.path, copy)
        with copy.open("rb") as handle:
            os.fsync(handle.fileno())
    if sha256_file(copy) != one.file.sha256:
        raise VerificationError(f"{one.path} changed while it was looked at. Nothing left; look again.")
    yield copy


def _refuse_budget(one: Waiting) -> None:
    """Where there is a budget, a file without an ε is refused."""
    budget = read_budget(one.place.key.with_name(BUDGET))
    if budget is not None:
        raise BudgetError(
            f"the budget of ε {budget.epsilon:g} at δ {budget.delta:g} per {budget.unit} forbids this: chosen by one "
            f"who has seen private data, or by a rule that goes by attacks, {one.path} would cost ∞. Let rules "
            "decide that read outbound bytes alone, or someone who has not."
        )
