"""The files around an outbox: what the client keeps, and what it may have been given. Each is read once.

While they are read somebody may be at work there: a file that is gone by then is as if it had never been.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from artifacts.formats import CONTENT, format_named, survey
from artifacts.formats.safetensors_layout import TensorSpec
from artifacts.identity.commitments import opens
from artifacts.identity.keys import Key
from artifacts.identity.owner import is_open_to_others
from artifacts.metadata import InputRef, Metadata
from stages.audit.contents import KnownModel
from stages.audit.obstacles import in_words, is_gone, obstacle

_MOST_STRANGE = 20  # commitments that open to nothing expected are tried on everything, but not for ever


class State(NamedTuple):
    """`regular`: a file, which a link is not. `shared`: others can read or change it."""

    regular: bool
    shared: bool
    inode: int
    size: int
    changed: int


@dataclass(frozen=True)
class Kept:
    """A file that stays where it is: its digest, and what it says of itself."""

    path: Path
    sha256: str
    metadata: Metadata
    specs: tuple[TensorSpec, ...] = ()


@dataclass
class Shelf:
    """A participant's private files, found by digest, and by what they are."""

    files: dict[str, Kept] = field(default_factory=dict)
    unread: list[tuple[Path, str]] = field(default_factory=list)
    obstacles: list[tuple[Path, str]] = field(default_factory=list)
    _by_kind: dict[tuple[str, int | None], list[Kept]] = field(default_factory=dict)
    _strange: int = 0

    @classmethod
    def read(cls, folder: Path) -> Shelf:
        shelf = cls()
        for path in _artifacts(folder):
            try:
                kept = _read(path)
            except Exception as error:
                if (why := obstacle(error)) is None:
                    # A person's own file, or a damaged one: had anything that left come from it, no commitment would
                    # open.
                    shelf.unread.append((path, in_words(error)))
                elif not is_gone(error):
                    shelf.obstacles.append((path, why))
                continue
            shelf.files[kept.sha256] = kept
            shelf._by_kind.setdefault((kept.metadata.kind, kept.metadata.round), []).append(kept)
        return shelf

    def opened(self, key: Key, reference: InputRef, round: int | None) -> Kept | None:
        """The file that a commitment in a file of this round is to: of the kind that it says, mostly of that round."""
        for kept in self._likely(reference, round):
            if opens(key, reference, kept.sha256):
                return kept
        return None

    def _likely(self, reference: InputRef, round: int | None) -> Iterator[Kept]:
        kind = reference.kind
        if reference.role == "previous":
            for earlier in range((round or 0) - 1, 0, -1):
                yield from self._by_kind.get((kind, earlier), [])
            return
        yield from self._by_kind.get((kind, round), [])
        if round is not None:
            yield from self._by_kind.get((kind, None), [])

    def misplaced(self, key: Key, reference: InputRef) -> Kept | None:
        """The file of any other kind or round that a commitment opens to."""
        self._strange += 1
        if self._strange > _MOST_STRANGE:
            return None
        return next((kept for kept in self.files.values() if opens(key, reference, kept.sha256)), None)


@dataclass
class Given:
    """What clients may have been given: public files, and what the server sent; None of it private."""

    paths: dict[str, Path] = field(default_factory=dict)
    models: dict[str, KnownModel] = field(default_factory=dict)
    specs: dict[str, tuple[TensorSpec, ...]] = field(default_factory=dict)  # of the models
    rounds: dict[str, int] = field(default_factory=dict)  # that went into the models
    class_names: list[list[str]] = field(default_factory=list)
    obstacles: list[tuple[Path, str]] = field(default_factory=list)
    events: set[str] = field(default_factory=set)  # ids of the noise behind what was given
    public_sets: list[Path] = field(default_factory=list)
    survivors: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)  # that were asked for, by list of keys
    key_lists: dict[int | None, list[str]] = field(default_factory=dict)  # of secure aggregation, by round

    @classmethod
    def read(cls, folders: Iterable[Path]) -> Given:
        given = cls()
        for folder in folders:
            try:
                paths = _artifacts(folder)
            except OSError as error:
                given.obstacles.append((folder, str(obstacle(error))))
                continue
            for path in paths:
                try:
                    given.add(path)
                except Exception as error:
                    # A strange or damaged file was not given by anybody.
                    why = obstacle(error)
                    if why is not None and not is_gone(error):
                        given.obstacles.append((path, why))
        return given

    def add(self, path: Path) -> None:
        self.remember(path, *survey(path))

    def knows_classes(self, names: list[str]) -> bool:
        """Whether these are the classes of the public data, if there is any: else they could say anything."""
        return not self.class_names or names in self.class_names

    def remember(self, path: Path, sha256: str, metadata: Metadata, specs: tuple[TensorSpec, ...]) -> None:
        self.paths[sha256] = path
        if metadata.kind == "secagg-keys":
            self.key_lists.setdefault(metadata.round, []).append(sha256)
        if metadata.kind == "secagg-survivors" and metadata.custody == "downlink":
            for digest in metadata.digests_of("keys"):
                self.survivors.setdefault(digest, set()).add(tuple(metadata.params["survivors"]))
        self.events |= {str(event.get("id")) for event in metadata.privacy}
        if metadata.kind == "model":
            self.models[sha256] = KnownModel.of(metadata.params, specs)
            self.specs[sha256] = tuple(specs)
            self.rounds[sha256] = metadata.round or 0
        if metadata.kind == "dataset" and metadata.custody == "public":
            self.class_names.append(list(metadata.params["class_names"]))
            self.public_sets.append(path)


def _read(path: Path) -> Kept:
    return Kept(path, *survey(path))


def listed(folder: Path) -> dict[str, State]:
    """What is in a folder, by name."""
    found: dict[str, State] = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # gone meanwhile
                found[entry.name] = _state(entry.stat(follow_symlinks=False))
    return dict(sorted(found.items()))


def state_of(path: Path) -> State | None:
    """What tells a file from the next one under its name; None if it is gone."""
    try:
        return _state(path.lstat())
    except FileNotFoundError:
        return None


def _state(status: os.stat_result) -> State:
    regular = stat.S_ISREG(status.st_mode)
    return State(regular, regular and is_open_to_others(status), status.st_ino, status.st_size, status.st_mtime_ns)


def _artifacts(folder: Path) -> list[Path]:
    """Private data may be elsewhere, behind a link."""
    named = ((folder / name, state) for name, state in listed(folder).items() if format_named(name) in CONTENT)
    return [path for path, state in named if state.regular or path.is_file()]
