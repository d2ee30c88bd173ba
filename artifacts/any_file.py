"""An artifact of whatever kind, checked whole in constant memory: what it says of itself, its digest, its size."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from artifacts import envelope_file, tensors_stream
from artifacts.metadata import Metadata


class Whole(Protocol):
    """A file that was found whole."""

    @property
    def path(self) -> Path: ...

    @property
    def metadata(self) -> Metadata: ...

    @property
    def sha256(self) -> str: ...

    @property
    def size(self) -> int: ...


def scan(path: Path) -> Whole:
    """Read the file once, checking everything that it claims."""
    if path.suffix == ".parquet":
        from artifacts import dataset_stream  # half a second and 50 MB of pyarrow, which tensors do not need

        return dataset_stream.scan(path)
    if path.name.endswith(envelope_file.SUFFIX):
        return envelope_file.read(path)
    return tensors_stream.scan(path)
