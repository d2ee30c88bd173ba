"""Where files come from: inputs lead to files that are there, and private ones are named by commitments that open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from artifacts.formats.safetensors_layout import TensorSpec
from artifacts.identity.commitments import commit
from artifacts.identity.keys import Key
from artifacts.kinds import KINDS
from artifacts.metadata import InputRef, Metadata
from stages.audit.outbound import Seen
from stages.audit.required_disclosures import required_disclosures
from stages.audit.surrounding_files import Given, Kept, Shelf
from stages.data.schema import PUBLIC_CUSTODY
from stages.data.schema import ROLE as SCHEMA
from stages.registry import ENCODERS
from stages.secagg.summed import carries_noise

# Kinds that hold the very tensors of the private file that they are made from.
_WEIGHTS = [kind.name for kind in KINDS.values() if kind.holds_weights and kind.leaves]


@dataclass
class Ancestry:
    """What one participant can have made its files from. `key` is None where commitments must stay closed.

    `given` is None where nobody knows what the server sent: a client's folder alone.
    """

    key: Key | None
    shelf: Shelf
    given: Given | None
    # What it sent before, by digest, with what that disclosed: it may go on from there. None where there is no ledger.
    own: Mapping[str, Set[str]] | None
    # For the server: the digests that clients recorded.
    received: Set[str] = field(default_factory=set)

    def check(self, seen: Seen) -> Iterator[str]:
        """What is wrong with the inputs that a file in the outbox names."""
        metadata = seen.metadata
        if self.key is not None and metadata.custody == "outbound":  # what goes down has disclosures from the messages
            yield from self._check_disclosed(seen)
        for reference in metadata.inputs:
            name = f"its input {reference.role!r}"
            if reference.sha256 is None:
                yield from self._check_commitment(seen, reference, name)
                continue
            mine = self.shelf.files.get(reference.sha256)
            if mine is not None and mine.metadata.custody != "public":
                yield f"{name} is private, but named by its digest"
            elif mine is not None and (mine.metadata.inputs or self.given is None or not self.given.models):
                continue  # what everybody can make of what was sent, or a device alone began with: `within` goes on
            elif reference.role in ("previous", "file"):
                if self.own is not None and reference.sha256 not in self.own:
                    yield f"{name} is no file that this client recorded"
            elif not self._is_given(reference.sha256):
                yield f"{name} is no file that the server sent"

    def _check_disclosed(self, seen: Seen) -> Iterator[str]:
        """What it declares, it discloses, or has from its inputs: to choose among disclosures says something."""
        assert self.key is not None
        metadata = seen.metadata
        opened = [self.shelf.opened(self.key, r, metadata.round) for r in metadata.inputs if r.commitment is not None]
        inherited = {word for kept in opened if kept is not None for word in kept.metadata.disclosures}
        before = self.own or {}
        inherited |= {word for r in metadata.inputs for word in before.get(r.sha256 or "", ())}
        if _goes_on_unnamed(metadata):
            inherited |= KINDS[metadata.kind].always_discloses
        extra = set(metadata.disclosures) - required_disclosures(metadata, seen.names) - inherited
        if extra:
            yield f"it declares {', '.join(sorted(extra))}, which it does not disclose"

    def _check_commitment(self, seen: Seen, reference: InputRef, name: str) -> Iterator[str]:
        if self.key is None:
            return
        metadata = seen.metadata
        opened = self.shelf.opened(self.key, reference, metadata.round)
        if opened is not None:
            yield from _mismatches(metadata, opened, name)
            yield from self._check_salt(metadata, reference, opened, name)
            if reference.role in KINDS and seen.tensors is not None and metadata.kind in _WEIGHTS:
                both = (seen.tensors.specs, opened.specs)
                if both[0] != both[1] and _shapes(both[0]) != _shapes(both[1]):
                    yield f"{name} has other tensors than the file"
            return
        other = self.shelf.misplaced(self.key, reference)
        if other is None:
            yield f"{name} opens to no file in private/"
        else:
            about = other.metadata
            yield f"{name} opens to {other.path.name}, a {about.kind} of round {about.round}, which is not what it says"

    def _check_salt(self, metadata: Metadata, reference: InputRef, opened: Kept, name: str) -> Iterator[str]:
        """A salt is derived from what the file is, not drawn: one of somebody's own could carry 16 bytes."""
        assert self.key is not None
        context: dict[str, Any] = {"stage": metadata.stage, "client": metadata.client, "round": metadata.round}
        if metadata.stage == "encode":
            context["params"] = dict(metadata.params)
        elif metadata.stage != "secagg":
            return  # a replay finds it: the seed, which is nowhere, is in the context
        if metadata.kind == "surrogate":
            context["inputs"] = [other.to_json() for other in metadata.inputs if other.commitment is None]
        role, kind = reference.role, reference.kind
        if commit(self.key, role=role, kind=kind, sha256=opened.sha256, context=context) != reference:
            yield f"{name} is committed to with a salt that does not follow from the file"

    def within(self) -> Iterator[tuple[Kept, str]]:
        """The chain goes on inside: what a file was made from names its own inputs in turn."""
        for kept in self.shelf.files.values():
            for reference in kept.metadata.inputs:
                digest = reference.sha256
                if reference.role == SCHEMA:
                    yield from self._check_schema(kept, reference)
                    continue
                if digest is None or digest in self.shelf.files or digest in (self.own or ()):
                    continue  # a device alone follows what it sent itself
                if not self._is_given(digest):
                    yield kept, f"its input {reference.role!r} is neither private here nor from the server"

    def _check_schema(self, kept: Kept, reference: InputRef) -> Iterator[tuple[Kept, str]]:
        """A schema is a public file, which may be anywhere and of any format, but not one of these (rule 28)."""
        mine = self.shelf.files.get(reference.sha256 or "")
        if mine is not None and mine.metadata.custody not in PUBLIC_CUSTODY:
            yield kept, f"its classes and image size come from {mine.path.name}, which is {mine.metadata.custody}"

    def _is_given(self, digest: str) -> bool:
        return self.given is None or digest in self.given.paths or digest in self.received


def _shapes(specs: tuple[TensorSpec, ...]) -> dict[str, tuple[int, ...]]:
    return {spec.name: spec.shape for spec in specs}


def _mismatches(metadata: Metadata, opened: Kept, name: str) -> Iterator[str]:
    """A file made from an update or a generator has the events of that, and is of the same client."""
    about = opened.metadata
    if about.client is not None and about.client != metadata.client:
        yield f"{name} is a file of client {about.client!r}"
    kind = KINDS[about.kind]
    if kind.passes_events and list(about.privacy):
        missing = [event for event in about.privacy if event not in list(metadata.privacy)]
        if missing:
            yield f"{name} has privacy events that the file does not name"
    never_leaves = kind.passes_events and not kind.leaves
    if not about.privacy and metadata.privacy and never_leaves and not _noised_here(metadata):
        yield f"{name} has no privacy events, but the file claims some"


def _noised_here(metadata: Metadata) -> bool:
    """Whether the stage that made the file adds noise itself: shares of a round's noise."""
    params = metadata.params
    return params.get("noise_multiplier") is not None or carries_noise(params.get("encoding") or {})


def _goes_on_unnamed(metadata: Metadata) -> bool:
    """Whether its images may have begun as those of the client's file of the round before, which it does not name."""
    if metadata.stage != "encode" or metadata.method not in ENCODERS.words:
        return False
    encoder = ENCODERS.chosen({"method": metadata.method})
    return "previous" in encoder.takes and not encoder.names_previous
