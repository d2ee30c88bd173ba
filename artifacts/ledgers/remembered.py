"""The last heads of a client's spend ledgers, remembered outside its folder: a ledger that was put back is found.

A copy of the folder that is restored, by an insider or innocently from a backup, brings an old spend ledger with it:
what was spent since would be forgotten, and could be spent again. So each entry is also noted in the user's state
folder (`$XDG_STATE_HOME/fedsynth/heads`, by default `~/.local/state/fedsynth/heads`): a folder a key, named by what is
derived from it, and in it a small file a ledger. Keys of a simulation are nobody's: nothing is noted.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from artifacts import limits
from artifacts.digests import canonical_json, is_sha256
from artifacts.errors import InputError, VerificationError
from artifacts.formats.plain_data import read_json
from artifacts.identity.keys import Key
from artifacts.writing import atomic

SWITCH = "FEDSYNTH_REMEMBER"
_FOLDER = "fedsynth"
_SCHEMA = "fedsynth.head/1"
_FIELDS = {"schema": str, "ledger": str, "entries": int, "second": str, "head": str}
# The first entry names the key alone; by the second the ledgers of one key differ.
_SECOND = 2


@dataclass(frozen=True)
class Remembered:
    """After so many entries the ledger at this path had this head; after two of them the head `second`."""

    path: Path
    ledger: str
    entries: int
    second: str
    head: str


class PutBackError(VerificationError):
    """A ledger that does not go on from what is remembered of it; `here` if that was at this very path."""

    def __init__(self, known: Remembered, ledger: Path, entries: int) -> None:
        self.here, self.entries_known = known.ledger == str(ledger.resolve()), known.entries
        what = f"has {entries} now" if entries < known.entries else "has others now"
        super().__init__(
            f"{ledger} is older than what this user remembers, or another: under this key it had {known.entries} "
            f"entries, as {known.path} says, and {what}. It was put back, cut or made anew, or is an earlier copy; "
            "what was spent since would be forgotten. Put the newest ledger back. If it is lost, nobody knows what was "
            "spent: count the budget of this data as used up. Who answers for the data may decide otherwise, and "
            "remove that file (docs/privacy.md)."
        )


_paused = False


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """For a replay, which works on a copy of the ledger: nothing is noted of it."""
    global _paused
    before, _paused = _paused, True
    try:
        yield
    finally:
        _paused = before


def state() -> Path:
    """The user's own state, not that of a federation."""
    given = os.environ.get("XDG_STATE_HOME", "")
    return (Path(given) if given.startswith("/") else Path("~/.local/state").expanduser()) / _FOLDER


def folder() -> Path:
    """Where heads are remembered."""
    return state() / "heads"


def known(key: Key, where: Path | None = None) -> list[Remembered]:
    """What is remembered of the ledgers of this key, here or in another folder."""
    mine = _folder_of(key, where)
    try:
        paths = sorted(path for path in mine.iterdir() if path.suffix == ".json")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InputError(f"cannot read {mine}: {error.strerror}. It says how far the spend ledger had come.") from error
    return [read(path) for path in paths]


def read(path: Path) -> Remembered:
    try:
        found = read_json(path, limits.RECORD)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}. It says how far the spend ledger had come.") from error
    if (
        not isinstance(found, dict)
        or {name: type(value) for name, value in found.items()} != _FIELDS
        or found["schema"] != _SCHEMA
        or found["entries"] < _SECOND
        or not (is_sha256(found["second"]) and is_sha256(found["head"]))
    ):
        raise InputError(f"{path} is not a head as fedsynth remembers it. It says how far the spend ledger had come.")
    return Remembered(path, found["ledger"], found["entries"], found["second"], found["head"])


def note(key: Key, ledger: Path, heads: Sequence[str]) -> None:
    """Remember the ledger, whose head after 0, 1, 2 … entries was one of `heads`. The first entry costs nothing."""
    if is_off(key) or len(heads) <= _SECOND:
        return
    there = str(ledger.resolve())
    fields = {
        "schema": _SCHEMA, "ledger": there, "entries": len(heads) - 1, "second": heads[_SECOND], "head": heads[-1],
    }  # fmt: skip
    mine = _folder_of(key, None)
    path = mine / f"{hashlib.sha256(os.fsencode(there)).hexdigest()}.json"
    with explained(path):
        atomic.make_folder(mine, mode=0o700)
        atomic.write(path, [(canonical_json(fields) + "\n").encode()], force=True, custody="private", mode=0o600)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """What cannot be written there is an `InputError` that says what it is for, and how to do without it."""
    try:
        with atomic.explained(path):
            yield
    except (InputError, OSError) as error:
        raise InputError(
            f"{error} What a spend ledger had last, and which data belong to it, is remembered there, outside the "
            "client's folder. Set "
            f"XDG_STATE_HOME to a folder that stays, or {SWITCH}=off to do without it (docs/privacy.md)."
        ) from error


def check(key: Key, ledger: Path, heads: Sequence[str], where: Path | None = None) -> None:
    """Refuse a ledger that does not go on from what is remembered of it, here or in the folder `where`."""
    if where is None and is_off(key):
        return
    for one in known(key, where):
        is_it = one.ledger == str(ledger.resolve()) or one.second in heads[_SECOND : _SECOND + 1]
        if is_it and heads[one.entries : one.entries + 1] != [one.head]:
            raise PutBackError(one, ledger, len(heads) - 1)


def is_off(key: Key) -> bool:
    """Whether nothing is to be remembered: of a simulation, in a replay, or as the user wants it."""
    said = os.environ.get(SWITCH, "on")
    if said not in ("on", "off"):
        raise InputError(f"{SWITCH} is {said!r}: it is «on», which it also is when it is not set, or «off».")
    return key.simulation or _paused or said == "off"


def _folder_of(key: Key, where: Path | None) -> Path:
    return (where or folder()) / key.derive("remembered heads").hex()
