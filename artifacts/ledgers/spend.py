"""The spend ledger: what a participant's private data has been charged for (privacy contract, rules 8 and 18).

A chained log (see `chain`) beside the key. `opened` names a key, `reserved` what a stage will cost at most, entered
before it reads the data, and `released` what came out, part by part. Nothing is ever taken out: discarded, repeated
and tuning runs stay charged. It is made with the key and never anew: a ledger that is missing may be one that was
deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from artifacts.digests import is_sha256
from artifacts.errors import InputError, VerificationError
from artifacts.identity.keys import Key
from artifacts.ledgers import chain, charged_data, remembered
from artifacts.ledgers.chain import Lines, LockedChain

_NAME = "spend.jsonl"
_FIELDS: dict[str, dict[str, type]] = {
    "opened": {"key": str},
    "reserved": {"key": str, "stage": str, "context": str, "data": list, "events": list},
    "released": {"key": str, "context": str, "part": str, "output": str, "event": str},
}
_COMMON = {"seq", "previous", "entry"}


def beside(key: Path) -> Path:
    """Where the ledger of a key is."""
    return key.with_name(_NAME)


def open_for(path: Path, key: Key) -> None:
    """Enter the key, making the ledger if there is none; a key that is entered already adds nothing."""
    with chain.locked(path, _is_entry) as log:
        if _key_id(key) not in {fields.get("key") for fields in log.read().entries}:
            log.append({"entry": "opened", "key": _key_id(key)})


def check_remembered(path: Path, key: Key, where: Path | None = None) -> None:
    """Refuse a ledger that does not go on from what is remembered of it, here or in the folder `where`."""
    remembered.check(key, path, _heads(chain.read(path, _is_entry)), where)


def _heads(lines: Lines) -> list[str]:
    """After 0, 1, 2 … entries."""
    return [*(fields["previous"] for fields in lines.entries), lines.head]


def is_unused(path: Path, key: Key) -> bool:
    """Whether the key was entered last, and nothing since."""
    entries = chain.read(path, _is_entry).entries
    return bool(entries) and (entries[-1]["entry"], entries[-1]["key"]) == ("opened", _key_id(key))


def read_charged(path: Path) -> list[list[dict[str, Any]]]:
    """The events of each reservation, by any key, without holding the ledger: for an audit."""
    return [list(fields["events"]) for fields in read_reserved(path)]


def read_reserved(path: Path) -> list[dict[str, Any]]:
    """The reservations in their order, stage and events of each, without holding the ledger."""
    return [dict(fields) for fields in chain.read(path, _is_entry).entries if fields["entry"] == "reserved"]


def read_released(path: Path, key: Key) -> list[tuple[str, str]]:
    """Context and output of everything that came out under this key, for an audit."""
    entries = chain.read(path, _is_entry).entries
    mine = (fields for fields in entries if fields["entry"] == "released" and fields["key"] == _key_id(key))
    return [(fields["context"], fields["output"]) for fields in mine]


def reserved_by_event(path: Path) -> dict[str, list[dict[str, Any]]]:
    """By the id of each event that was given out, what its computation had reserved: for an audit."""
    entries = chain.read(path, _is_entry).entries
    reserved = {
        (fields["key"], fields["context"]): fields["events"] for fields in entries if fields["entry"] == "reserved"
    }
    return {
        fields["event"]: list(reserved.get((fields["key"], fields["context"]), []))
        for fields in entries
        if fields["entry"] == "released"
    }


def commitment(path: Path, key: Key, occasion: str) -> str:
    """Binds the client to its spend ledger as it is now, for a receipt; only the key opens it, and none equals another.

    A plain digest would show whether anything was spent in between.
    """
    return _committed(chain.read(path, _is_entry).head, key, occasion)


def committed_entries(path: Path, key: Key, occasion: str, said: str) -> int | None:
    """After how many entries the ledger was what `commitment` said; None if it never was: an audit asks."""
    heads = _heads(chain.read(path, _is_entry))
    return next((number for number, head in enumerate(heads) if _committed(head, key, occasion) == said), None)


def _committed(head: str, key: Key, occasion: str) -> str:
    return hmac.new(key.derive("spend heads"), f"{head} {occasion}".encode(), hashlib.sha256).hexdigest()


@contextlib.contextmanager
def locked(path: Path, key: Key) -> Iterator[SpendLedger]:
    """Hold the ledger of `key`; one that is missing, or that is another key's, is refused."""
    if not path.exists():
        raise InputError(
            f"no spend ledger at {path}: what was spent before cannot be known. Put it back, or make a new key with "
            "fedsynth keygen, which opens one."
        )
    with chain.locked(path, _is_entry, create=False) as log:
        remembered.check(key, path, _heads(log.read()))
        book = SpendLedger(path, log, key)
        if not book.is_opened:
            raise InputError(f"{path} is the spend ledger of another key. Use the key that it was opened with.")
        yield book


