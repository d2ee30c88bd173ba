"""The gate in front of an outbox: what waits in `pending/`, and the log of what was decided about it.

The log is a chained one in the private folder (see `chain`). `held` is entered before a file appears in `pending/`, so
that whatever was changed or put there by another hand is known; `released` and `rejected` say who decided, the rules of
the policy or a person, and whether that person, or an attack that a rule goes by, had seen private data.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from artifacts.digests import is_sha256
from artifacts.errors import InputError, VerificationError
from artifacts.ledgers import chain
from artifacts.places import Place, in_outbox, pending_for
from artifacts.writing import atomic

Decision = Literal["released", "rejected"]
By = Literal["rules", "person"]
Decide = Callable[[Decision, By, bool], None]
_ENTRIES = ("held", "released", "rejected")
_FIELDS = {"seq", "previous", "entry", "file", "sha256", "by", "seen_private"}


def destination(path: Path) -> Path:
    """Where a file that is written to `path` is: in `pending/` if it is meant for an outbox with a policy.

    A policy that cannot be read holds everything: only its being there counts.
    """
    place = Place.of(path)
    if place is None or not in_outbox(path) or not os.path.lexists(place.policy):
        return path
    return pending_for(path)


def log_of(place: Place) -> Path:
    return place.private / "gate.jsonl"


def hold(temporary: Path, path: Path, digest: str, *, force: bool) -> None:
    """Put a file into `pending/`, entered first; not if the very same has left already."""
    place = Place.of(path)
    assert place is not None  # a path in pending/ always has one
    with chain.locked(log_of(place), _is_entry) as log:
        for taken in (place.outbox / path.name, path):
            atomic.refuse_other(taken, digest, force=force)
        if not force and (place.outbox / path.name).exists():
            atomic.note_kept(place.outbox / path.name)
            return
        with atomic.explained(path):
            atomic.make_folder(path.parent)
        _enter(log, {"entry": "held", "file": path.name, "sha256": digest, "by": "", "seen_private": False})
        atomic.place(temporary, path, force=force)


def last_entry(path: Path) -> dict[str, Any] | None:
    """What was entered last of a file that waits or waited."""
    place = Place.of(path)
    assert place is not None  # as above
    entries = chain.read(log_of(place), _is_entry).entries
    return next((entry for entry in reversed(entries) if entry["file"] == path.name), None)


def released(place: Place) -> dict[tuple[str, str], dict[str, Any]]:
    """The decisions by which files left, by name and digest; nothing of what waits or was rejected."""
    entries = chain.read(log_of(place), _is_entry).entries
    return {(entry["file"], entry["sha256"]): entry for entry in entries if entry["entry"] == "released"}


def check_held(path: Path, digest: str) -> None:
    """The bytes in `pending/` are those that a stage put there last."""
    place = Place.of(path)
    assert place is not None  # as above
    held = [e for e in chain.read(log_of(place), _is_entry).entries if (e["entry"], e["file"]) == ("held", path.name)]
    if not held:
        raise VerificationError(f"{path} was put there by no stage of fedsynth: {log_of(place)} does not know it.")
    if held[-1]["sha256"] != digest:
        raise VerificationError(f"{path} is not as it was when it was held: it was changed since. Make it again.")


@contextlib.contextmanager
def deciding(path: Path, digest: str) -> Iterator[Decide]:
    """Hold the gate from the last look at a file of `pending/` until it was decided and moved.

    Another decision at the same moment waits for this one, and then finds the file gone.
    """
    place = Place.of(path)
    assert place is not None  # as above
    with chain.locked(log_of(place), _is_entry) as log:
        if not os.path.lexists(path):
            raise gone(path)
        check_held(path, digest)

        def decide(decision: Decision, by: By, seen_private: bool) -> None:
            _enter(
                log,
                {"entry": decision, "file": path.name, "sha256": digest, "by": by, "seen_private": seen_private},
            )

        yield decide


def gone(path: Path) -> InputError:
    """For a file that waited a moment ago."""
    last = last_entry(path)
    decided = last["entry"] if last is not None and last["entry"] != "held" else "taken away"
    return InputError(f"{path} waits no more: somebody else was faster, and it was {decided}. Nothing was done.")


def _enter(log: chain.LockedChain, fields: dict[str, Any]) -> None:
    """Enter it, unless that was the last that was entered of the file: a step that was interrupted is done again."""
    before = [entry for entry in log.read().entries if entry["file"] == fields["file"]]
    if not before or {name: before[-1][name] for name in fields} != fields:
        log.append(fields)


def _is_entry(fields: dict[str, Any]) -> bool:
    if fields.keys() != _FIELDS or fields["entry"] not in _ENTRIES:
        return False
    known = isinstance(fields["file"], str) and is_sha256(fields["sha256"]) and fields["by"] in ("", "rules", "person")
    return known and type(fields["seen_private"]) is bool
