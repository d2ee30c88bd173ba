"""Labelled images in memory, and the one scaling between bytes and network input.

The scaling is the constant map [0, 255] → [−1, 1]. A mean or a variance of the pixels would be a statistic of
private data that leaves with every model trained on it, so none is ever estimated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images [n, c, h, w] with c of 1 or 3, their labels [n], and the names of all classes, occurring or not.

    `ids` says which client each row belongs to (a hospital, a writer) where the source knows. `units` says which
    person, where people are protected: numbers from 0, in the order of their first rows.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    ids: tuple[str, ...] | None = None
    units: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        shape = self.images.shape
        if self.images.dtype != np.uint8 or len(shape) != 4 or shape[1] not in (1, 3) or 0 in shape[2:]:
            raise ValueError(
                f"images must be uint8 [n, 1 or 3, height, width], found {self.images.dtype} {list(shape)}"
            )
        if self.labels.dtype != np.int64 or self.labels.shape != shape[:1]:
            raise ValueError(
                f"labels must be int64, one for each of the {shape[0]} images, "
                f"found {self.labels.dtype} {list(self.labels.shape)}"
            )
        if len(set(self.class_names)) != len(self.class_names):
            raise ValueError("class names must differ from each other, found the same name twice")
        if len(self) and not (self.labels.min() >= 0 and self.labels.max() < len(self.class_names)):
            raise ValueError(
                f"labels must be in 0…{len(self.class_names) - 1}, one number for each class name, "
                f"found {self.labels.min()}…{self.labels.max()}"
            )
        if self.ids is not None and len(self.ids) != len(self):
            raise ValueError(f"ids must be one for each of the {len(self)} images, found {len(self.ids)}")
        if self.units is not None and self.units.shape != shape[:1]:
            raise ValueError(f"units must be one for each of the {len(self)} images, found {len(self.units)}")

    def __len__(self) -> int:
        return int(self.images.shape[0])

    def take(self, rows: NDArray[np.int64]) -> LabelledImages:
        """The given rows, in the given order, under the same class names."""
        ids = None if self.ids is None else tuple(self.ids[row] for row in rows)
        units = None if self.units is None else counted(self.units[rows])
        return LabelledImages(self.images[rows], self.labels[rows], self.class_names, ids, units)

    def class_counts(self) -> NDArray[np.int64]:
        """How many rows each class has, classes without a row included."""
        return np.bincount(self.labels, minlength=len(self.class_names)).astype(np.int64)


def counted(names: NDArray[Any]) -> NDArray[np.int64]:
    """Numbers in place of names: 0 for the first that appears, 1 for the next. They say who is who, and no more."""
    _, firsts, numbers = np.unique(names, return_index=True, return_inverse=True)
    order: NDArray[np.int64] = np.argsort(np.argsort(firsts)).astype(np.int64)
    return order[numbers.reshape(-1)]


def to_pixels(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Bytes 0…255 → float32 in [−1, 1], ends included: x / 127.5 − 1."""
    if images.dtype != np.uint8:
        raise ValueError(f"pixels are scaled from uint8, found {images.dtype}")
    return images.astype(np.float32) / np.float32(127.5) - np.float32(1.0)


def to_bytes(pixels: NDArray[np.floating[Any]]) -> NDArray[np.uint8]:
    """The inverse of `to_pixels`, for whatever a network made: rounded to the nearest byte, clipped at the ends."""
    if np.isnan(pixels).any():
        raise ValueError("pixels that are not numbers (NaN) cannot become an image")
    nearest: NDArray[np.floating[Any]] = np.clip(np.rint((pixels + 1.0) * 127.5), 0.0, 255.0)
    return nearest.astype(np.uint8)
