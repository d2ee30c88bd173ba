"""The header of a safetensors file, held against the one layout that we write, and that of anybody else's files.

Nothing is allocated from what a header claims: every number is held against the true size of the file. A reader of our
own accepts no other spelling than the writer's: spaces, key order and gaps between tensors could carry bits that nobody
reviewed.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from artifacts import limits
from artifacts.formats.plain_data import parse_json
from artifacts.metadata import KEY

MAX_DIMS = 8
# In the order in which safetensors lays tensors out: by type, then by name.
DTYPES: dict[str, np.dtype[Any]] = {
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "I32": np.dtype("<i4"),
    "F16": np.dtype("<f2"),
    "U8": np.dtype("|u1"),
}
# What other people's files may hold besides, by the width of a number.
WIDTHS = {name: dtype.itemsize for name, dtype in DTYPES.items()} | {
    "BF16": 2, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "C64": 8,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
_RANK = {name: rank for rank, name in enumerate(DTYPES)}
_START = b'{"__metadata__":{"' + KEY.encode() + b'":'
_END = b'"},"'
_MOST_TABLES = 256


@dataclass(frozen=True)
class TensorSpec:
    name: str
    dtype: str
    shape: tuple[int, ...]

    @cached_property
    def nbytes(self) -> int:
        return math.prod(self.shape) * WIDTHS[self.dtype]


class KnownTables:
    """Tables of tensors that were found good, by their bytes: the files of a run differ in their metadata alone."""

    def __init__(self) -> None:
        self._tables: dict[bytes, tuple[list[TensorSpec], int, set[str]]] = {}

    def find(self, data: bytes, size: int) -> tuple[bytes, list[TensorSpec], str, set[str]] | None:
        """Header, tensors, metadata and the kinds whose promises the tensors keep; None for all that is not known.

        What is found is spelt as `layout` spells it: the table is, as it was the first time, and the rest is checked.
        """
        length = int.from_bytes(data[:8], "little")
        header = data[: 8 + length]
        end = header.find(_END)
        if len(header) != 8 + length or end < 0 or not header.startswith(_START, 8):
            return None
        table = header[end + 1 :].rstrip(b" ")
        known = self._tables.get(table)
        if known is None or 8 + length + known[1] != size or length != -(-(end - 7 + len(table)) // 8) * 8:
            return None
        text = _unescaped(header[8 + len(_START) : end + 1])
        return None if text is None else (header, known[0], text, known[2])

    def remember(self, header: bytes, specs: list[TensorSpec], kind: str) -> None:
        """A header that `layout` would have written, of a file whose kind promises these tensors."""
        if len(self._tables) >= _MOST_TABLES:
            self._tables.clear()
        table = header[header.find(_END) + 1 :].rstrip(b" ")
        total = sum(spec.nbytes for spec in specs)
        self._tables.setdefault(table, (specs, total, set()))[2].add(kind)


def _unescaped(spelt: bytes) -> str | None:
    """The text of a JSON string that `json.dumps` would spell just so; None where it would not."""
    quotes = spelt.count(b'"') - 2
    plain = spelt[1:-1].replace(b'\\"', b'"')
    # Printable letters with nothing escaped but quotes, and those all: most metadata are like that.
    if b"\\" not in plain and plain.isascii() and len(spelt) - 2 - len(plain) == quotes == plain.count(b'"'):
        text = plain.decode("ascii")
        if text.isprintable() and spelt[:1] == spelt[-1:] == b'"':
            return text
    try:
        text = json.loads(spelt)
    except ValueError:
        return None
    return text if isinstance(text, str) and json.dumps(text).encode() == spelt else None


def header_size(start: bytes, size: int) -> int:
    """How many bytes of a file of `size` bytes are its header, its length included, by its first eight bytes."""
    if len(start) < 8:
        raise ValueError(f"a safetensors file has at least 8 bytes, found {len(start)}")
    (length,) = struct.unpack("<Q", start[:8])
    if 8 + length > size:
        raise ValueError(f"its header claims {length} bytes, but the file has only {size}")
    limits.HEADER.check(length, "its header has")
    return 8 + int(length)


def parse_table(
    data: bytes, size: int, dtypes: Collection[str] = DTYPES
) -> tuple[bytes, list[TensorSpec], dict[str, str]]:
    """The header's bytes, its tensors and its metadata, for any safetensors file of `size` bytes, ours or not.

    Nothing is allocated from what the header claims: every number is held against the true size of the file.
    """
    length = header_size(data, size)
    header = data[:length]
    if len(header) != length:
        raise ValueError("it ended while it was read")
    limits.TENSORS.check(header.count(b'"data_offsets"'), "its header names")
    try:
        table = parse_json(header[8:])
    except ValueError as error:
        raise ValueError(f"its header is not JSON ({error})") from None
    if not isinstance(table, dict):
        raise ValueError("its header is not a JSON object")
    text = table.pop("__metadata__", {})
    if not isinstance(text, dict) or not all(isinstance(v, str) for v in text.values()):
        raise ValueError("its metadata are not strings")
    specs: list[tuple[int, TensorSpec]] = []
    for name, fields in table.items():
        specs.append(_parse_entry(name, fields, dtypes))
    specs.sort(key=lambda pair: (pair[0], pair[1].nbytes))
    position = 0
    for start, spec in specs:
        if start != position:
            raise ValueError(f"tensor {spec.name!r} begins at {start}, expected {position}: a gap or an overlap")
        position += spec.nbytes
    if len(header) + position != size:
        raise ValueError(f"its tensors need {len(header) + position} bytes, but the file has {size}")
    return header, [spec for _, spec in specs], text


def _parse_entry(name: str, fields: Any, dtypes: Collection[str]) -> tuple[int, TensorSpec]:
    if not isinstance(fields, dict) or fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"tensor {name!r} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in dtypes:
        raise ValueError(f"tensor {name!r} has the dtype {dtype!r}; known: {', '.join(dtypes)}")
    small = isinstance(shape, list) and len(shape) <= MAX_DIMS
    if not small or not all(type(n) is int and 0 <= n < 2**48 for n in shape):
        raise ValueError(f"tensor {name!r} has a malformed shape")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(n) is int for n in offsets):
        raise ValueError(f"tensor {name!r} has malformed offsets")
    spec = TensorSpec(name, dtype, tuple(shape))
    if offsets[1] - offsets[0] != spec.nbytes or offsets[0] < 0:
        raise ValueError(f"tensor {name!r} of {spec.nbytes} bytes claims the bytes {offsets[0]} to {offsets[1]}")
    return offsets[0], spec


def layout_order(spec: TensorSpec) -> tuple[int, str]:
    return _RANK[spec.dtype], spec.name


def layout(text: str, specs: list[TensorSpec]) -> bytes:
    table: dict[str, Any] = {"__metadata__": {KEY: text}}
    position = 0
    for spec in specs:
        offsets = [position, position + spec.nbytes]
        table[spec.name] = {"dtype": spec.dtype, "shape": list(spec.shape), "data_offsets": offsets}
        position += spec.nbytes
    raw = json.dumps(table, separators=(",", ":"), ensure_ascii=True).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw
