"""The tensors of any safetensors file, and the range of their numbers, in constant memory.

Wider than `artifacts.safetensors_layout`, which knows the types and the spelling of our own files only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.safetensors_layout import MAX_HEADER

_PIECE = 1 << 20
# Types with numbers that numpy knows; BF16 is the upper half of a float32.
_NUMPY = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
_OTHERS = {"F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "C64": 8}  # described, but without a range


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
        length = int.from_bytes(handle.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER):
            raise ValueError(
                f"its header claims {length} bytes; the file has {size}, and at most {MAX_HEADER} are read"
            )
        try:
            table = json.loads(handle.read(length).decode())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"its header is not JSON ({error})") from None
    if not isinstance(table, dict):
        raise ValueError("its header is not a JSON object")
    text = table.pop("__metadata__", {})
    if not isinstance(text, dict) or not all(isinstance(value, str) for value in text.values()):
        raise ValueError("its metadata are not strings")
    tensors = [_tensor(name, fields, 8 + length, size) for name, fields in table.items()]
    return text, sorted(tensors, key=lambda tensor: (tensor.start, tensor.nbytes))


def _tensor(name: str, fields: Any, start: int, size: int) -> RawTensor:
    try:
        dtype, shape, (first, last) = fields["dtype"], fields["shape"], fields["data_offsets"]
        width = np.dtype(_NUMPY[dtype]).itemsize if dtype in _NUMPY else _OTHERS[dtype]
        whole = all(type(n) is int and n >= 0 for n in [*shape, first, last])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"tensor {name!r} is not described by a dtype that is known, shape and data_offsets") from None
    if not whole or last - first != math.prod(shape) * width or start + last > size:
        raise ValueError(f"tensor {name!r} claims bytes that its shape does not have, or the file")
    return RawTensor(name, dtype, tuple(shape), start + first, last - first)


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
