"""One party of a federation by files: its name, key, roster, terms, and the parcels that it sends and takes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifacts.digests import sha256_hex
from artifacts.errors import InputError, UsageError
from artifacts.formats.plain_data import read_json
from artifacts.identity import keys
from artifacts.identity.keys import Key
from artifacts.identity.roster import Roster, public_half, read_roster
from artifacts.places import SERVER, Place, RunFolder
from artifacts.writing import atomic
from stages.federate.drop import SUFFIX, DropFolder, Label, digest_of
from stages.federate.parcels import ParcelError
from stages.federate.sealed import Address, address_of, check_address, seal, unseal
from stages.federate.terms import FILE, Terms, read_terms
from stages.run_folder.files import ROSTER

_MOST_FILES = 16  # of the largest size, in one parcel


def place_of(home: Path, client: str | None, terms: Terms) -> tuple[str, Place]:
    """Whose home this is: the server's or a client's, by the key that is in it. A name that was given must be right."""
    folder = RunFolder(home)
    found = [name for name in folder.client_names() if name in terms.participants and folder.client(name).key.exists()]
    if client is None and folder.server.key.exists():
        return SERVER, folder.server
    if client is None and len(found) != 1:
        raise UsageError(
            f"{home} holds the keys of {len(found)} participants of {home / FILE}, which leaves open whose it is. "
            "Give --client NAME, or make the key: fedsynth keygen."
        )
    name = client if client is not None else found[0]
    if name not in terms.participants:
        raise UsageError(f"--client {name}: not in {home / FILE}, whose clients are {', '.join(terms.participants)}.")
    if not folder.client(name).key.exists() and found:
        raise UsageError(f"--client {name}: {home} is the home of {', '.join(found)}; it has no key of {name!r}.")
    return name, folder.client(name)


def check_key(name: str, place: Place, roster: Roster) -> Key:
    """The party's key, if it is the one by which the others know it."""
    key = keys.read(place.key)
    known = roster.of(name, "parcels")
    if known is None:
        raise InputError(
            f"{roster.path} has no key for parcels of {name!r}. Write its identity with this version of fedsynth "
            "(fedsynth identity), and the roster anew."
        )
    if known != public_half(key, "parcels"):
        raise UsageError(f"{place.key} is not the key of {name!r} in {roster.path}: this is another party's home.")
    return key


def recall(place: Place, read: Callable[[dict[str, Any]], Any]) -> Any:
    """What a party remembered at its last call, as `read` makes it; of nothing, the first time."""
    path = _memory(place)
    try:
        return read(read_json(path) if path.exists() else {})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path} is damaged ({error}). Restore it from a copy of this home.") from error


def connected_file(place: Place) -> Path:
    """Whose nodes were there when the server last looked, where Flower carries the parcels."""
    return place.private / "parcels" / "connected.json"


def _memory(place: Place) -> Path:
    return place.private / "step.json"


@dataclass
class Party:
    """`refused` collects why parcels were not taken, by their names."""

    name: str
    place: Place
    key: Key
    roster: Roster
    terms: Terms
    drop: DropFolder
    refused: dict[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, home: Path, drop: str, client: str | None) -> Party:
        terms = read_terms(home / FILE)
        name, place = place_of(home, client, terms)
        if not (home / ROSTER).exists():
            raise InputError(f"no roster at {home / ROSTER}: parcels are sealed and signed with the keys in it.")
        roster = read_roster(home / ROSTER)
        roster.refuse_expired()
        return cls(name, place, check_key(name, place, roster), roster, terms, DropFolder(drop, roster.federation))

    def address(self, label: Label, round: int, answers: str = "") -> Address:
        return Address(
            self.roster.federation, self.terms.digest, round, label.exchange, label.sender, label.recipient, answers
        )

    def seal(self, label: Label, message: bytes, *, round: int, size: int, answers: str = "") -> str:
        """Seal a message and keep the parcel, until it is sent and has done its work; its digest."""
        data = seal(message, self.address(label, round, answers), size=size, key=self.key, roster=self.roster)
        atomic.write(self._kept(label), [data], force=True, custody="private")
        return sha256_hex(data)

    def open(self, label: Label, *, round: int | None, answers: str = "", done: str = "") -> tuple[bytes, str] | None:
        """The message of a parcel, and its digest. None if it is refused, and why is said; or if it is `done`."""
        name = self.drop.name(label)
        try:
            data = self.drop.read(label, self.most_bytes)
            digest = sha256_hex(data)
            if digest == done:
                return None
            found = address_of(data)
            check_address(found, self.address(label, found.round if round is None else round, answers))
            return unseal(data, key=self.key, roster=self.roster), digest
        except ParcelError as error:
            self.refused[name] = f"{name} was refused: {error}"
            return None

    @property
    def most_bytes(self) -> int:
        """Of a parcel."""
        return _MOST_FILES * self.terms.most_bytes + 2**20

    def send(self, labels: Iterable[Label], exchange: int) -> int:
        """Make sure that these parcels of ours are in the drop folder, and none of earlier exchanges; their bytes."""
        total = 0
        for label in labels:
            kept = self._kept(label)
            if kept.exists():
                self.drop.keep(label, kept)
                total += kept.stat().st_size
        for label in self.drop.labels(sender=re.escape(self.name)):
            if label.exchange < exchange:
                self.drop.remove(label)
        for path in self._kept_files():
            if int(path.name.partition("-")[0]) < exchange:
                atomic.remove(path)
        return total

    def ours(self) -> list[tuple[Label, int, str]]:
        """The parcels of our newest exchange, with size and digest."""
        found = {path: re.fullmatch(r"(\d+)-to-(.+)", path.name.removesuffix(SUFFIX)) for path in self._kept_files()}
        labels = {path: Label(int(m[1]), self.name, m[2]) for path, m in found.items() if m}
        newest = max((label.exchange for label in labels.values()), default=0)
        return [
            (label, path.stat().st_size, digest_of(path))
            for path, label in sorted(labels.items())
            if label.exchange == newest
        ]

    def piece(self, label: Label, offset: int, most: int) -> bytes:
        """Of a parcel of ours."""
        path = self._kept(label)
        with atomic.explained(path, "read"), path.open("rb") as handle:
            handle.seek(offset)
            return handle.read(most)

    def from_server(self, name: str) -> Label | None:
        """The label of a parcel to us, if this is the name of one."""
        number = re.search(r"\.(\d{6,9})-", name)
        label = Label(int(number[1]), SERVER, self.name) if number else None
        return label if label is not None and self.drop.name(label) == name else None

    def remember(self, said: dict[str, Any]) -> None:
        text = json.dumps(said, indent=2, ensure_ascii=False) + "\n"
        atomic.write(_memory(self.place), [text.encode()], force=True, custody="private")

    @property
    def _folder(self) -> Path:
        return self.place.private / "parcels"

    def _kept_files(self) -> list[Path]:
        return list(self._folder.glob(f"*{SUFFIX}")) if self._folder.is_dir() else []

    def _kept(self, label: Label) -> Path:
        return self._folder / f"{label.exchange:06}-to-{label.recipient}{SUFFIX}"
