"""Everything that can be said of one file in an outbox, from its bytes, the ledger and the model that it is for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from artifacts import dataset_stream, envelope_file, ledger, tensors_stream
from artifacts.digests import canonical_json
from artifacts.envelope_file import EnvelopeArtifact
from artifacts.errors import FedsynthError
from artifacts.kinds import KINDS
from artifacts.ledger import Entry
from artifacts.metadata import Metadata, MetadataError
from artifacts.tensors_file import PromiseError
from artifacts.tensors_stream import TensorStream
from stages.audit.declared import undeclared
from stages.audit.held import misfits
from stages.audit.owed import owed
from stages.audit.secrets import Watch
from stages.audit.shelves import Given
from stages.data.png import check_plain

# (check, what is wrong)
Problem = tuple[str, str]


@dataclass(frozen=True)
class Seen:
    """A file in an outbox that was read once: tensors, envelopes, or, if neither, a dataset."""

    path: Path
    size: int
    sha256: str
    metadata: Metadata
    tensors: TensorStream | None
    problems: tuple[Problem, ...]
    envelopes: EnvelopeArtifact | None = None

    @property
    def names(self) -> set[str]:
        return {spec.name for spec in self.tensors.specs} if self.tensors is not None else set()


def look_at(path: Path, watch: Watch) -> Seen | Problem:
    """Read the file, a regular one, whole, once; or say why that cannot be."""
    how = next((read for suffix, read in _READERS.items() if path.name.endswith(suffix)), None)
    if how is None:
        return "outbox", f"not an artifact: none of {', '.join(_READERS)}"
    watch.begin()
    try:
        seen = how(path, watch)
    except FedsynthError as error:
        named: dict[Any, str] = {MetadataError: "params", PromiseError: "tensors"}
        return named.get(type(error.__cause__), "digest"), str(error).removeprefix(f"{path} is ")
    return seen


def _tensors(path: Path, watch: Watch) -> Seen:
    found = tensors_stream.scan(path, watch.see)
    watch.see_text(found.header)
    problems = tuple(("secrets", f"{what} stands in the file") for what in watch.found)
    return Seen(path, found.size, found.sha256, found.metadata, found, problems)


def _dataset(path: Path, watch: Watch) -> Seen:
    problems: list[Problem] = []
    wrong = _Pictures(watch)
    found = dataset_stream.scan(path, wrong.look)
    watch.see_text(canonical_json(found.metadata.to_json(payload_sha256="", seal_sha256="")).encode())
    problems += [("secrets", f"{what} stands in the file") for what in watch.found]
    problems += [("images", what) for what in wrong.check(found.metadata)]
    return Seen(path, found.size, found.sha256, found.metadata, None, tuple(problems))


def _envelopes(path: Path, watch: Watch) -> Seen:
    found = envelope_file.read(path)
    # What is signed stands in base64 there.
    for text in (found.data, *(envelope.payload for envelope in found.envelopes)):
        watch.see_text(text)
    problems = tuple(("secrets", f"{what} stands in the file") for what in watch.found)
    return Seen(path, found.size, found.sha256, found.metadata, None, problems, found)


_READERS = {".safetensors": _tensors, ".parquet": _dataset, envelope_file.SUFFIX: _envelopes}


class _Pictures:
    """Looks at every PNG of a dataset. Its metadata come last, so the pictures are held against one another first."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._rows = 0
        self._wrong: str | None = None
        self._shape: tuple[int, ...] | None = None

    def look(self, images: pa.BinaryArray) -> None:
        _, _, values = images.buffers()
        if values is not None:
            self._watch.see(values.to_pybytes())
        for png in images.to_pylist():
            if self._shape is None:
                self._shape = _shape(png)
            if self._wrong is None:
                try:
                    check_plain(png, self._shape)
                except ValueError as error:
                    self._wrong = f"row {self._rows}: {error}"
            self._rows += 1

    def check(self, metadata: Metadata) -> Iterator[str]:
        if self._wrong is not None:
            yield self._wrong
        wanted = tuple(metadata.params[name] for name in ("channels", "height", "width"))
        if self._shape is not None and self._shape != wanted:
            yield f"its images are {list(self._shape)}, its parameters say {list(wanted)}"


def _shape(png: bytes) -> tuple[int, ...]:
    """Channels, height and width as a PNG claims them; `check_plain` tells whether that is so."""
    channels = 3 if png[25:26] == b"\x02" else 1
    return channels, int.from_bytes(png[20:24], "big"), int.from_bytes(png[16:20], "big")


def check_seen(seen: Seen, entries: Sequence[Entry], client: str | None, given: Given | None) -> Iterator[Problem]:
    """Hold the file against the ledger and the rules. `client` is whose outbox it is in, None for the server's."""
    metadata = seen.metadata
    yield from seen.problems
    yield from _check_entries(seen, entries)
    wanted = "downlink" if client is None else "outbound"
    if metadata.custody != wanted:
        yield "custody", f"a {metadata.custody} {metadata.kind} stands in an outbox"
    if (wrong := undeclared(metadata)) is not None and metadata.custody == wanted:
        yield "params", wrong
    if client is None:
        return
    if metadata.client != client:
        yield "custody", f"it says it is from client {metadata.client!r}"
    if seen.tensors is not None:
        model = _model(metadata, given)
        for misfit in misfits(seen.tensors, model):
            yield "tensors", misfit
    elif metadata.kind == "dataset" and given is not None and not given.knows_classes(metadata.params["class_names"]):
        yield "params", "its class names are not those of the public data"
    if KINDS[metadata.kind].from_data and not metadata.privacy and not metadata.disclosures:
        yield "disclosures", "neither privacy events nor disclosures: it does not say what it tells"
        return
    missing = sorted(owed(metadata, seen.names) - set(metadata.disclosures))
    if missing:
        yield "disclosures", f"it tells {', '.join(missing)}, and does not declare it"


def _check_entries(seen: Seen, entries: Sequence[Entry]) -> Iterator[Problem]:
    if not entries:
        yield "ledger", "in the outbox, but not in the ledger"
        return
    # Any entry will do: a replacement that was entered and then killed leaves the file of the entry before.
    entry = next((e for e in entries if (e.sha256, e.bytes) == (seen.sha256, seen.size)), None)
    if entry is None:
        yield "digest", "not the bytes that the ledger records"
        return
    metadata = seen.metadata
    told: tuple[Any, ...] = (
        # Whoever released it may have picked it as well, which the file cannot know.
        metadata.kind, metadata.round, entry.picked or ledger.was_picked(metadata), list(metadata.privacy),
        list(metadata.disclosures),
    )  # fmt: skip
    if (entry.kind, entry.round, entry.picked, entry.privacy, entry.disclosures) != told:
        yield "ledger", "the ledger describes it otherwise than the file itself"


def _model(metadata: Metadata, given: Given | None) -> Any:
    if given is None:
        return None
    named = (reference.sha256 for reference in metadata.inputs if reference.role == "model")
    return next((given.models[digest] for digest in named if digest in given.models), None)
