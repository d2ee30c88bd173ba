"""How each kind of file is laid out, written and read without trusting a byte of it.

Which format a file has is decided here and nowhere else: by its name where only the name is known (`format_named`), by
its name and its first bytes where there is a file (`format_of`). The readers are imported when one is needed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from artifacts.formats.safetensors_layout import TensorSpec
    from artifacts.metadata import Metadata

_PARQUET_MAGIC = b"PAR1"


class Format(enum.StrEnum):
    """A file format; the value is how the names of its files end."""

    TENSORS = ".safetensors"
    DATASET = ".parquet"
    ENVELOPES = ".intoto.jsonl"


CONTENT = (Format.TENSORS, Format.DATASET)
"""Files that hold tensors or rows; envelopes only make statements on files."""


@dataclass(frozen=True)
class Described:
    """What a file says of itself, read from its header or footer. `specs` are the tensors of a file that has some."""

    path: Path
    format: Format
    metadata: Metadata
    specs: tuple[TensorSpec, ...] = ()


def format_named(name: str | Path) -> Format | None:
    """The format that a file of this name must have; None if it is no artifact's name."""
    text = name if isinstance(name, str) else name.name
    return next((format for format in Format if text.endswith(format)), None)


def format_of(path: Path) -> Format:
    """The format of a file, whatever its name: Parquet by its first bytes, else what the name says, else tensors.

    `InputError` if it cannot be read. Whether the file is whole is for its reader to say.
    """
    from artifacts import limits
    from artifacts.formats.tensors_file import unreadable

    try:
        with limits.open_file(path) as handle:
            start = handle.read(len(_PARQUET_MAGIC))
    except OSError as error:
        raise unreadable(path, error) from error
    return Format.DATASET if start == _PARQUET_MAGIC else format_named(path) or Format.TENSORS


def describe(path: Path) -> Described:
    """What an artifact says it is, checked against its seal; the tensors and rows themselves are not looked at."""
    from artifacts.formats import envelope_file, tensors_file

    format = format_of(path)
    match format:
        case Format.DATASET:
            from artifacts.formats import dataset_file  # half a second and 50 MB of pyarrow

            return Described(path, format, dataset_file.survey(path)[1])
        case Format.ENVELOPES:
            return Described(path, format, envelope_file.read(path).metadata)
        case Format.TENSORS:
            return Described(path, format, *tensors_file.read_header(path))


def survey(path: Path) -> tuple[str, Metadata, tuple[TensorSpec, ...]]:
    """The same with the digest of the file, in one pass and in constant memory; for files named as artifacts are."""
    if format_named(path) is Format.DATASET:
        from artifacts.formats import dataset_file

        return (*dataset_file.survey(path), ())
    from artifacts.formats import tensors_stream

    return tensors_stream.survey(path)
