"""`audit --replay`: files that left, computed again from what they were made from, and compared.

A client's come from its private inputs and key; the server's from what the clients sent, by the server's records.

All of it happens in a folder of the auditor's, which others cannot look into and which is deleted afterwards (privacy
contract, rule 26): nothing is written into what is audited. The spend ledger is copied there: an identical computation
is free, and if one is not identical, the charge is made in the copy and dies with it. The key is not: a link to it
is there, which is no key if the folder outlives its process.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts.digests import sha256_file
from artifacts.errors import FedsynthError, VerificationError
from artifacts.identity.keys import Key
from artifacts.kinds import KINDS
from artifacts.ledgers import chain, spend
from artifacts.metadata import InputRef, Metadata
from artifacts.places import Place
from artifacts.writing import atomic
from artifacts.writing.atomic import explained, make_folder
from artifacts.writing.scratch import cache_folder, scratch
from stages.audit.compare import largest_difference
from stages.audit.findings import STATES, AuditReport, Level, State
from stages.audit.obstacles import obstacle
from stages.audit.outbound import Seen
from stages.audit.recompute import Held, Remaking, UnreplayableError, recipe_for, remaker_of
from stages.audit.server_recompute import made_from
from stages.audit.snapshot import Snapshot
from stages.audit.surrounding_files import Given, Kept, Shelf
from stages.charging.spending import charged_to_copy
from stages.execution.versions import recorded_versions, versions
from stages.plugins import MissingPluginError, refuse_missing

if TYPE_CHECKING:
    from stages.execution.torch_setup import Device


@dataclass(frozen=True)
class ReplayOptions:
    """How much of each client is computed again (all, if `sample` is None), and what counts as the same."""

    sample: int | None = None
    tolerance: float | None = None
    seeds: tuple[int, ...] = ()
    device: Device = "auto"


@dataclass(frozen=True)
class Replayed:
    """What came of one file, in a word and in a sentence."""

    path: Path
    state: State
    what: str


@dataclass(frozen=True)
class Federation:
    """What files were made from: what everybody was given; for the server's, what it has from the clients.

    `received` are the clients' files that are at hand, `records` say who took part, `seeds` are those that private
    files and terms state, `roster` is the file with everybody's keys.
    """

    received: Sequence[Held] = ()
    records: Mapping[str, Sequence[InputRef]] = field(default_factory=dict)
    seeds: Sequence[int] = ()
    roster: Path | None = None
    given: Given | None = None


@dataclass
class Replay:
    """One participant's files, again. `tolerance` is None where nothing but the same bytes will do.

    A server may have no key: what it computes without noise needs none.
    """

    place: Place
    key: Key | None
    shelf: Shelf
    seen: Sequence[Seen]
    federation: Federation
    tolerance: float | None = None
    seeds: Sequence[int] = ()
    device: Device = "auto"

    def run(self, sample: int | None = None) -> Iterator[Replayed]:
        """All files, or so many of them that nobody could know beforehand."""
        chosen: list[Held] = [*self.seen]
        # What the server keeps for its next round goes into the next model, though no file names it.
        chosen += [kept for kept in self.shelf.files.values() if _is_server_state(kept.metadata)]
        self._own: list[Held] = [*self.seen, *self.shelf.files.values()]
        self._received = {one.sha256: one.path for one in self.federation.received}
        if sample is not None and sample < len(chosen):
            drawn = set(random.SystemRandom().sample(range(len(chosen)), sample))
            chosen = [one for number, one in enumerate(chosen) if number in drawn]
        self._done: dict[str, Replayed] = {}
        with scratch(cache_folder(), "replay") as folder:
            self._home = Place(folder / self.place.base.name)
            with explained(folder):
                make_folder(self._home.private)
                if self.key is not None:
                    self._home.key.symlink_to(self.place.key.absolute())
            book = spend.beside(self.place.key)
            if book.exists():
                atomic.write(spend.beside(self._home.key), [chain.snapshot(book)], force=True, custody="private")
            for one in chosen:
                try:
                    yield self._outbound(one)
                except Exception as error:
                    why = obstacle(error) or f"{type(error).__name__}: {error}"
                    yield Replayed(one.path, "unfinished", f"it could not be computed again: {why}")

    def _outbound(self, one: Held) -> Replayed:
        if KINDS[one.metadata.kind].is_fresh and one.metadata.custody != "downlink":
            return self._fresh(one, "keys and masks are fresh each time")
        if KINDS[one.metadata.kind].is_signed:
            return Replayed(one.path, "no computation", "a signature, which is checked instead")
        try:
            earlier = self._sources(one)
        except UnreplayableError as error:
            return Replayed(one.path, "not replayable", str(error))
        worst = max(earlier, key=lambda done: STATES.index(done.state), default=None)
        if worst is not None and worst.state in ("different", "unfinished"):
            came = "came out otherwise" if worst.state == "different" else "is not known to be right"
            return Replayed(one.path, worst.state, f"made from {worst.path.name}, which {came}: {worst.what}")
        if one.metadata.kind == "secagg-masked":
            found: State = worst.state if worst is not None else "not replayable"
            what = f"masks are fresh; its update before them: {found}"
            if found in ("identical", "within tolerance"):
                return self._fresh(one, what)
            return Replayed(one.path, found, what)
        done = self._again(one)
        if done.state == "identical" and worst is not None and worst.state != "identical":
            return Replayed(one.path, worst.state, f"it is, but {worst.path.name} before it: {worst.what}")
        return done

    def _fresh(self, one: Held, what: str) -> Replayed:
        """What no replay gives again; versions that nobody can confirm could say anything."""
        needs = self._needs(one.metadata)
        return (
            Replayed(one.path, "not confirmed", f"{what}; made{needs}")
            if needs
            else Replayed(one.path, "no computation", what)
        )

    def _sources(self, one: Held) -> list[Replayed]:
        """What the private inputs of a file gave, computed again in turn; roots, such as data, are what they are."""
        found = []
        for reference in self._made_from(one):
            kept = self._private(reference, one.metadata.round)
            if kept is not None and remaker_of(kept.metadata) is not None:
                if kept.sha256 not in self._done:
                    self._sources(kept)
                    self._done[kept.sha256] = self._again(kept)
                found.append(self._done[kept.sha256])
        return found

    def _made_from(self, one: Held) -> list[InputRef]:
        return list(made_from(one.path, one.metadata, self.federation.records, self._own))

    def _private(self, reference: InputRef, round: int | None) -> Kept | None:
        if reference.sha256 is not None:
            return self.shelf.files.get(reference.sha256)
        kept = self.shelf.opened(self.key, reference, round) if self.key is not None else None
        if kept is None:
            raise UnreplayableError(f"its input {reference.role!r} is not at hand")
        return kept

    def _again(self, one: Held) -> Replayed:
        """One file, computed again beside the others and compared."""
        path, sha256, metadata = one.path, one.sha256, one.metadata
        folder = self._home.outbox if metadata.travels else self._home.private
        recipe = Remaking(
            path, metadata, self._path_of, self.key, self.seeds, self.seen, self.device, self._made_from(one),
            self._own, self.federation.received, self.federation.roster,
        )  # fmt: skip
        charged = len(spend.read_charged(spend.beside(self._home.key)))
        needs = self._needs(metadata)
        try:
            refuse_missing(path, metadata.params)
            made = self._made(recipe, folder / path.name)
        except (UnreplayableError, MissingPluginError) as error:
            return Replayed(path, "not replayable", str(error))
        except FedsynthError as error:
            if needs and isinstance(error, VerificationError):  # of the spend ledger, which knows the other bits
                return Replayed(path, "not confirmed", f"other last bits come out{needs}")
            return Replayed(path, "unfinished" if obstacle(error) else "different", str(error))
        if any(sha256_file(one) == sha256 for one in made):
            return Replayed(path, "identical", "the same bytes")
        if len(spend.read_charged(spend.beside(self._home.key))) != charged:
            return Replayed(path, "different", "the spend ledger knows no such computation")
        done = self._compared(path, made[0])
        if needs and done.state == "different":
            return Replayed(path, "not confirmed", done.what + needs)
        return done

    def _made(self, recipe: Remaking, out: Path) -> list[Path]:
        """The file again, under the versions and the arithmetic that it names: its noise is bound to those."""
        # Events that came with its inputs are before its own.
        federation = str(recipe.metadata.privacy[-1].get("federation", "")) if recipe.metadata.privacy else ""
        with recorded_versions(recipe.metadata.versions), charged_to_copy(self._home.key, federation):
            if recipe.metadata.arithmetic is None:
                return recipe_for(recipe)(out)
            from stages.execution.torch_setup import recorded_arithmetic

            with recorded_arithmetic(recipe.metadata.arithmetic):
                return recipe_for(recipe)(out)

    def _needs(self, metadata: Metadata) -> str:
        """Which environment the file was made in, if it is another than this; else empty."""
        found = versions(*(name for name in metadata.versions if name != "fedsynth"))
        if found != dict(metadata.versions):
            return (
                f" with other versions. It was made with {_spelt(metadata)}: replay it with those, or give --tolerance"
            )
        here = self._arithmetic_here(metadata)
        if here == metadata.arithmetic:
            return ""
        made = f" on another kind of processor. It was made with «{metadata.arithmetic}»"
        return f"{made}: replay it there. Here is «{here}»"

    def _arithmetic_here(self, metadata: Metadata) -> str | None:
        """What a replay of this file computes with; None where torch is not asked."""
        if metadata.arithmetic is None:
            return None
        from stages.execution.torch_setup import arithmetic, set_up

        return arithmetic(set_up(self.device))

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
        return Replayed(path, "different", how)

    def _path_of(self, reference: InputRef, round: int | None) -> Path:
        """Where an input is: with its maker, among what it was given, or among what it sent before."""
        kept = self._private(reference, round)
        if kept is not None:
            return kept.path
        sent = next((one.path for one in self.seen if one.sha256 == reference.sha256), None)
        digest = str(reference.sha256)
        given = self.federation.given.paths.get(digest) if self.federation.given is not None else None
        found = sent or given or self._received.get(digest)
        if found is None:
            theirs = "clients'" if self.place.is_server else "server's"
            raise UnreplayableError(
                f"its input {reference.role!r} is not at hand: give the {theirs} files by --received"
            )
        return found


def _spelt(metadata: Metadata) -> str:
    return ", ".join(f"{name} {version}" for name, version in metadata.versions.items())


def _is_server_state(metadata: Metadata) -> bool:
    return metadata.kind == "state" and metadata.custody == "server"


def replay_files(snapshot: Snapshot, federation: Federation, options: ReplayOptions, result: AuditReport) -> None:
    """What a replay of one participant's files says in the report."""
    counts = result.replayed = result.replayed or {}
    subject, key = snapshot.subject, snapshot.key if isinstance(snapshot.key, Key) else None
    if subject.is_server and not snapshot.has_records:
        result.needs("replay", subject.base, "the server's records of what its files were made from")
        return
    if key is None and not subject.is_server:
        result.needs("replay", subject.base, f"the key of {subject.name}")
        return
    seeds = (*options.seeds, *snapshot.seeds, *federation.seeds)
    again = Replay(
        snapshot.place, key, snapshot.shelf, snapshot.seen, federation, options.tolerance, seeds, options.device
    )
    # What could not be confirmed is no pass, whatever the file says about why.
    levels: dict[State, Level] = {"within tolerance": "note", "no computation": "note", "different": "failure"}
    try:
        for done in again.run(options.sample):
            counts[done.state] = counts.get(done.state, 0) + 1
            if done.state != "identical":
                result.add(levels.get(done.state, "unknown"), "replay", done.path, done.what)
    except (FedsynthError, OSError) as error:
        # There is no folder to compute in.
        result.add("unknown", "replay", snapshot.place.base, f"nothing could be computed again: {error}")
