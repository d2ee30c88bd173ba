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

from artifacts import any_file, atomic, gate, publish
from artifacts.any_file import Whole
from artifacts.digests import sha256_file
from artifacts.errors import BudgetError, InputError, VerificationError
from artifacts.gate import By
from artifacts.kinds import KINDS
from artifacts.places import Place, in_pending
from artifacts.scratch import scratch
from stages.policy import NO_RULES, Policy, read_policy
from stages.spending import BUDGET, read_budget

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
        return self.policy.judge(self.file, self._total)

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
        """ε of everything that left, and of this file, to whom it is dearest; by PLD."""
        from stages.account import epsilon_after
        from stages.charges import read_charges

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
    if path.is_symlink() or not path.is_file():
        raise InputError(f"{path} is not a regular file.")
    file = any_file.scan(path)
    gate.check_held(path, file.sha256)
    wanted = "downlink" if place.is_server else "outbound"
    if file.metadata.custody != wanted:
        raise VerificationError(f"{path} is {file.metadata.custody}: it may not stand in an outbox.")
    return Waiting(file, place, policy)


def let_out(one: Waiting, *, by: By, seen_private: bool, force: bool = False) -> Path:
    """Move the file into the outbox: the decision is entered, then the ledger's entry, then the file."""
    picked = seen_private and one.from_data
    if picked:
        _refuse_budget(one)
    with scratch(one.place.private, "release") as folder, _copied(one, folder) as copy:
        # The very bytes may stand there already, from a release that was killed: that is finished here.
        same = one.target.exists() and sha256_file(one.target) == one.file.sha256
        atomic.refuse_existing(one.target, force=force or same)
        gate.decide(one.path, one.file.sha256, "released", by=by, seen_private=seen_private)
        publish.release(copy, one.target, one.file.metadata, picked=picked, force=force or same)
    one.path.unlink(missing_ok=True)
    atomic.sync_folder(one.place.pending)
    return one.target


def reject(one: Waiting, *, seen_private: bool) -> Path:
    """Keep the file from leaving: it moves into the private folder, and stays charged."""
    kept = one.place.private / "rejected" / f"{one.file.sha256[:8]}-{one.path.name}"
    with atomic.explained(kept):
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        gate.decide(one.path, one.file.sha256, "rejected", by="person", seen_private=seen_private)
        one.path.replace(kept)
        atomic.sync_folder(one.place.pending)
    return kept


def sheets(one: Waiting) -> list[Path]:
    """Contact sheets of the images in the file, in the private folder; none where it has no images."""
    from stages.inspect.pictures import images_in, write_sheets
    from stages.pictures.sent_images import KINDS as WITH_IMAGES

    metadata = one.file.metadata
    if metadata.kind not in WITH_IMAGES:
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
        copy.chmod(0o644)
    if sha256_file(copy) != one.file.sha256:
        raise VerificationError(f"{one.path} changed while it was looked at. Nothing left; look again.")
    yield copy


def _refuse_budget(one: Waiting) -> None:
    """Where there is a budget, a file without an ε is refused."""
    budget = read_budget(one.place.key.with_name(BUDGET))
    if budget is not None:
        raise BudgetError(
            f"the budget of ε {budget.epsilon:g} at δ {budget.delta:g} per {budget.unit} forbids this: chosen by one "
            f"who has seen private data, {one.path} would cost ∞. Let the rules decide, or someone who has not."
        )
