"""Noise that is shown, not only claimed: an event's id follows from the key, a computation and the one output it gave.

With the key and the spend ledger the ids of all computations are made again. An event in a file must have one of them,
and the output behind it must be the file itself or what the file was made from; so an event that was invented, borrowed
from another training, or left over from a spend ledger that was put back, is found without computing anything again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifacts.formats import tensors_file
from artifacts.identity.keys import Key
from artifacts.kinds import KINDS
from artifacts.ledgers import spend
from artifacts.metadata import Metadata
from stages.audit.outbound import Seen
from stages.audit.surrounding_files import Kept, Shelf
from stages.privacy.events import event_id_for_digest, output_digest

# Update and state of one training are one output, in which their tensors are told apart by these words.
_TRAINED = ("update", "state")


@dataclass
class ShownNoise:
    """The outputs behind a client's own events, by id; `inherited` are ids that came with what it was given."""

    key: Key
    shelf: Shelf
    outputs: Mapping[str, str]
    inherited: Set[str] = frozenset()
    _digests: dict[Path, str] = field(default_factory=dict)

    @classmethod
    def read(cls, book: Path, key: Key, shelf: Shelf, inherited: Set[str]) -> ShownNoise:
        released = spend.read_released(book, key) if book.exists() else []
        outputs = {event_id_for_digest(key.secret, bytes.fromhex(ctx), out): out for ctx, out in released}
        data = (kept.metadata for kept in shelf.files.values() if kept.metadata.kind == "dataset")
        brought = {_id(event) for metadata in data for event in metadata.privacy}
        return cls(key, shelf, outputs, {*inherited, *brought})

    def check(self, seen: Seen) -> Iterator[str]:
        """Every event of the file is by one of the client's computations, and that gave what the file was made from."""
        if not seen.metadata.privacy:
            return
        opened = [self.shelf.opened(self.key, r, seen.metadata.round) for r in seen.metadata.inputs if r.commitment]
        sources = [kept for kept in opened if kept is not None]
        mine = [name for name in map(_id, seen.metadata.privacy) if name not in self.inherited]
        for name in mine:
            if name not in self.outputs:
                yield f"the privacy event {name[:12]}… is of no computation in the spend ledger"
        known = [name for name in mine if name in self.outputs]
        if not known:
            return
        # The others are of what it goes on from: rounds before, whose events it carries on.
        if not any(self.outputs[name] in set(self._made(seen.path, seen.metadata, sources, name)) for name in known):
            yield f"the privacy event {known[-1][:12]}… is of another output than the one that this was made from"

    def _made(self, path: Path, metadata: Metadata, sources: Sequence[Kept], event: str) -> Iterator[str]:
        """What the mechanism may have given out: the file itself, or a private file that it was made from."""
        for kept in sources:
            if kept.metadata.kind in _TRAINED:
                yield from self._trained(kept, event)
            elif kept.metadata.kind != "dataset":
                yield self._digest(kept.path)
            if kept.metadata.kind == "message":  # it goes on under masks, and may have its noise from its update
                behind = (self.shelf.files.get(reference.sha256 or "") for reference in kept.metadata.inputs)
                yield from (out for one in behind if one is not None for out in self._trained(one, event))
        if KINDS[metadata.kind].is_release:
            yield self._digest(path)

    def _trained(self, kept: Kept, event: str) -> Iterator[str]:
        """One training gives an update and perhaps a state: the file was made from one, the other is beside it."""
        mine = _named(kept)
        yield output_digest(mine)
        for other in self.shelf.files.values():
            both = {kept.metadata.kind, other.metadata.kind}
            if both == set(_TRAINED) and event in {_id(one) for one in other.metadata.privacy}:
                yield output_digest(mine | _named(other))

    def _digest(self, path: Path) -> str:
        if path not in self._digests:
            self._digests[path] = output_digest(tensors_file.read(path).tensors)
        return self._digests[path]


def _named(kept: Kept) -> dict[str, Any]:
    return {f"{kept.metadata.kind} {name}": value for name, value in tensors_file.read(kept.path).tensors.items()}


def _id(event: Mapping[str, Any]) -> str:
    return str(event.get("id"))