class SpendLedger:
    def __init__(self, path: Path, log: LockedChain, key: Key) -> None:
        self._path, self._log, self._secret, self._key = path, log, key, _key_id(key)
        self._entries = log.read().entries

    @property
    def is_opened(self) -> bool:
        return any(fields["entry"] == "opened" and fields["key"] == self._key for fields in self._entries)

    def charged(self) -> list[list[dict[str, Any]]]:
        """The events of each reservation, in the order in which they were made."""
        return [list(fields["events"]) for fields in self._entries if fields["entry"] == "reserved"]

    def has(self, context: str, *, any_key: bool = False) -> bool:
        """Whether this very computation was reserved before: an identical rerun is free.

        `any_key`: by whatever key; for marks of what happened to the data, which no key can undo.
        """
        return any(
            self._is(fields, "reserved", context)
            or (any_key and fields["entry"] == "reserved" and fields["context"] == context)
            for fields in self._entries
        )

    def claim(self, datasets: Sequence[str]) -> None:
        """Refuse datasets, by their digests, that belong to another ledger; from now on they belong to this one."""
        charged_data.claim(self._secret, self._path, _heads(self._log.read())[1], datasets)

    def reserve(self, *, stage: str, context: str, data: Sequence[str], events: Sequence[Mapping[str, Any]]) -> None:
        self._append(
            {"entry": "reserved", "key": self._key, "stage": stage, "context": context, "data": list(data),
             "events": [dict(event) for event in events]}
        )  # fmt: skip

    def release(self, *, context: str, part: str, output: str, event: str) -> None:
        """Enter what came out, and the id of the event that says so in the file.

        Under one context the noise is one: a second, different output would uncover it.

        A computation may give out several things, such as the weights after 1,000 and after 5,000 steps; `part` names
        each, and each has one output.
        """
        before = {
            fields["output"]
            for fields in self._entries
            if self._is(fields, "released", context) and fields["part"] == part
        }
        if output in before:
            return
        if before:
            raise VerificationError(
                f"{self._path}: the same computation gave another result before. Both carry the same noise, so the "
                "new one was destroyed. Another seed or parameter draws new noise, and is charged anew."
            )
        self._append(
            {"entry": "released", "key": self._key, "context": context, "part": part, "output": output, "event": event}
        )

    def _is(self, fields: dict[str, Any], entry: str, context: str) -> bool:
        """Under another key the noise is another: that is another computation."""
        return fields["entry"] == entry and (fields["key"], fields["context"]) == (self._key, context)

    def _append(self, fields: dict[str, Any]) -> None:
        self._log.append(fields)
        remembered.note(self._secret, self._path, _heads(self._log.read()))
        self._entries = self._log.read().entries


def _key_id(key: Key) -> str:
    return key.derive("spend ledger").hex()


def _is_entry(fields: dict[str, Any]) -> bool:
    wanted = _FIELDS.get(fields["entry"]) if isinstance(fields.get("entry"), str) else None
    if wanted is None or fields.keys() != _COMMON | wanted.keys():
        return False
    if not all(type(fields[name]) is kind for name, kind in wanted.items()):
        return False
    digests = [fields[name] for name in ("key", "context", "output", "event") if name in wanted]
    events = fields.get("events", [])
    return all(is_sha256(digest) for digest in [*digests, *fields.get("data", [])]) and all(
        isinstance(event, dict) for event in events
    )
