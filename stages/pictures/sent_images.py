"""The images that a file holds, as bytes to look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.formats import tensors_file
from artifacts.kinds import KINDS
from stages.data.dataset_images import load_rows
from stages.data.images import to_bytes
from stages.pictures.surrogates import spread
from stages.proxies.file import seen_pixels

_PAGE_PIXELS = 1 << 22


@dataclass(frozen=True, eq=False)
class SentImages:
    """Images [n, c, h, w] with c of 1 or 3, and their classes [n]."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    # Of all images in the file.
    total: int
    # Only a dataset has them.
    class_names: tuple[str, ...] | None = None
    # What black and white stand for, where that is not −1 and 1.
    ends: tuple[float, float] | None = None


def read_images(path: Path, kind: str, most: int | None = None) -> SentImages:
    """Of a file of a kind with `pictures`; a proxy is stretched from its least pixel to its largest.

    With `most` so many of them, by class; fewer where they are large, and none where not even one is for a page.
    """

    def choose(labels: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.int64]:
        if most is None:
            return np.arange(len(labels))
        room = min(most, _PAGE_PIXELS // max(1, shape[1] * shape[2]))
        return np.array(spread(np.argsort(labels, kind="stable").tolist(), room), np.int64)

    shown = KINDS[kind].pictures
    if shown == "bytes":
        content, total = load_rows(path, choose)
        return SentImages(content.images, content.labels, total, content.class_names)
    tensors: dict[str, NDArray[Any]] = dict(tensors_file.read(path, kind=kind).tensors)
    total = len(tensors["images"])
    if "residuals" in tensors:  # α(softmax(z) − y) is least where the label y is most above what the network says
        residuals = tensors["residuals"]
        labels = residuals.argmin(axis=1) if residuals.shape[1] else np.zeros(total, np.int64)
    else:
        labels = tensors["labels"]
    rows = choose(labels.astype(np.int64), tensors["images"].shape[1:])
    labels = labels[rows].astype(np.int64)
    pixels = seen_pixels(tensors | {"images": tensors["images"][rows]})
    if shown == "clipped":
        return SentImages(visible(pixels), labels, total)
    low, high = float(pixels.min(initial=np.inf)), float(pixels.max(initial=-np.inf))
    stretched = (pixels - low) / max(high - low, 1e-12) * 2 - 1
    return SentImages(visible(stretched), labels, total, ends=(low, high))


def visible(pixels: NDArray[np.floating[Any]]) -> NDArray[np.uint8]:
    """[…, c, h, w]; −1…1 as black to white, clipped beyond; of three channels or more the first three are colours."""
    channels = 3 if pixels.shape[-3] >= 3 else 1
    return to_bytes(pixels[..., :channels, :, :])
