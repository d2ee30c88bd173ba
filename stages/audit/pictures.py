"""Pictures that leave: each spelt as our encoder spells it, none of them a private one.

Filters, chunks and sizes must be those of `encode_png`. The compressed bytes come from zlib, whose builds differ: where
every picture of a set differs in them alone, another build made it, and the pixels are what was compared; where some do
and others do not, somebody chose them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image

from artifacts.digests import sha256_hex
from artifacts.formats import dataset_stream
from artifacts.formats.dataset_rows import image_shape
from artifacts.kinds import KINDS
from artifacts.metadata import Metadata
from stages.audit.secrets import Watch
from stages.audit.surrounding_files import Kept, Shelf
from stages.data.png import check_written, decode_png

_SIDE = 16  # of a thumbnail
_MOST = 20_000  # thumbnails of one set; beyond, exact copies alone are looked for
_ALIKE = 0.999  # correlation: a private picture with a bit changed in each pixel is above, its nearest neighbour below
_FLAT = 4.0  # standard deviation of a thumbnail below which a picture shows nothing


@dataclass
class Fingerprints:
    """Of each picture the digest of its pixels; of the first ones a thumbnail as well."""

    digests: list[str] = field(default_factory=list)
    thumbnails: list[NDArray[np.uint8]] = field(default_factory=list)

    def add(self, pixels: NDArray[np.uint8]) -> None:
        self.digests.append(sha256_hex(np.ascontiguousarray(pixels).data))
        if len(self.thumbnails) < _MOST:
            grey = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
            side = min(_SIDE, *pixels.shape[1:])
            self.thumbnails.append(np.array(grey.convert("L").resize((side, side), Image.Resampling.BOX)))

    def among(self, private: Fingerprints) -> tuple[int, int]:
        """How many of these are private ones, pixel for pixel; and how many of the others nearly so."""
        known = set(private.digests)
        copies = [digest in known for digest in self.digests]
        mine, theirs = _standard(self.thumbnails), _standard(private.thumbnails)
        if not len(mine) or not len(theirs) or mine.shape[1] != theirs.shape[1]:
            return sum(copies), 0
        near = 0
        for start in range(0, len(mine), 256):  # a block of products at a time
            likest = np.abs(mine[start : start + 256] @ theirs.T).max(axis=1)  # a negative shows the same
            near += sum(bool(a >= _ALIKE) and not b for a, b in zip(likest, copies[start:], strict=False))
        return sum(copies), near


def _standard(thumbnails: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
    """Rows of mean 0 and length 1, so that a product is a correlation; what shows nothing is like nothing."""
    if not thumbnails:
        return np.zeros((0, 0), np.float32)
    rows = np.stack(thumbnails).reshape(len(thumbnails), -1).astype(np.float32)
    rows -= rows.mean(axis=1, keepdims=True)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    flat = length < _FLAT * rows.shape[1] ** 0.5
    found: NDArray[np.float32] = np.where(flat, 0, rows / np.maximum(length, 1e-6)).astype(np.float32)
    return found


class Pictures:
    """Looks at every PNG of a dataset that leaves, until one is not as it must be."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._first_other: int | None = None
        self._same = 0
        self.wrong: str | None = None
        self.prints = Fingerprints()

    def look(self, images: pa.BinaryArray, metadata: Metadata) -> None:
        _, _, values = images.buffers()
        if values is not None:
            self._watch.see(values.to_pybytes())
        for png in images.to_pylist() if self.wrong is None else ():
            row = len(self.prints.digests)
            try:
                pixels, same = check_written(png, image_shape(metadata))
            except ValueError as error:
                self.wrong = f"row {row}: {error}"
                return
            self._same += same
            if not same and self._first_other is None:
                self._first_other = row
            self._watch.see(pixels.tobytes())
            self.prints.add(pixels)
        if self._first_other is not None and self._same:
            self.wrong = f"row {self._first_other}: a PNG is compressed otherwise than the others of its set"

    @property
    def other_build(self) -> bool:
        """Whether all of them are compressed otherwise than here."""
        return self.wrong is None and self._first_other is not None


def of_tensor(images: NDArray[Any], shown: str) -> Fingerprints:
    """Images from −1 to 1 as the bytes that they were made from, where they are private ones; others stretched."""
    prints = Fingerprints()
    for image in images.astype(np.float32):
        low, high = (-1.0, 1.0) if shown == "clipped" else (float(image.min()), float(image.max()))
        scaled = (image - low) * (255 / max(high - low, 1e-30))
        prints.add(np.clip(np.rint(scaled), 0, 255).astype(np.uint8))
    return prints


def of_private(shelf: Shelf) -> Fingerprints:
    """All pictures in the client's private data, but for what its own generators drew."""
    prints = Fingerprints()
    for kept in shelf.files.values():
        if kept.metadata.kind == "dataset" and kept.metadata.stage != "synthesize":
            for png in _pngs(dataset_stream.begin(kept.path).images()):
                prints.add(decode_png(png))
    return prints


def published(shelf: Shelf, sets: Sequence[Path]) -> Iterator[tuple[Path, int, int]]:
    """Public sets with pictures of the private data in them: how many, and of how many."""
    private = [kept.path for kept in shelf.files.values() if kept.metadata.kind == "dataset" and _is_own(kept)]
    mine = {sha256_hex(png) for path in private for png in _pngs(dataset_stream.begin(path).images())}
    for path in sets if mine else ():
        pngs = list(_pngs(dataset_stream.begin(path).images()))
        same = [png for png in pngs if sha256_hex(png) in mine]
        if found := sum(bool(decode_png(png).std() >= _FLAT) for png in same):  # a black one is everybody's
            yield path, found, len(pngs)


def _is_own(kept: Kept) -> bool:
    return kept.metadata.custody == "private" and kept.metadata.stage != "synthesize"


def _pngs(batches: Iterator[pa.BinaryArray]) -> Iterator[bytes]:
    for batch in batches:
        yield from batch.to_pylist()


def copied(prints: Fingerprints | None, private: Fingerprints, metadata: Metadata) -> str | None:
    """What is wrong with a set that holds private pictures; one that says so of itself is as it says."""
    if prints is None or "real_image_init" in metadata.disclosures or KINDS[metadata.kind].pictures is None:
        return None
    exact, near = prints.among(private)
    if not exact and not near:
        return None
    return (
        f"{exact} of its {len(prints.digests)} pictures are private ones, pixel for pixel, and {near} nearly so. "
        "This line is itself private"
    )
