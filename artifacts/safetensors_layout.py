"""The header of a safetensors file, held against the one layout that we write, and that of anybody else's files.

Nothing is allocated from what a header claims: every number is held against the true size of the file. A reader of our
own accepts no other spelling than the writer's: spaces, key order and gaps between tensors could carry bits that nobody
reviewed.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from artifacts.metadata import KEY

MAX_HEADER = 8 * 1024 * 1024
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
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


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
        if len(header) != 8 + length or length > MAX_HEADER or end < 0 or not header.startswith(_START, 8):
            return None
        table = header[end + 1 :].rstrip(b" ")
        known = self._tables.get(table)
        if known is None or 8 + length + known[1] != size or length != -(-(end - 7 + len(table)) // 8) * 8:
            return None
        spelt = header[8 + len(_START) : end + 1]
        try:
            text = json.loads(spelt)
        except ValueError:
            return None
        if not isinstance(text, str) or json.dumps(text).encode() != spelt:
            return None
        return header, known[0], text, known[2]

    def remember(self, header: bytes, specs: list[TensorSpec], kind: str) -> None:
        """A header that `layout` would have written, of a file whose kind promises these tensors."""
        if len(self._tables) >= _MOST_TABLES:
            self._tables.clear()
        table = header[header.find(_END) + 1 :].rstrip(b" ")
        total = sum(spec.nbytes for spec in specs)
        self._tables.setdefault(table, (specs, total, set()))[2].add(kind)


def parse_table(data: bytes, size: int) -> tuple[bytes, list[TensorSpec], dict[str, str]]:
    """The header's bytes, its tensors and its metadata, for any safetensors file of `size` bytes, ours or not.

    Nothing is allocated from what the header claims: every number is held against the true size of the file.
    """
    if len(data) < 8:
        raise ValueError(f"a safetensors file has at least 8 bytes, found {len(data)}")
    (length,) = struct.unpack("<Q", data[:8])
    if length > MAX_HEADER:
        raise ValueError(f"its header claims {length} bytes; at most {MAX_HEADER} are read")
    if 8 + length > size or 8 + length > len(data):
        raise ValueError(f"its header claims {length} bytes, but the file has only {size}")
    header = data[: 8 + length]
    try:
        table = json.loads(header[8:].decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its header is not JSON ({error})") from None
    if not isinstance(table, dict):
        raise ValueError("its header is not a JSON object")
    text = table.pop("__metadata__", {})
    if not isinstance(text, dict) or not all(isinstance(v, str) for v in text.values()):
        raise ValueError("its metadata are not strings")
    specs: list[tuple[int, TensorSpec]] = []
    for name, fields in table.items():
        specs.append(_parse_entry(name, fields))
    specs.sort(key=lambda pair: (pair[0], pair[1].nbytes))
    position = 0
    for start, spec in specs:
        if start != position:
            raise ValueError(f"tensor {spec.name!r} begins at {start}, expected {position}: a gap or an overlap")
        position += spec.nbytes
    if 8 + length + position != size:
        raise ValueError(f"its tensors need {8 + length + position} bytes, but the file has {size}")
    return header, [spec for _, spec in specs], text


def _parse_entry(name: str, fields: Any) -> tuple[int, TensorSpec]:
    if not isinstance(fields, dict) or fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"tensor {name!r} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"tensor {name!r} has the dtype {dtype!r}; known: {', '.join(DTYPES)}")
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
