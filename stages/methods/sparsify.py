"""Which coordinates of an update are sent: Fed-SMP (Hu et al. 2022), local update sparsification (Cheng et al. 2022).

A mask that is the same for all clients and public leaves fewer coordinates to noise: the sensitivity stays C, the noise
has k dimensions instead of d. A mask that a client chooses by its own update is private itself; then the noise must
cover all coordinates before anyone untrusted sees which ones are zero (privacy contract, rule 14).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Tensors = Mapping[str, NDArray[Any]]
Mask = dict[str, NDArray[np.bool_]]


def largest(values: Tensors, keep: float) -> Mask:
    """The k = ⌈keep·d⌉ coordinates of largest magnitude over all tensors together; of equals the first."""
    flat = np.concatenate([np.abs(values[name]).reshape(-1) for name in sorted(values)])
    chosen = np.argsort(-flat, kind="stable")[: kept_of(len(flat), keep)]
    return _shaped(chosen, values)


def random_mask(values: Tensors, keep: float, rng: Generator) -> Mask:
    """k coordinates at random, drawn without regard to any value: Fed-SMP's rand-k."""
    total = sum(values[name].size for name in values)
    return _shaped(rng.choice(total, kept_of(total, keep), replace=False), values)


def moved_mask(model: Tensors, before: Tensors, keep: float, rng: Generator) -> Mask:
    """Our own mask, from what everybody knows: half the places go to what moved most in the last round.

    The other half is drawn at random from the rest. By movement alone the first mask would stay for ever: what is not
    sent does not move.
    """
    names = sorted(model)
    moved = np.concatenate([np.abs(model[name] - before[name]).reshape(-1) for name in names])
    count = kept_of(len(moved), keep)
    order = np.argsort(-moved, kind="stable")
    first, rest = order[: count // 2], order[count // 2 :]
    return _shaped(np.concatenate([first, rng.choice(rest, count - count // 2, replace=False)]), model)


def masked(values: Tensors, mask: Mask) -> dict[str, NDArray[Any]]:
    return {name: np.where(mask[name], tensor, np.zeros((), tensor.dtype)) for name, tensor in values.items()}


def kept_of(total: int, keep: float) -> int:
    return max(1, math.ceil(keep * total))


def _shaped(chosen: NDArray[np.int64], values: Tensors) -> Mask:
    """Positions in the flat vector, tensors in the order of their names, as a mask for each tensor."""
    names = sorted(values)
    flat = np.zeros(sum(values[name].size for name in names), bool)
    flat[chosen] = True
    ends = np.cumsum([values[name].size for name in names])[:-1]
    return {n: part.reshape(values[n].shape) for n, part in zip(names, np.split(flat, ends), strict=True)}
