"""What a model that the server made says of where it came from, and what it keeps from the clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from artifacts import lineage
from artifacts.metadata import InputRef, Metadata
from artifacts.places import PRIVATE
from artifacts.tensors_file import TensorArtifact
from stages.spending import key_of, refuse_uncovered


def with_past(metadata: Metadata, start: Metadata) -> Metadata:
    """What the model was made from brings with it what it cost, and what it told without noise."""
    disclosures = tuple(sorted({*start.disclosures, *metadata.disclosures}))
    added = tuple(event for event in metadata.privacy if event not in start.privacy)
    return replace(metadata, privacy=(*start.privacy, *added), disclosures=disclosures)


def for_clients(metadata: Metadata, start: TensorArtifact, out: Path, key: Path | None) -> Metadata:
    """As it stands in a file that goes down to the clients: it does not say who took part."""
    if metadata.disclosures:
        refuse_uncovered(key_of(out, key), metadata.privacy, metadata.disclosures)
    return replace(metadata, inputs=(lineage.by_digest(start, "model"),))


def record_participants(out: Path, references: Sequence[InputRef]) -> None:
    """Who took part, for the server alone. Written before the model: one in an outbox always has its record."""
    private = out.absolute().parent.parent / PRIVATE
    lineage.write_record(private / f"{out.stem}.lineage.json", out.name, references)
