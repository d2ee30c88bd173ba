"""The gate in front of an outbox: what waits in `pending/`, and the log of what was decided about it.

The log is a chained one in the private folder (see `chain`). `held` is entered before a file appears in `pending/`, so
that whatever was changed or put there by another hand is known; `released` and `rejected` say who decided: the rules of
the policy, which read the outbound bytes alone, or a person, and whether that person had seen private data.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from artifacts import atomic, chain
from artifacts.digests import is_sha256
from artifacts.errors import VerificationError
from artifacts.places import Place, in_outbox, in_pending, pending_for

Decision = Literal["released", "rejected"]
By = Literal["rules", "person"]
_ENTRIES = ("held", "released", "rejected")
_FIELDS = {"seq", "previous", "entry", "file", "sha256", "by", "seen_private"}


def destination(path: Path) -> Path:
    """Where a file that is written to `path` stands: in `pending/` if it is meant for an outbox with a policy.

    A policy that cannot be read holds everything: only its being there counts.
    """
    place = Place.of(path)
    if place is None or not in_outbox(path) or not os.path.lexists(place.policy):
        return path
    return pending_for(path)


def make_room(path: Path) -> None:
    """The folder for a file that waits: nobody else may look into it."""
    if in_pending(path):
        with atomic.explained(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)


def log_of(place: Place) -> Path:
    return place.private / "gate.jsonl"


def hold(temporary: Path, path: Path, digest: str, *, force: bool) -> None:
    """Put a file into `pending/`, entered first."""
    place = Place.of(path)
    assert place is not None  # a path in pending/ always has one
    with chain.locked(log_of(place), _is_entry) as log:
        atomic.refuse_existing(path, force=force)
        log.append({"entry": "held", "file": path.name, "sha256": digest, "by": "", "seen_private": False})
        atomic.place(temporary, path, force=force)


def check_held(path: Path, digest: str) -> None:
    """The bytes in `pending/` are those that a stage put there last."""
    place = Place.of(path)
    assert place is not None  # as above
    held = [e for e in chain.read(log_of(place), _is_entry).entries if (e["entry"], e["file"]) == ("held", path.name)]
    if not held:
        raise VerificationError(f"{path} was put there by no stage of fedsynth: {log_of(place)} does not know it.")
    if held[-1]["sha256"] != digest:
        raise VerificationError(f"{path} is not as it was when it was held: it was changed since. Make it again.")


def decide(path: Path, digest: str, decision: Decision, *, by: By, seen_private: bool) -> None:
    """Enter what was decided about a file of `pending/`."""
    place = Place.of(path)
    assert place is not None  # as above
    fields = {"entry": decision, "file": path.name, "sha256": digest, "by": by, "seen_private": seen_private}
    with chain.locked(log_of(place), _is_entry) as log:
        log.append(fields)


def _is_entry(fields: dict[str, Any]) -> bool:
    if fields.keys() != _FIELDS or fields["entry"] not in _ENTRIES:
        return False
    known = isinstance(fields["file"], str) and is_sha256(fields["sha256"]) and fields["by"] in ("", "rules", "person")
    return known and type(fields["seen_private"]) is bool
