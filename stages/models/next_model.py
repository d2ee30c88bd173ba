"""What a model that the server made says of where it came from, and what it keeps from the clients."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from artifacts.formats.tensors_file import TensorArtifact
from artifacts.ledgers import lineage
from artifacts.metadata import InputRef, Metadata
from artifacts.places import Place
from artifacts.writing import locks
from stages.charging.spending import key_of, refuse_uncovered, understood
from stages.privacy.events import merged_json


def with_past(metadata: Metadata, start: Metadata) -> Metadata:
    """What the model was made from brings with it what it cost, and what it disclosed without noise."""
    disclosures = tuple(sorted({*start.disclosures, *metadata.disclosures}))
    added = tuple(event for event in metadata.privacy if event not in start.privacy)
    return replace(metadata, privacy=(*start.privacy, *added), disclosures=disclosures)


def events_of(files: Iterable[Sequence[Mapping[str, Any]]]) -> tuple[dict[str, Any], ...]:
    """The events of what several clients sent, as those of the file that is made from all of it (rule 30)."""
    with understood():
        return merged_json(files)


def for_clients(metadata: Metadata, start: TensorArtifact, out: Path, key: Path | None) -> Metadata:
    """As it is in a file that goes down to the clients: it does not say who took part."""
    if metadata.disclosures:
        refuse_uncovered(key_of(out, key), metadata.privacy, metadata.disclosures)
    return replace(metadata, inputs=(lineage.by_digest(start, "model"),))


def recording(out: Path) -> contextlib.AbstractContextManager[None]:
    """Held while a file and the record of it are written: nobody else can put theirs in the place of one of the two."""
    return locks.held(_private(out), "fedsynth", wait=True, name="participants")


def record_participants(out: Path, references: Sequence[InputRef], *, force: bool) -> None:
    """Who took part, for the server alone. Written before the model: one in an outbox always has its record."""
    lineage.write_record(_private(out) / f"{out.stem}.lineage.json", out, references, force=force)


def _private(out: Path) -> Path:
    return Place(out.absolute().parent.parent).private
