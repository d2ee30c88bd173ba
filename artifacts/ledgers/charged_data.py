"""Which spend ledger data belong to, remembered outside all folders: a copy of them is not charged to a second one.

A copy of a dataset beside another key has another ledger beside it, and another budget or none. So the first ledger
that a dataset is to be charged to is noted in the user's state folder (`…/fedsynth/data`, beside the heads that
`remembered` keeps): a small file for each dataset, found by its digest. A ledger that was moved is the same. Keys of a
simulation are nobody's: nothing is noted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from artifacts import limits
from artifacts.digests import canonical_json, is_sha256
from artifacts.errors import InputError, UsageError
from artifacts.formats.plain_data import read_json
from artifacts.identity.keys import Key
from artifacts.ledgers import remembered
from artifacts.writing import atomic

_SCHEMA = "fedsynth.charged/1"
_FIELDS = {"schema": str, "ledger": str, "first": str}


def claim(key: Key, ledger: Path, first: str, data: Sequence[str]) -> None:
    """Refuse datasets, by their digests, that belong to another ledger; else remember that they belong to this one.

    `first`: the ledger's head after its first entry, which names the key that it was opened with.
    """
    if remembered.is_off(key):
        return
    mine = {"schema": _SCHEMA, "ledger": str(ledger.resolve()), "first": first}
    paths = [_path_of(digest) for digest in data]
    found = {path: _read(path) for path in paths if path.exists()}
    for path, known in found.items():
        if known["ledger"] != mine["ledger"] and known["first"] != first:
            raise UsageError(
                f"these records belong to the spend ledger {known['ledger']}, and would be charged to {ledger} now: "
                "what was spent there would be forgotten, and its budget too. Use the data where that ledger is. If it "
                f"is the wrong one, remove {path}, and count what was charged to it as spent. Nothing was read."
            )
    for path in paths:
        if found.get(path) == mine:
            continue
        with remembered.explained(path):
            atomic.make_folder(path.parent, mode=0o700)
            atomic.write(path, [(canonical_json(mine) + "\n").encode()], force=True, custody="private", mode=0o600)


def _path_of(digest: str) -> Path:
    return remembered.state() / "data" / f"{hashlib.sha256(f'fedsynth/1 charged {digest}'.encode()).hexdigest()}.json"


def _read(path: Path) -> dict[str, str]:
    try:
        found = read_json(path, limits.RECORD)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read: {error}. It says which spend ledger these records belong to."
        ) from error
    is_one = isinstance(found, dict) and {name: type(value) for name, value in found.items()} == _FIELDS
    if not is_one or found["schema"] != _SCHEMA or not is_sha256(found["first"]):
        raise InputError(f"{path} is not as fedsynth writes it. It says which spend ledger these records belong to.")
    return dict(found)
