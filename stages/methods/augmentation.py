"""Differentiable siamese augmentation (Zhao & Bilen 2021), as FedLAP uses it.

One transformation is drawn for a real and a synthetic batch alike, the same for every image in them: so gradients of
the two can be compared, and no record has randomness of its own (privacy contract, rule 7). Strengths are those of the
paper: rotations up to 15°, scales up to 1.2, crops by an eighth, cut-outs of half a side. Where a picture ends black
comes in; a cut-out is grey.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

Transformation = Callable[[Tensor], Tensor]

_DEGREES, _SCALE, _CROP, _CUTOUT = 15.0, 1.2, 0.125, 0.5
_BRIGHTNESS, _SATURATION, _CONTRAST = 1.0, 2.0, 0.5
_BLACK = -1.0


def drawn_transformation(names: Sequence[str], generator: torch.Generator | None) -> Transformation:
    """One of the named augmentations with a strength of its own, for images [n, c, h, w]; nothing if none is named."""
    if not names:
        return unchanged
    if generator is None:
        raise ValueError("augmentation draws: give it a generator")
    chosen = names[int(torch.randint(len(names), (1,), generator=generator))]
    a, b, c = torch.rand(3, generator=generator).tolist()
    match chosen:
        case "colour":
            return lambda images: _coloured(images, a, b, c)
        case "crop":
            return lambda images: _shifted(images, a, b)
        case "cutout":
            return lambda images: _cut_out(images, a, b)
        case "flip":
            return (lambda images: images.flip(3)) if a < 0.5 else unchanged
        case "scale":
            across, down = (1 / _SCALE + part * (_SCALE - 1 / _SCALE) for part in (a, b))
            return lambda images: _affine(images, ((across, 0.0), (0.0, down)))
        case "rotate":
            angle = math.radians((2 * a - 1) * _DEGREES)
            turn = ((math.cos(angle), -math.sin(angle)), (math.sin(angle), math.cos(angle)))
            return lambda images: _affine(images, turn)
    raise ValueError(f"no augmentation is called {chosen!r}")


def unchanged(images: Tensor) -> Tensor:
    """The transformation where none is asked for."""
    return images


def _coloured(images: Tensor, brightness: float, saturation: float, contrast: float) -> Tensor:
    images = images + (brightness - 0.5) * _BRIGHTNESS
    grey = images.mean(dim=1, keepdim=True)
    images = grey + (images - grey) * (saturation * _SATURATION)
    middle = images.mean(dim=(1, 2, 3), keepdim=True)
    return middle + (images - middle) * (contrast + _CONTRAST)


def _shifted(images: Tensor, across: float, down: float) -> Tensor:
    """A crop of the image with a dark margin: shifted by up to an eighth each way, black coming in."""
    height, width = images.shape[2:]
    most_down, most_across = int(height * _CROP + 0.5), int(width * _CROP + 0.5)
    y, x = int(down * (2 * most_down + 1)), int(across * (2 * most_across + 1))
    margins = (most_across, most_across, most_down, most_down)
    padded = nn.functional.pad(images, margins, value=_BLACK)
    return padded[:, :, y : y + height, x : x + width]


def _cut_out(images: Tensor, across: float, down: float) -> Tensor:
    height, width = images.shape[2:]
    tall, broad = int(height * _CUTOUT + 0.5), int(width * _CUTOUT + 0.5)
    top, left = int(down * (height + 1)) - tall // 2, int(across * (width + 1)) - broad // 2
    keep = torch.ones(1, 1, height, width, dtype=images.dtype, device=images.device)
    keep[:, :, max(0, top) : max(0, top + tall), max(0, left) : max(0, left + broad)] = 0
    return images * keep


def _affine(images: Tensor, matrix: tuple[tuple[float, float], tuple[float, float]]) -> Tensor:
    (a, b), (c, d) = matrix
    theta = torch.tensor([[a, b, 0.0], [c, d, 0.0]], dtype=images.dtype, device=images.device)
    # One grid for all: torch makes none for a batch of no images, and an empty Poisson sample is legal (rule 12).
    grid = nn.functional.affine_grid(theta[None], [1, *images.shape[1:]], align_corners=True)
    grids = grid.expand(len(images), -1, -1, -1)
    return nn.functional.grid_sample(images - _BLACK, grids, align_corners=True) + _BLACK  # torch brings zeros in
