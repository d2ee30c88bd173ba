"""The images in a file that leaves, as bytes that a person can look at. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts import tensors_file

IMAGE_KINDS = ("dataset", "surrogate", "proxy")


@dataclass(frozen=True, eq=False)
class SentImages:
    """Images [n, c, h, w], their classes, the names of those, and how the pixels are shown, where that is a choice."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    class_names: Sequence[str]
    words: str


def sent_images(path: Path, kind: str) -> SentImages:
    """Read the images of a dataset, a surrogate or a proxy."""
    from stages.data.dataset_images import load_dataset
    from stages.data.images import to_bytes
    from stages.proxy_file import seen_pixels

    if kind == "dataset":
        content = load_dataset(path).content
        return SentImages(_visible(content.images), content.labels, content.class_names, "")
    tensors: dict[str, NDArray[Any]] = dict(tensors_file.read(path, kind=kind).tensors)
    if kind == "surrogate":
        labels, pixels = tensors["labels"], tensors["images"].astype(np.float32)
        words = "Shown clipped to −1 … 1, black to white; the pixels sent go beyond."
    else:
        labels, pixels = tensors["labels"].astype(np.float32).argmax(axis=1), seen_pixels(tensors)
        low, high = float(pixels.min()), float(pixels.max())
        pixels = (pixels - low) / max(high - low, 1e-12) * 2 - 1
        words = f"Black is {low:.2g}, white {high:.2g}."
    names = [str(label) for label in range(int(labels.max(initial=0)) + 1)]
    return SentImages(_visible(to_bytes(pixels)), labels, names, words)


def _visible(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Of three channels or more the first three are colours."""
    return images[:, :3] if images.shape[1] >= 3 else images[:, :1]
