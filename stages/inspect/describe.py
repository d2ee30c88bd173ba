"""What is in one file: an artifact is checked whole first, any other is described as it says it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from artifacts.digests import sha256_file
from artifacts.disclosures import DISCLOSURES
from artifacts.errors import InputError
from artifacts.formats import Format, dataset_stream, envelope_file, format_of, tensors_stream
from artifacts.kinds import KINDS
from artifacts.metadata import KEY, Metadata
from stages.data import foreign_parquet, parquet_tables
from stages.execution.progress import Summary
from stages.inspect.numbers import RawTensor, ranges, read_table
from stages.privacy.events import PrivacyEvent, in_words


def inspect(path: Path) -> Summary:
    """Describe the file."""
    readers = {Format.DATASET: _parquet, Format.ENVELOPES: _envelopes, Format.TENSORS: _safetensors}
    about = readers[format_of(path)](path)
    return {"file": str(path), "bytes": path.stat().st_size, **about}


def _safetensors(path: Path) -> dict[str, Any]:
    try:
        text, raw = read_table(path)
    except ValueError as error:
        raise InputError(f"{path} is neither a safetensors nor a Parquet file: {error}.") from error
    if KEY not in text:
        plain = {"format": "safetensors", "artifact": False, "sha256": sha256_file(path), "metadata": text}
        return plain | {"tensors": [_tensor(path, tensor) for tensor in raw]}
    found = tensors_stream.scan(path)
    about = {"format": "safetensors", "sha256": found.sha256, **_described(found.metadata)}
    return about | {"payload_sha256": found.payload_sha256, "tensors": [_tensor(path, tensor) for tensor in raw]}


def _tensor(path: Path, tensor: RawTensor) -> dict[str, Any]:
    fields = {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape), "bytes": tensor.nbytes}
    return fields | ranges(path, tensor)


def _parquet(path: Path) -> dict[str, Any]:
    """One of ours meets our own checks before Arrow's parser; any other meets Arrow in a process with limits."""
    try:
        found = dataset_stream.scan(path)
    except InputError as error:
        about = foreign_parquet.describe(path)
        if about.pop("ours"):
            raise error from None
        return {"format": "parquet", "artifact": False, "sha256": sha256_file(path), **about}
    import numpy as np

    classes = found.metadata.params["class_names"]
    counts = np.bincount(found.labels, minlength=len(classes))
    about = {"format": "parquet", "sha256": found.sha256, **_described(found.metadata)}
    return about | {
        "payload_sha256": found.payload_sha256,
        "rows": len(found),
        "columns": parquet_tables.describe(path)["columns"],
        "class_counts": {name: int(count) for name, count in zip(classes, counts, strict=True)},
    }


def _envelopes(path: Path) -> dict[str, Any]:
    found = envelope_file.read(path)
    lines = [
        {"type": e.statement["predicateType"], "subject": e.statement["subject"], "signed_by": sorted(e.signatures)}
        for e in found.envelopes
    ]
    return {"format": "envelopes", "sha256": found.sha256, **_described(found.metadata), "statements": lines}


def _described(metadata: Metadata) -> dict[str, Any]:
    """The metadata, with words for a layman beside the names."""
    return {
        "artifact": True,
        "kind": metadata.kind,
        "about": KINDS[metadata.kind].text,
        "note": KINDS[metadata.kind].note,
        "custody": metadata.custody,
        "simulation": metadata.simulation,
        "stage": metadata.stage,
        "method": metadata.method,
        "client": metadata.client,
        "round": metadata.round,
        "params": dict(metadata.params),
        "counts": dict(metadata.counts),
        "inputs": [reference.to_json() for reference in metadata.inputs],
        "privacy": [dict(event) for event in metadata.privacy],
        "privacy_in_words": [_in_words(event) for event in metadata.privacy],
        "disclosures": {name: DISCLOSURES[name] for name in metadata.disclosures},
        "epsilon": _epsilon_in_words(metadata),
        "versions": dict(metadata.versions),
        "arithmetic": metadata.arithmetic,
    }


def _in_words(event: Mapping[str, Any]) -> str:
    try:
        return in_words(PrivacyEvent.from_json(event))
    except (ValueError, TypeError) as error:
        return f"not understood: {error}"


def _epsilon_in_words(metadata: Metadata) -> str:
    """What the file costs in privacy, as far as that can be said without an accountant."""
    if metadata.privacy and not metadata.disclosures:
        return "finite: fedsynth account --delta D says how much"
    if metadata.custody not in ("outbound", "private"):
        return "not a client's file"
    if not KINDS[metadata.kind].from_data:
        return "none: no private data went into it"
    return "∞ (derived from private data without noise)"
