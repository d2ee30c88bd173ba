"""Everything that can be said of one file in an outbox, from its bytes, the ledger and the model that it is for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

from artifacts.digests import canonical_json
from artifacts.formats import Format, dataset_stream, envelope_file, format_named, tensors_stream
from artifacts.formats.dataset_writing import Rewriting
from artifacts.formats.envelope_file import EnvelopeArtifact
from artifacts.formats.tensors_file import PromiseError
from artifacts.formats.tensors_stream import TensorStream
from artifacts.kinds import KINDS
from artifacts.ledgers import egress
from artifacts.ledgers.egress import Entry
from artifacts.metadata import Metadata, MetadataError
from stages.audit.contents import misfits
from stages.audit.obstacles import in_words, obstacle
from stages.audit.pictures import Fingerprints, Pictures, of_tensor
from stages.audit.required_disclosures import required_disclosures
from stages.audit.secrets import Watch
from stages.audit.surrounding_files import Given
from stages.declared import undeclared
from stages.plugins import missing as missing_plugin

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
    labels: NDArray[Any] | None = None  # of a surrogate
    remarks: tuple[str, ...] = ()  # what was compared otherwise than byte for byte
    prints: Fingerprints | None = None  # of its pictures

    @property
    def names(self) -> set[str]:
        return {spec.name for spec in self.tensors.specs} if self.tensors is not None else set()


def look_at(path: Path, watch: Watch) -> Seen | Problem:
    """Read the file, a regular one, whole, once; or say what is wrong. What keeps us from looking is raised."""
    format = format_named(path)
    if format is None:
        return "outbox", f"not an artifact: none of {', '.join(Format)}"
    watch.begin()
    try:
        return _READERS[format](path, watch)
    except Exception as error:
        if obstacle(error) is not None:
            raise
        named: dict[Any, str] = {MetadataError: "params", PromiseError: "tensors"}
        return named.get(type(error.__cause__), "digest"), in_words(error).removeprefix(f"{path} is ")


def _tensors(path: Path, watch: Watch) -> Seen:
    found = tensors_stream.scan(path, watch.see, watch.see_numbers)
    problems = tuple(("secrets", f"{what} is in the file") for what in watch.found)
    labels = found.tensor("labels") if found.metadata.kind == "surrogate" else None
    shown = KINDS[found.metadata.kind].pictures
    prints = of_tensor(found.tensor("images"), shown) if shown is not None else None
    return Seen(path, found.size, found.sha256, found.metadata, found, problems, labels=labels, prints=prints)


def _dataset(path: Path, watch: Watch) -> Seen:
    problems: list[Problem] = []
    pictures, found = Pictures(watch), dataset_stream.begin(path)
    again = Rewriting(found)
    for images in found.images():
        pictures.look(images, found.metadata)
        again.add(images)
    versions = found.metadata.versions
    remarks: list[str] = []
    if found.writer != versions.get("pyarrow"):
        problems.append(("params", f"it was written by Arrow {found.writer}, and names {versions.get('pyarrow')}"))
    elif not again.is_same():
        if found.writer == pa.__version__:
            problems.append(("digest", "its pages are not as they are written: the same rows give other bytes"))
        remarks.append(f"written by Arrow {found.writer}: its rows were compared, its pages were not")
    if pictures.other_build:
        remarks.append("its PNGs were compressed by another build of zlib: their pixels were compared")
    watch.see_text(canonical_json(found.metadata.to_json(payload_sha256="", seal_sha256="")).encode())
    problems += [("secrets", f"{what} is in the file") for what in watch.found]
    problems += [("images", pictures.wrong)] if pictures.wrong is not None else []
    return Seen(
        path, found.size, found.sha256, found.metadata, None, tuple(problems), remarks=tuple(remarks),
        prints=pictures.prints,
    )  # fmt: skip


def _envelopes(path: Path, watch: Watch) -> Seen:
    found = envelope_file.read(path)
    # What is signed is in base64 there.
    for text in (found.data, *(envelope.payload for envelope in found.envelopes)):
        watch.see_text(text)
    problems = tuple(("secrets", f"{what} is in the file") for what in watch.found)
    return Seen(path, found.size, found.sha256, found.metadata, None, problems, found)


_READERS = {Format.TENSORS: _tensors, Format.DATASET: _dataset, Format.ENVELOPES: _envelopes}


def check_seen(
    seen: Seen, entries: Sequence[Entry] | None, client: str | None, given: Given | None
) -> Iterator[Problem]:
    """Check the file by the ledger and the rules. `client` is whose outbox it is in, None for the server's.

    `entries` are those of the ledger for its name; None where the ledger is not here.
    """
    metadata = seen.metadata
    yield from seen.problems
    if entries is not None:
        yield from _check_entries(seen, entries)
    wanted = "downlink" if client is None else "outbound"
    if metadata.custody != wanted:
        yield "custody", f"a {metadata.custody} {metadata.kind} is in an outbox"
    if (wrong := undeclared(metadata)) is not None and metadata.custody == wanted:
        yield "params", wrong
    if given is not None and (wrong := _other_round(metadata, given)) is not None:
        yield "params", wrong
    if client is None:
        yield from _of_server(seen, given)
        return
    if metadata.client != client:
        yield "custody", f"it says it is from client {metadata.client!r}"
    if seen.tensors is not None and missing_plugin(metadata.params) is None:
        model = _model(metadata, given)
        for misfit in misfits(seen.tensors, seen.labels, model):
            yield "tensors", misfit
    elif metadata.kind == "dataset" and given is not None and not given.knows_classes(metadata.params["class_names"]):
        yield "params", "its class names are not those of the public data"
    if KINDS[metadata.kind].from_data and not metadata.privacy and not metadata.disclosures:
        yield "disclosures", "neither privacy events nor disclosures: it does not say what it discloses"
        return
    missing = sorted(required_disclosures(metadata, seen.names) - set(metadata.disclosures))
    if missing:
        yield "disclosures", f"it discloses {', '.join(missing)}, and does not declare it"


def _other_round(metadata: Metadata, given: Given) -> str | None:
    """The round follows from the model that a file is for: a number of one's own would say something."""
    before = [given.rounds[digest] for digest in metadata.digests_of("model") if digest in given.rounds]
    if not before or metadata.round in {one + 1 for one in before}:
        return None
    return f"it says that it is of round {metadata.round}, and its model is the one before round {before[0] + 1}"


