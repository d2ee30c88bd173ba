"""The tensors of any safetensors file, and the range of their numbers, in constant memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.formats.safetensors_layout import WIDTHS, header_size, parse_table

_PIECE = 1 << 20
# Types with numbers that numpy knows; BF16 is the upper half of a float32.
_NUMPY = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip


@dataclass(frozen=True)
class RawTensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


def read_table(path: Path) -> tuple[dict[str, str], list[RawTensor]]:
    """The metadata and the tensors of a file, in the order of their bytes; `ValueError` for anything else."""
    with path.open("rb") as handle:
        size = handle.seek(0, 2)
        handle.seek(0)
        start = handle.read(8)
        header, specs, text = parse_table(start + handle.read(header_size(start, size) - 8), size, WIDTHS)
    tensors, position = [], len(header)
    for spec in specs:
        tensors.append(RawTensor(spec.name, spec.dtype, spec.shape, position, spec.nbytes))
        position += spec.nbytes
    return text, tensors


def pieces(path: Path, tensor: RawTensor) -> Iterator[NDArray[Any]]:
    """The numbers of a tensor, a megabyte at a time; of a type without numbers, nothing."""
    if tensor.dtype not in _NUMPY:
        return
    with path.open("rb") as handle:
        handle.seek(tensor.start)
        left = tensor.nbytes
        while left and (data := handle.read(min(left, _PIECE))):
            left -= len(data)
            values = np.frombuffer(data, _NUMPY[tensor.dtype])
            if tensor.dtype == "BF16":
                values = (values.astype(np.uint32) << 16).view(np.float32)
            yield values


def ranges(path: Path, tensor: RawTensor) -> dict[str, Any]:
    """Smallest and largest of the finite numbers, and how many are not."""
    low, high, strange = math.inf, -math.inf, 0
    for values in pieces(path, tensor):
        if values.dtype.kind == "f":
            finite = np.isfinite(values)
            strange += int(values.size - np.count_nonzero(finite))
            values = values if finite.all() else values[finite]
        if values.size:
            low, high = min(low, values.min().item()), max(high, values.max().item())
    none = low > high
    return {"min": None if none else low, "max": None if none else high, "not_finite": strange}
