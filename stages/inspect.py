"""`inspect`: what is in this file, for any artifact and for plain safetensors and Parquet. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from artifacts import dataset_file, safetensors_layout, tensors_file
from artifacts.digests import sha256_hex
from artifacts.disclosures import DISCLOSURES
from artifacts.errors import InputError
from artifacts.kinds import KINDS
from artifacts.metadata import KEY, Metadata
from stages.privacy.events import PrivacyEvent, in_words
from stages.progress import Summary


def inspect(path: Path) -> Summary:
    """Describe the file. One of ours is checked whole first; any other is described from its header alone."""
    try:
        with path.open("rb") as handle:
            start = handle.read(4)
            size = handle.seek(0, 2)
    except OSError as error:
        raise tensors_file.unreadable(path, error) from error
    about = _parquet(path) if start == b"PAR1" else _safetensors(path)
    return {"file": str(path), "bytes": size, **about}


def _safetensors(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    try:
        _, specs, text = safetensors_layout.parse_table(data, len(data))
    except ValueError as error:
        raise InputError(f"{path} is neither a safetensors nor a Parquet file: {error}.") from error
    if KEY not in text:
        tensors = [{"name": s.name, "dtype": s.dtype, "shape": list(s.shape), "bytes": s.nbytes} for s in specs]
        return {"format": "safetensors", "artifact": False, "metadata": text, "tensors": tensors}
    artifact = tensors_file.read(path)
    tensors = []
    for spec in artifact.specs:
        values = artifact.tensors[spec.name]
        tensors.append(
            {
                "name": spec.name,
                "dtype": spec.dtype,
                "shape": list(spec.shape),
                "bytes": spec.nbytes,
                "min": float(values.min()) if values.size else None,
                "max": float(values.max()) if values.size else None,
            }
        )
    about = {"format": "safetensors", "sha256": artifact.sha256, **_described(artifact.metadata)}
    return about | {"payload_sha256": artifact.payload_sha256, "tensors": tensors}


def _parquet(path: Path) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(path)
        schema = footer.schema.to_arrow_schema()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is not a whole Parquet file: {error}.") from error
    columns = [{"name": field.name, "type": str(field.type)} for field in schema]
    if KEY.encode() not in (footer.metadata or {}):
        return {
            "format": "parquet",
            "artifact": False,
            "sha256": sha256_hex(path.read_bytes()),
            "rows": footer.num_rows,
            "columns": columns,
        }
    artifact = dataset_file.read(path)
    names = artifact.metadata.params["class_names"]
    counts = np.bincount(artifact.labels, minlength=len(names))
    about = {"format": "parquet", "sha256": artifact.sha256, **_described(artifact.metadata)}
    return about | {
        "payload_sha256": artifact.payload_sha256,
        "rows": len(artifact),
        "columns": columns,
        "class_counts": {name: int(count) for name, count in zip(names, counts, strict=True)},
    }


def _described(metadata: Metadata) -> dict[str, Any]:
    """The metadata, with words for a layman beside the names."""
    return {
        "artifact": True,
        "kind": metadata.kind,
        "about": KINDS[metadata.kind].text,
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
        "epsilon": epsilon_in_words(metadata),
        "versions": dict(metadata.versions),
    }


def _in_words(event: Mapping[str, Any]) -> str:
    try:
        return in_words(PrivacyEvent.from_json(event))
    except (ValueError, TypeError) as error:
        return f"not understood: {error}"


def epsilon_in_words(metadata: Metadata) -> str:
    """What the file costs in privacy, as far as that can be said without an accountant."""
    if metadata.privacy and not metadata.disclosures:
        return "finite: fedsynth account --delta D says how much"
    if metadata.custody not in ("outbound", "private"):
        return "not a client's file"
    if not KINDS[metadata.kind].from_data:
        return "none: no private data went into it"
    return "∞ (derived from private data without noise)"
