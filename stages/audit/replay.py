"""`audit --replay`: files that left, computed again from the client's private inputs and key, and compared.

All of it happens in a folder inside the client's private one, which others cannot look into and which is deleted
afterwards (privacy contract, rule 26). The key and the spend ledger are copied there: an identical computation is free,
and if one is not identical, the charge is made in the copy and dies with it.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts import keys, spend
from artifacts.digests import sha256_file
from artifacts.errors import FedsynthError
from artifacts.keys import Key
from artifacts.metadata import InputRef, Metadata
from artifacts.places import Place
from artifacts.scratch import scratch
from stages.audit.compare import largest_difference
from stages.audit.findings import STATES, State
from stages.audit.outbound import Seen
from stages.audit.recompute import Recipe, UnreplayableError, recipe_for
from stages.audit.shelves import Given, Kept, Shelf
from stages.versions import versions

if TYPE_CHECKING:
    from stages.torch_setup import Device

# Fresh keys and masks come from the operating system and are forgotten.
_FRESH = ("secagg-keys", "secagg-shares", "secagg-survivors", "secagg-unmask")
_SIGNED = ("head", "receipt", "envelope")


@dataclass(frozen=True)
class Replayed:
    """What came of one file, in a word and in a sentence."""

    path: Path
    state: State
    what: str


@dataclass
class Replay:
    """One client's files, again. `tolerance` is None where nothing but the same bytes will do."""

    place: Place
    key: Key
    shelf: Shelf
    given: Given | None
    seen: Sequence[Seen]
    tolerance: float | None = None
    seeds: Sequence[int] = ()
    device: Device = "auto"

    def run(self, sample: int | None = None) -> Iterator[Replayed]:
        """All files, or so many of them that nobody could know beforehand."""
        chosen = list(self.seen)
        if sample is not None and sample < len(chosen):
            drawn = set(random.SystemRandom().sample(range(len(chosen)), sample))
            chosen = [one for number, one in enumerate(chosen) if number in drawn]
        self._done: dict[str, Replayed] = {}
        with scratch(self.place.private, "replay") as folder:
            self._home = Place(folder / self.place.base.name)
            self._home.private.mkdir(parents=True)
            keys.write(self._home.key, self.key)
            book = spend.beside(self.place.key)
            if book.exists():
                shutil.copyfile(book, spend.beside(self._home.key))
            for one in chosen:
                yield self._outbound(one)

    def _outbound(self, one: Seen) -> Replayed:
        if one.metadata.kind in _FRESH:
            return Replayed(one.path, "not replayable", "keys and masks are fresh each time")
        if one.metadata.kind in _SIGNED:
            return Replayed(one.path, "not replayable", "no computation: its signature is checked instead")
        try:
            earlier = self._sources(one.metadata)
        except UnreplayableError as error:
            return Replayed(one.path, "not replayable", str(error))
        worst = max(earlier, key=lambda done: STATES.index(done.state), default=None)
        if worst is not None and worst.state == "different":
            return Replayed(
                one.path, "different", f"made from {worst.path.name}, which came out otherwise: {worst.what}"
            )
        if one.metadata.kind == "secagg-masked":
            found = worst.state if worst is not None else "not replayable"
            return Replayed(one.path, "not replayable", f"masks are fresh; its update before them: {found}")
        done = self._again(one.path, one.sha256, one.metadata)
        if done.state == "identical" and worst is not None and worst.state != "identical":
            return Replayed(one.path, worst.state, f"it is, but {worst.path.name} before it: {worst.what}")
        return done

    def _sources(self, metadata: Metadata) -> list[Replayed]:
        """What the private inputs of a file gave, computed again in turn; roots, such as data, are what they are."""
        found = []
        for reference in metadata.inputs:
            kept = self._private(reference, metadata.round)
            if kept is not None and kept.metadata.stage in ("train-client", "train-generator", "synthesize", "encode"):
                if kept.sha256 not in self._done:
                    self._sources(kept.metadata)
                    self._done[kept.sha256] = self._again(kept.path, kept.sha256, kept.metadata)
                found.append(self._done[kept.sha256])
        return found

    def _private(self, reference: InputRef, round: int | None) -> Kept | None:
        if reference.sha256 is not None:
            return self.shelf.files.get(reference.sha256)
        kept = self.shelf.opened(self.key, reference, round)
        if kept is None:
            raise UnreplayableError(f"its input {reference.role!r} is not at hand")
        return kept

    def _again(self, path: Path, sha256: str, metadata: Metadata) -> Replayed:
        """One file, computed again beside the others and compared."""
        folder = self._home.outbox if metadata.custody == "outbound" else self._home.private
        here = versions(*(name for name in metadata.versions if name != "fedsynth")) == dict(metadata.versions)
        if not here and (metadata.privacy or self.tolerance is None):
            why = "its noise is bound to them" if metadata.privacy else "give --tolerance to compare all the same"
            return Replayed(path, "not replayable", f"made with other versions ({_spelt(metadata)}): {why}")
        recipe = Recipe(path, metadata, self._path_of, self.key, self.seeds, self.seen, self.device)
        charged = len(spend.read_charged(spend.beside(self._home.key)))
        try:
            made = recipe_for(recipe)(folder / path.name)
        except UnreplayableError as error:
            return Replayed(path, "not replayable", str(error))
        except FedsynthError as error:
            return Replayed(path, "different", str(error))
        if any(sha256_file(one) == sha256 for one in made):
            return Replayed(path, "identical", "the same bytes")
        if len(spend.read_charged(spend.beside(self._home.key))) != charged:
            return Replayed(path, "different", "the spend ledger knows no such computation")
        return self._compared(path, made[0])

    def _compared(self, path: Path, made: Path) -> Replayed:
        difference = largest_difference(path, made)
        if difference is None:
            return Replayed(path, "different", "other tensors, rows or labels come out")
        if self.tolerance is not None and difference <= self.tolerance:
            return Replayed(
                path, "within tolerance", f"values differ by at most {difference:.1e} of the largest, which proves "
                "neither that no bits are hidden nor that noise was right",
            )  # fmt: skip
        how = f"values differ by up to {difference:.1e} of the largest" if difference else "the metadata differ"
        return Replayed(path, "different", f"{how}. From another machine? --tolerance says how much is allowed")

    def _path_of(self, reference: InputRef, round: int | None) -> Path:
        """Where an input stands: with the client, among what it was given, or among what it sent before."""
        kept = self._private(reference, round)
        if kept is not None:
            return kept.path
        sent = next((one.path for one in self.seen if one.sha256 == reference.sha256), None)
        given = self.given.paths.get(str(reference.sha256)) if self.given is not None else None
        if sent is None and given is None:
            raise UnreplayableError(
                f"its input {reference.role!r} is not at hand: give the server's files by --received"
            )
        return sent or given or Path()


def _spelt(metadata: Metadata) -> str:
    return ", ".join(f"{name} {version}" for name, version in metadata.versions.items())
