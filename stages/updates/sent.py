"""A file on its way out, written, and what its command says of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from artifacts.formats import tensors_file
from artifacts.ledgers.gate import destination
from artifacts.metadata import Metadata
from stages.execution.progress import Summary


def send(out: Path, tensors: Mapping[str, NDArray[Any]], metadata: Metadata, *, force: bool, **beside: Any) -> Summary:
    """`beside` is what else the command says: whoever runs it sees it, and nothing of it is in the file."""
    digest = tensors_file.write(out, tensors, metadata, force=force)
    return {
        "out": str(out),
        "sha256": digest,
        "bytes": destination(out).stat().st_size,
        **({"client": metadata.client} if metadata.client is not None else {}),
        "round": metadata.round,
        **beside,
        "disclosures": list(metadata.disclosures),
    }
