"""Does a synthetic set repeat its training images? Nearest-neighbour distances, against held-out real images.

A generator that generalises is about as far from its training images as other real images are. One that memorises is
nearer. The check sees private data: its output is private, and under differential privacy it decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.uint8]


@dataclass(frozen=True)
class Nearest:
    """For each query image: the row of the nearest reference image, and the distance (root mean square, 0 to 1)."""

    rows: NDArray[np.int64]
    distances: NDArray[np.float64]


def nearest(queries: Images, references: Images, *, chunk: int = 256) -> Nearest:
    """Exact: distances of integers, in float64, by ‖a‖² − 2ab + ‖b‖² in chunks of queries."""
    flat = references.reshape(len(references), -1).astype(np.float64)
    norms = (flat**2).sum(axis=1)
    rows = np.empty(len(queries), np.int64)
    distances = np.empty(len(queries), np.float64)
    for first in range(0, len(queries), chunk):
        part = queries[first : first + chunk].reshape(-1, flat.shape[1]).astype(np.float64)
        squared = (part**2).sum(axis=1)[:, None] - 2 * part @ flat.T + norms
        found = squared.argmin(axis=1)
        rows[first : first + chunk] = found
        distances[first : first + chunk] = squared[np.arange(len(part)), found].clip(min=0)
    return Nearest(rows, np.sqrt(distances / flat.shape[1]) / 255)


def share_nearer(synthetic: Nearest, held_out: Nearest) -> float:
    """P(a synthetic image is nearer to the training data than a held-out real one): ½ where they are alike.

    The Mann-Whitney statistic divided by the number of pairs; equal distances count half.
    """
    ordered = np.sort(held_out.distances)
    above = len(ordered) - np.searchsorted(ordered, synthetic.distances, side="right")
    equal = np.searchsorted(ordered, synthetic.distances, side="right") - np.searchsorted(
        ordered, synthetic.distances, side="left"
    )
    return float((above + 0.5 * equal).sum() / (len(ordered) * len(synthetic.distances)))
