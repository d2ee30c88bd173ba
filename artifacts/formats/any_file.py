"""An artifact of whatever kind, checked whole in constant memory: what it says of itself, its digest, its size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from artifacts.errors import InputError
from artifacts.formats import Format, envelope_file, format_of, tensors_stream
from artifacts.ledgers.gate import destination
from artifacts.metadata import Metadata
from artifacts.writing.atomic import exists_error

_MADE = ("kind", "stage", "method", "client", "round", "params", "inputs", "seed", "versions")


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


def refuse_other(path: Path, metadata: Metadata, *, force: bool, results: Sequence[str] = ()) -> None:
    """Called before work that is long or charged: a file that is there and was made otherwise is refused now.

    One that was made from the same, in the same way, may be the very file that will come out. `results` are entries of
    its params that only the work gives.
    """
    for there in {path, destination(path)}:
        if force or not there.exists():
            continue
        try:
            found = scan(there).metadata
            found = replace(found, params={name: v for name, v in found.params.items() if name not in results})
        except InputError:
            raise exists_error(there) from None
        if any(getattr(found, name) != getattr(metadata, name) for name in _MADE):
            raise exists_error(there)


def scan(path: Path) -> Whole:
    """Read the file once, checking everything that it claims."""
    match format_of(path):
        case Format.DATASET:
            from artifacts.formats import dataset_stream  # half a second and 50 MB of pyarrow

            return dataset_stream.scan(path)
        case Format.ENVELOPES:
            return envelope_file.read(path)
        case Format.TENSORS:
            return tensors_stream.scan(path)
