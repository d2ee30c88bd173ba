"""The images in a file, for a person: as contact sheets, and as coloured half blocks in a terminal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifacts.digests import sha256_hex
from artifacts.errors import InputError, UsageError
from artifacts.kinds import KINDS
from artifacts.limits import CLASSES
from artifacts.writing import atomic
from stages.data.images import LabelledImages
from stages.execution.progress import Summary
from stages.pictures.contact_sheet import contact_sheets
from stages.pictures.sent_images import read_images

_MOST_SHEETS = 20
_HALF = "▀"  # its upper half in the colour of one pixel, what is behind it in that of the pixel below


def images_in(about: Summary) -> LabelledImages:
    """The images of a file that `inspect` has described, as bytes."""
    path = Path(about["file"])
    if not about["artifact"] or KINDS[about["kind"]].pictures is None:
        known = [name for name, kind in KINDS.items() if kind.pictures]
        raise UsageError(f"{path} holds no images: {' and '.join(known)} do.")
    found = read_images(path, about["kind"])
    low, high = int(found.labels.min(initial=0)), int(found.labels.max(initial=0))
    if low < 0 or high >= CLASSES:
        raise InputError(f"{path}: labels must be 0 to {CLASSES - 1}, found {low} to {high}.")
    names = found.class_names or tuple(str(number) for number in range(high + 1))
    return LabelledImages(found.images, found.labels, names)


def write_sheets(content: LabelledImages, about: Summary, out: Path, *, force: bool) -> list[Path]:
    """`sheet.png`, `sheet-2.png`, … Who looks at private images keeps the sheet where they are."""
    if not len(content):
        raise InputError(f"{about['file']} holds no images.")
    who = f"client {about['client']}, " if about["client"] else ""
    title = f"{who}{about['kind']}: {len(content)} images"
    numbers = np.arange(len(content))
    pages = contact_sheets(content.images, content.labels, numbers, content.class_names, title)[:_MOST_SHEETS]
    paths = [out, *(out.with_stem(f"{out.stem}-{number}") for number in range(2, len(pages) + 1))]
    for path, page in zip(paths, pages, strict=True):
        atomic.refuse_other(path, sha256_hex(page), force=force)
    for path, page in zip(paths, pages, strict=True):
        atomic.write(path, [page], force=force, custody=about.get("custody", "public"))
    return paths


def half_blocks(images: NDArray[np.uint8], columns: int) -> list[str]:
    """Lines of text that show the images [n, c, h, w], two pixels to a letter, in 24-bit colour."""
    count, _, height, width = images.shape
    across = max(1, columns // (width + 1))
    pixels = np.broadcast_to(images, (count, 3, height, width)).transpose(0, 2, 3, 1)
    if height % 2:
        pixels = np.concatenate([pixels, np.zeros((count, 1, width, 3), np.uint8)], axis=1)
    lines: list[str] = []
    for first in range(0, count, across):
        row = pixels[first : first + across]
        for y in range(0, row.shape[1], 2):
            lines.append(f"{_RESET} ".join("".join(map(_letter, image[y], image[y + 1])) for image in row) + _RESET)
        lines.append("")
    return lines


_RESET = "\x1b[0m"


def _letter(upper: NDArray[np.uint8], lower: NDArray[np.uint8]) -> str:
    above, below = (";".join(map(str, pixel.tolist())) for pixel in (upper, lower))
    return f"\x1b[38;2;{above}m\x1b[48;2;{below}m{_HALF}"
