"""Three plain ways to send an update in fewer bytes: what TOFU has to beat at equal size.

- `quantised`: a few bits a number, on an even grid within each block (QSGD, Alistarh et al. 2017); unbiased where it is
  rounded at random.
- `topk`: the numbers of largest magnitude with their places (Aji and Heafield 2017); what was left out is added to the
  next round's update by the one who keeps it (error feedback, Karimireddy et al. 2019).
- `lowrank`: each matrix as a product of two thin ones, by subspace iteration (PowerSGD, Vogels et al. 2019).

An update is one flat vector, tensors in the order of their names. Tensors in, tensors out; nothing here reads a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from stages.methods.sparsify import kept_of

Shapes = Mapping[str, tuple[int, ...]]
Sent = dict[str, NDArray[Any]]
Vector = NDArray[np.float32]
TINY = float(np.finfo(np.float32).tiny)


def flat(update: Mapping[str, NDArray[Any]]) -> Vector:
    return np.concatenate([update[name].astype(np.float32).ravel() for name in sorted(update)])


def shaped(vector: Vector, shapes: Shapes) -> dict[str, Vector]:
    names = sorted(shapes)
    ends = np.cumsum([int(np.prod(shapes[name])) for name in names])[:-1]
    return {name: part.reshape(shapes[name]) for name, part in zip(names, np.split(vector, ends), strict=True)}


def quantise(
    vector: Vector, *, bits: int, block: int, rounding: Literal["stochastic", "nearest"], rng: Generator
) -> Sent:
    """Codes of `bits` bits each, packed, and the largest magnitude of each block.

    One bit rounded to the nearest is the sign; its two values are then ± the block's mean magnitude, which is nearest.
    """
    padded = np.zeros(-(-len(vector) // block) * block, np.float32)
    padded[: len(vector)] = vector
    rows = padded.reshape(-1, block).astype(np.float64)
    magnitudes = np.abs(rows)
    signs = bits == 1 and rounding == "nearest"
    ranges = (magnitudes.mean(1) if signs else magnitudes.max(1)).astype(np.float32)
    places = (rows / np.maximum(ranges, TINY)[:, None].astype(np.float64) + 1) / 2 * (2**bits - 1)
    places += rng.random(places.shape) if rounding == "stochastic" else 0.5
    codes = np.clip(np.floor(places), 0, 2**bits - 1).astype(np.uint8).ravel()[: len(vector)]
    unpacked = np.unpackbits(codes[:, None], axis=1)[:, 8 - bits :]
    return {"codes": np.packbits(unpacked.ravel()), "ranges": ranges}


def dequantise(sent: Mapping[str, NDArray[Any]], *, size: int, bits: int, block: int) -> Vector:
    unpacked = np.unpackbits(sent["codes"], count=size * bits).reshape(size, bits)
    codes = np.packbits(np.pad(unpacked, ((0, 0), (8 - bits, 0))), axis=1)[:, 0].astype(np.float64)
    ranges = np.repeat(sent["ranges"].astype(np.float64), block)[:size]
    found: Vector = ((codes / (2**bits - 1) * 2 - 1) * ranges).astype(np.float32)
    return found


def largest(vector: Vector, *, keep: float) -> Sent:
    """The k = ⌈keep·d⌉ largest: where they are, and as half floats by the largest of them."""
    chosen = np.sort(np.argsort(-np.abs(vector), kind="stable")[: kept_of(len(vector), keep)])
    scale = np.float32(max(float(np.abs(vector).max()), TINY))
    return {
        "positions": chosen.astype(np.int32),
        "values": (vector[chosen] / scale).astype(np.float16),
        "ranges": np.array([scale], np.float32),
    }


def spread(sent: Mapping[str, NDArray[Any]], *, size: int) -> Vector:
    """The other way: zero wherever nothing was sent."""
    found = np.zeros(size, np.float32)
    found[sent["positions"]] = sent["values"].astype(np.float32) * sent["ranges"][0]
    return found


def factorise(update: Mapping[str, NDArray[Any]], *, rank: int, iterations: int, rng: Generator) -> Sent:
    """P [m, r], orthonormal, and Q [n, r] of each matrix M ≈ PQᵀ; a matrix that is smaller than these goes whole."""
    parts: list[Vector] = []
    for name in sorted(update):
        tensor = update[name].astype(np.float32)
        rows, columns = _matrix(tensor.shape)
        if not _is_smaller(rows, columns, rank):
            parts.append(tensor.ravel())
            continue
        matrix = tensor.reshape(rows, columns)
        right = rng.standard_normal((columns, rank), np.float32)
        for _ in range(iterations):
            left = np.linalg.qr(matrix @ right)[0]
            right = matrix.T @ left
        parts += [left.ravel(), right.ravel()]
    return {"factors": np.concatenate(parts)}


def factors_of(shapes: Shapes, *, rank: int) -> int:
    """How many numbers factors of this rank are."""
    return sum(sum(_sizes(shape, rank)) for shape in shapes.values())


def multiply(sent: Mapping[str, NDArray[Any]], shapes: Shapes, *, rank: int) -> dict[str, Vector]:
    left, found = sent["factors"], {}
    for name in sorted(shapes):
        sizes = _sizes(shapes[name], rank)
        parts = [left[: sizes[0]], *([left[sizes[0] : sum(sizes)]] if len(sizes) > 1 else [])]
        left = left[sum(sizes) :]
        tensor = parts[0] if len(parts) == 1 else parts[0].reshape(-1, rank) @ parts[1].reshape(-1, rank).T
        found[name] = tensor.reshape(shapes[name]).astype(np.float32)
    return found


def _sizes(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    rows, columns = _matrix(shape)
    return (rows * rank, columns * rank) if _is_smaller(rows, columns, rank) else (rows * columns,)


def _matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """A tensor as a matrix: its first dimension by all others."""
    return (shape[0], int(np.prod(shape[1:]))) if len(shape) > 1 else (1, int(np.prod(shape)))


def _is_smaller(rows: int, columns: int, rank: int) -> bool:
    return rank < min(rows, columns) and rank * (rows + columns) < rows * columns