def _of_server(seen: Seen, given: Given | None) -> Iterator[Problem]:
    """What goes down has the tensors of the model that it was made from, names no client, and counts nothing."""
    metadata = seen.metadata
    if metadata.client is not None or metadata.counts:
        yield "params", "what the server sends names no client and states no count"
    if seen.tensors is None or given is None:
        return
    named = metadata.digests_of("model")
    before = next((given.specs[digest] for digest in named if digest in given.specs), None)
    if metadata.kind == "model" and before is not None and before != seen.tensors.specs:
        yield "tensors", "its tensors are not those of the model that it was made from"
    elif metadata.kind != "model":
        for misfit in misfits(seen.tensors, seen.labels, _model(metadata, given)):
            yield "tensors", misfit


def _check_entries(seen: Seen, entries: Sequence[Entry]) -> Iterator[Problem]:
    if not entries:
        yield "ledger", "in the outbox, but not in the ledger"
        return
    # Any entry will do: a replacement that was entered and then killed leaves the file of the entry before.
    entry = next((e for e in entries if (e.sha256, e.bytes) == (seen.sha256, seen.size)), None)
    if entry is None:
        yield "digest", "not the bytes that the ledger records"
        return
    # Who released it may have picked it as well, which the file cannot know.
    expected = egress.from_file(seen.metadata, picked=entry.picked)
    if {name: getattr(entry, name) for name in expected} != expected:
        yield "ledger", "the ledger describes it otherwise than the file itself"


def _model(metadata: Metadata, given: Given | None) -> Any:
    if given is None:
        return None
    return next((given.models[digest] for digest in metadata.digests_of("model") if digest in given.models), None)
