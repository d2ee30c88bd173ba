"""One dataset, one shape: every image is brought to what was asked for, or found to agree with the others."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from artifacts.limits import PIXELS
from stages.data.params import Fit

_SHAPES_NAMED = 4
_log = logging.getLogger("fedsynth")


class CountError(ValueError):
    """Fewer images came than were announced."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """What is asked of the images: `size` is height and width, `channels` 1 or 3; None leaves either alone.

    `fit` says what becomes of other proportions; `bits` how many of a pixel are used where a file has more than 8;
    `skip_bad` leaves out files that are no such image, instead of refusing all.
    """

    size: tuple[int, int] | None = None
    channels: int | None = None
    fit: Fit = "stretch"
    bits: int | None = None
    skip_bad: bool = False

    def apply(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """An image [c, h, w] in this form: grey by ITU-R 601, colour by repetition, resized bilinearly.

        Proportions are kept by cutting off what is too long on both sides (crop), or by black beside the image (pad).
        """
        if self.channels not in (None, len(image)):
            image = image.repeat(3, axis=0) if len(image) == 1 else _from_pillow(_to_pillow(image).convert("L"))
        if self.size is not None and image.shape[1:] != self.size:
            height, width = self.size
            picture, way = _to_pillow(image), Image.Resampling.BILINEAR
            if self.fit == "stretch":
                picture = picture.resize((width, height), way)
            else:
                picture = (ImageOps.fit if self.fit == "crop" else ImageOps.pad)(picture, (width, height), way)
            image = _from_pillow(picture)
        return image


def collect(images: Iterable[NDArray[np.uint8]], count: int, form: Form) -> NDArray[np.uint8]:
    """`count` images [c, h, w], brought into `form`, as one array [n, c, h, w]; `ValueError` if they disagree."""
    if count < 1:
        raise CountError("it holds no images")
    shapes: Counter[tuple[int, ...]] = Counter()
    stack = np.empty((0, 0, 0, 0), dtype=np.uint8)
    stretched = 0
    for position, raw in enumerate(images):
        image = form.apply(raw)
        stretched += form.fit == "stretch" and raw.shape[1] * image.shape[2] != raw.shape[2] * image.shape[1]
        if position == 0:
            # A few compressed bytes can declare any amount of pixels.
            PIXELS.check(count * image.size, f"give a smaller --image-size: {count:,} of {_spell(image.shape)} take")
            stack = np.empty((count, *image.shape), dtype=np.uint8)
        shapes[image.shape] += 1
        if position < count and image.shape == stack.shape[1:]:
            stack[position] = image
    if len(shapes) > 1:
        named = [f"{number:,} of {_spell(shape)}" for shape, number in shapes.most_common(_SHAPES_NAMED)]
        found = ", ".join(named) + (", and others" if len(shapes) > _SHAPES_NAMED else "")
        needed = ["--image-size"] if len({shape[1:] for shape in shapes}) > 1 else []
        needed += ["--channels"] if len({shape[0] for shape in shapes}) > 1 else []
        raise ValueError(f"its images have different shapes ({found}); give {' and '.join(needed)}")
    if shapes.total() != count:
        raise CountError(f"it declares {count:,} images and holds {shapes.total():,}")
    if stretched:
        _log.warning(
            "warning: %s of %s images had other proportions and were stretched; --fit crop or pad keeps them.",
            f"{stretched:,}", f"{count:,}",
        )  # fmt: skip
    return stack


def _spell(shape: tuple[int, ...]) -> str:
    channels, height, width = shape
    return f"{height}×{width}×{channels}"


def _to_pillow(image: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)))


def _from_pillow(picture: Image.Image) -> NDArray[np.uint8]:
    pixels: NDArray[np.uint8] = np.asarray(picture)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
