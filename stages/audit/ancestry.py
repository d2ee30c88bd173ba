"""Where files come from: inputs lead to files that are there, and private ones are named by commitments that open."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field

from artifacts.identity.keys import Key
from artifacts.kinds import KINDS
from artifacts.metadata import InputRef, Metadata
from stages.audit.outbound import Seen
from stages.audit.surrounding_files import Given, Kept, Shelf


@dataclass
class Ancestry:
    """What one participant can have made its files from. `key` is None where commitments must stay closed.

    `given` is None where nobody knows what the server sent: a client's folder alone.
    """

    key: Key | None
    shelf: Shelf
    given: Given | None
    # The digests in its own ledger: what it goes on from may be what it sent before. None where there is no ledger.
    own: set[str] | None
    # For the server: the digests that clients recorded.
    received: Set[str] = field(default_factory=set)

    def check(self, seen: Seen) -> Iterator[str]:
        """What is wrong with the inputs that a file in the outbox names."""
        metadata = seen.metadata
        for reference in metadata.inputs:
            name = f"its input {reference.role!r}"
            if reference.sha256 is None:
                yield from self._check_commitment(metadata, reference, name)
                continue
            mine = self.shelf.files.get(reference.sha256)
            if mine is not None and mine.metadata.custody != "public":
                yield f"{name} is private, but named by its digest"
            elif mine is not None:
                continue  # what everybody in the federation can make: its own lineage is checked as well
            elif reference.role in ("previous", "file"):
                if self.own is not None and reference.sha256 not in self.own:
                    yield f"{name} is no file that this client recorded"
            elif not self._is_given(reference.sha256):
                yield f"{name} is no file that the server sent"

    def _check_commitment(self, metadata: Metadata, reference: InputRef, name: str) -> Iterator[str]:
        if self.key is None:
            return
        opened = self.shelf.opened(self.key, reference, metadata.round)
        if opened is not None:
            yield from _mismatches(metadata, opened, name)
            return
        other = self.shelf.misplaced(self.key, reference)
        if other is None:
            yield f"{name} opens to no file in private/"
        else:
            about = other.metadata
            yield f"{name} opens to {other.path.name}, a {about.kind} of round {about.round}, which is not what it says"

    def within(self) -> Iterator[tuple[Kept, str]]:
        """The chain goes on inside: what a file was made from names its own inputs in turn."""
        for kept in self.shelf.files.values():
            for reference in kept.metadata.inputs:
                digest = reference.sha256
                if digest is None or digest in self.shelf.files or digest in (self.own or ()):
                    continue  # a device alone follows what it sent itself
                if not self._is_given(digest):
                    yield kept, f"its input {reference.role!r} is neither private here nor from the server"

    def _is_given(self, digest: str) -> bool:
        return self.given is None or digest in self.given.paths or digest in self.received


def _mismatches(metadata: Metadata, opened: Kept, name: str) -> Iterator[str]:
    """A file made from an update or a generator has the events of that, and is of the same client."""
    about = opened.metadata
    if about.client is not None and about.client != metadata.client:
        yield f"{name} is a file of client {about.client!r}"
    kind = KINDS[about.kind]
    if kind.passes_events and list(about.privacy):
        missing = [event for event in about.privacy if event not in list(metadata.privacy)]
        if missing:
            yield f"{name} has privacy events that the file does not tell"
    never_leaves = kind.passes_events and not kind.leaves
    if not about.privacy and metadata.privacy and never_leaves and not _noised_here(metadata):
        yield f"{name} has no privacy events, but the file claims some"


def _noised_here(metadata: Metadata) -> bool:
    """Whether the stage that made the file adds noise itself: shares of a round's noise."""
    params = metadata.params
    return params.get("noise_multiplier") is not None or bool(params.get("encoding"))
