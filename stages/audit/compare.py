"""How far two files of one kind are apart, where their bytes are not the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from artifacts.formats import Format, dataset_file, format_named, tensors_file
from stages.data.png import decode_png


def largest_difference(one: Path, other: Path) -> float | None:
    """The largest difference of two values, relative to the file's largest; None if they hold different things.

    Not tensor by tensor: the bias of a layer before a normalisation moves by rounding errors alone, all of which
    differ on another processor.
    """
    if format_named(one) is Format.DATASET:
        return _images(one, other)
    first, second = tensors_file.read(one).tensors, tensors_file.read(other).tensors
    if {n: (t.shape, t.dtype) for n, t in first.items()} != {n: (t.shape, t.dtype) for n, t in second.items()}:
        return None
    apart = largest = 0.0
    for name, tensor in first.items():
        mine, theirs = tensor.astype(np.float64), second[name].astype(np.float64)
        if tensor.dtype.kind != "f" and (mine != theirs).any():
            return None
        apart = max(apart, float(np.abs(mine - theirs).max(initial=0.0)))
        largest = max(largest, float(np.abs(mine).max(initial=0.0)))
    return apart / largest if largest else (np.inf if apart else 0.0)


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
