"""The files around an outbox: what the client keeps, and what it may have been given. Each is read once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from artifacts import dataset_file, tensors_stream
from artifacts.commitments import opens
from artifacts.digests import sha256_file
from artifacts.errors import FedsynthError
from artifacts.keys import Key
from artifacts.metadata import InputRef, Metadata
from artifacts.safetensors_layout import TensorSpec
from stages.audit.held import KnownModel

_MOST_STRANGE = 20  # commitments that open to nothing expected are tried on everything, but not for ever


@dataclass(frozen=True)
class Kept:
    """A file that stays where it is: its digest, and what it says of itself."""

    path: Path
    sha256: str
    metadata: Metadata


@dataclass
class Shelf:
    """A participant's private files, found by digest, and by what they are."""

    files: dict[str, Kept] = field(default_factory=dict)
    unread: list[tuple[Path, str]] = field(default_factory=list)
    _by_kind: dict[tuple[str, int | None], list[Kept]] = field(default_factory=dict)
    _strange: int = 0

    @classmethod
    def read(cls, folder: Path) -> Shelf:
        shelf = cls()
        for path in _artifacts(folder):
            try:
                kept = _read(path)
            except FedsynthError as error:
                # A person's own file, or a damaged one: had anything that left come from it, no commitment would open.
                shelf.unread.append((path, str(error)))
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
    class_names: list[list[str]] = field(default_factory=list)

    @classmethod
    def read(cls, folders: Iterable[Path]) -> Given:
        given = cls()
        for folder in folders:
            for path in _artifacts(folder):
                try:
                    given.add(path)
                except FedsynthError:
                    continue  # a strange or damaged file was not given by anybody
        return given

    def add(self, path: Path) -> None:
        if path.suffix == ".parquet":
            metadata = dataset_file.read_metadata(path)
            self.remember(path, sha256_file(path), metadata, ())
        else:
            digest, metadata, specs = tensors_stream.survey(path)
            self.remember(path, digest, metadata, specs)

    def knows_classes(self, names: list[str]) -> bool:
        """Whether these are the classes of the public data, if there is any: else they could say anything."""
        return not self.class_names or names in self.class_names

    def remember(self, path: Path, sha256: str, metadata: Metadata, specs: tuple[TensorSpec, ...]) -> None:
        self.paths[sha256] = path
        if metadata.kind == "model":
            self.models[sha256] = KnownModel.of(metadata.params, specs)
        if metadata.kind == "dataset" and metadata.custody == "public":
            self.class_names.append(list(metadata.params["class_names"]))


def _read(path: Path) -> Kept:
    if path.suffix == ".parquet":
        metadata = dataset_file.read_metadata(path)
        return Kept(path, sha256_file(path), metadata)
    digest, metadata, _ = tensors_stream.survey(path)
    return Kept(path, digest, metadata)


def files_of(folder: Path) -> list[tuple[Path, bool]]:
    """What stands in a folder, by name, and whether it is a regular file, which a link is not."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        found = sorted((entry.name, entry.is_file(follow_symlinks=False)) for entry in entries)
    return [(folder / name, regular) for name, regular in found]


def _artifacts(folder: Path) -> list[Path]:
    """Private data may stand elsewhere, behind a link."""
    found = [(path, regular) for path, regular in files_of(folder) if path.name.endswith((".safetensors", ".parquet"))]
    return [path for path, regular in found if regular or path.is_file()]
