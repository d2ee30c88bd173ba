"""How far two files of one kind are apart, where their bytes are not the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from artifacts import dataset_file, tensors_file
from stages.data.png import decode_png


def largest_difference(one: Path, other: Path) -> float | None:
    """The largest difference of two values, relative to the largest value; None if they hold different things."""
    if one.suffix == ".parquet":
        return _images(one, other)
    first, second = tensors_file.read(one).tensors, tensors_file.read(other).tensors
    if {n: (t.shape, t.dtype) for n, t in first.items()} != {n: (t.shape, t.dtype) for n, t in second.items()}:
        return None
    worst = 0.0
    for name, tensor in first.items():
        if not tensor.size:
            continue
        mine, theirs = tensor.astype(np.float64), second[name].astype(np.float64)
        apart, largest = float(np.abs(mine - theirs).max()), float(np.abs(mine).max())
        if tensor.dtype.kind != "f" and apart:
            return None
        worst = max(worst, apart / largest if largest else (np.inf if apart else 0.0))
    return worst


def _images(one: Path, other: Path) -> float | None:
    first, second = dataset_file.read(one), dataset_file.read(other)
    if len(first) != len(second) or (first.labels != second.labels).any():
        return None
    worst = 0
    for mine, theirs in zip(first.pngs, second.pngs, strict=True):
        pixels, others = decode_png(mine.as_py()).astype(np.int16), decode_png(theirs.as_py()).astype(np.int16)
        if pixels.shape != others.shape:
            return None
        worst = max(worst, int(np.abs(pixels - others).max()))
    return worst / 255
