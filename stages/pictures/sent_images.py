"""The images that a file holds, as bytes to look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts import tensors_file
from stages.data.dataset_images import load_dataset
from stages.data.images import to_bytes
from stages.proxy_file import seen_pixels

KINDS = ("dataset", "surrogate", "proxy")


@dataclass(frozen=True, eq=False)
class SentImages:
    """Images [n, c, h, w] with c of 1 or 3, and their classes [n]."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    # Only a dataset has them.
    class_names: tuple[str, ...] | None = None
    # What black and white stand for, where that is not −1 and 1.
    ends: tuple[float, float] | None = None


def read_images(path: Path, kind: str) -> SentImages:
    """Of a file of one of the `KINDS`; a proxy is stretched from its least pixel to its largest."""
    if kind == "dataset":
        content = load_dataset(path).content
        return SentImages(content.images, content.labels, content.class_names)
    tensors: dict[str, NDArray[Any]] = dict(tensors_file.read(path, kind=kind).tensors)
    pixels, labels = seen_pixels(tensors), tensors["labels"]
    if kind == "surrogate":
        return SentImages(visible(pixels), labels.astype(np.int64))
    low, high = float(pixels.min(initial=np.inf)), float(pixels.max(initial=-np.inf))
    stretched = (pixels - low) / max(high - low, 1e-12) * 2 - 1
    # The class of an image is the largest of its labels.
    return SentImages(visible(stretched), labels.astype(np.float32).argmax(axis=1), ends=(low, high))


def visible(pixels: NDArray[np.floating[Any]]) -> NDArray[np.uint8]:
    """[…, c, h, w]; −1…1 as black to white, clipped beyond; of three channels or more the first three are colours."""
    channels = 3 if pixels.shape[-3] >= 3 else 1
    return to_bytes(pixels[..., :channels, :, :])
