"""Does a synthetic set repeat its training images? Nearest-neighbour distances, against held-out real images.

A generator that generalises is about as far from its training images as other real images are. One that memorises is
nearer. The check sees private data: its output is private, and under differential privacy it decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.methods.image_rows import ImageArray

Labels = NDArray[np.int64]
_BLOCK = 4096  # references at a time: memory does not grow with them


@dataclass(frozen=True)
class Nearest:
    """For each query image: the row of the nearest reference image, and the distance (root mean square, 0 to 1)."""

    rows: NDArray[np.int64]
    distances: NDArray[np.float64]

    def only(self, kept: NDArray[np.bool_]) -> Nearest:
        """Of some of the queries."""
        return Nearest(self.rows[kept], self.distances[kept])


def nearest(queries: ImageArray, references: ImageArray, *, chunk: int = 256) -> Nearest:
    """The nearest reference of each query; the first of them where several are equally near."""
    return _search(queries, references, chunk, skip_own=False)


def nearest_other(images: ImageArray, *, chunk: int = 256) -> Nearest:
    """The nearest other image of the same set (leave one out). A set with a picture twice has distances of zero."""
    if len(images) < 2:
        raise ValueError(f"the nearest other image needs at least two images, found {len(images)}")
    return _search(images, images, chunk, skip_own=True)


def _search(queries: ImageArray, references: ImageArray, chunk: int, *, skip_own: bool) -> Nearest:
    """Exact: distances of integers, in float64, by ‖a‖² − 2ab + ‖b‖², a block of each at a time."""
    numbers = int(np.prod(references.shape[1:]))
    rows = np.zeros(len(queries), np.int64)
    squares = np.full(len(queries), np.inf)
    for start in range(0, len(references), _BLOCK):
        block = references[start : start + _BLOCK].reshape(-1, numbers).astype(np.float64)
        norms = (block**2).sum(axis=1)
        for first in range(0, len(queries), chunk):
            these = slice(first, first + chunk)
            part = queries[these].reshape(-1, numbers).astype(np.float64)
            squared = (part**2).sum(axis=1)[:, None] - 2 * part @ block.T + norms
            if skip_own:
                own = np.arange(first, first + len(part))[:, None] == np.arange(start, start + len(block))
                squared[own] = np.inf
            found = squared.argmin(axis=1)
            least = squared[np.arange(len(part)), found]
            nearer = least < squares[these]
            rows[these] = np.where(nearer, found + start, rows[these])
            squares[these] = np.where(nearer, least, squares[these])
    return Nearest(rows, np.sqrt(squares / numbers) / 255)


def share_nearer(synthetic: Nearest, held_out: Nearest) -> float:
    """P(a synthetic image is nearer to the training data than a held-out real one): ½ where they are alike.

    The Mann-Whitney statistic divided by the number of pairs; equal distances count half.
    """
    values, ordered = synthetic.distances, np.sort(held_out.distances)
    left, right = np.searchsorted(ordered, values, side="left"), np.searchsorted(ordered, values, side="right")
    above, equal = len(ordered) - right, right - left
    return float((above + 0.5 * equal).sum() / (len(ordered) * len(values)))


def share_nearer_by_class(
    synthetic: Nearest, labels: Labels, held_out: Nearest, held_out_labels: Labels
) -> float | None:
    """The same among images of one class, averaged over the synthetic images; None if no class has both.

    A client may have few classes. Held-out images of the others are far from its data, and against them even a set
    that repeats nothing would look near.
    """
    total, weight = 0.0, 0
    for label in np.unique(labels):
        mine, theirs = synthetic.only(labels == label), held_out.only(held_out_labels == label)
        if len(theirs.distances):
            total += len(mine.distances) * share_nearer(mine, theirs)
            weight += len(mine.distances)
    return total / weight if weight else None
