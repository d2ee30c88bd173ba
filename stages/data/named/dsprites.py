"""dSprites (Matthey et al. 2017): white shapes on black, from the public npz file. Nothing in it is unpickled."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError, UsageError
from stages.data.attributes import Attribute, combinations
from stages.data.conform import collect
from stages.data.images import LabelledImages
from stages.data.named_source import NamedSource, SourceRequest
from stages.hyperparameters import hyper
from stages.registry import SOURCES

FILE = "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
SHAPES = ("square", "ellipse", "heart")
_COLUMNS = ("color", "shape", "scale", "orientation", "x", "y")
# What zipfile, zlib and numpy's reader of headers raise of files that are none.
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError, SyntaxError, KeyError, ValueError, EOFError,
    OSError, NotImplementedError, RuntimeError, OverflowError,
)  # fmt: skip
_MOST = 737_280  # images in the file that everybody has


@SOURCES.register
@dataclass(frozen=True, kw_only=True)
class DSprites(NamedSource):
    """Three shapes in 6 sizes, 40 turns and 32 × 32 places: 64×64 grey, the shape is the class (Fedssyn, A.4)."""

    source: Literal["dsprites"] = hyper("dsprites", "dsprites: 64×64, needs --root")

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"--root", "--by"})

    @property
    def shape(self) -> tuple[int, int, int]:
        return 1, 64, 64

    def num_classes(self, emnist_split: str | None) -> int:  # noqa: ARG002
        return len(SHAPES)

    def read(self, asked: SourceRequest) -> tuple[LabelledImages, None]:
        if asked.root is None:
            raise UsageError(f"dsprites needs --root, the folder that holds {FILE}.")
        path = asked.root / FILE
        images, latents = read_npz(path)
        labels = latents[:, _COLUMNS.index("shape")].astype(np.int64) - 1
        if len(labels) and not (labels.min() >= 0 and labels.max() < len(SHAPES)):
            raise InputError(f"{path}: a shape is 1, 2 or 3, found {labels.min() + 1} to {labels.max() + 1}.")
        ids = _clients(asked.by, labels, latents, path) if asked.by else None
        bright = (images * 255)[:, None]
        return LabelledImages(collect(bright, len(bright), asked.form), labels, SHAPES, ids), None


def _clients(
    attributes: tuple[Attribute, ...], labels: NDArray[np.int64], latents: NDArray[np.float64], path: Path
) -> tuple[str, ...]:
    for attribute in attributes:
        if attribute.column not in _COLUMNS:
            raise InputError(f"{path}: --by {attribute.column}: its columns are {', '.join(_COLUMNS)}.")
    values = {name: latents[:, number].tolist() for number, name in enumerate(_COLUMNS)}
    try:
        return combinations(attributes, {**values, "shape": [SHAPES[label] for label in labels]})
    except ValueError as error:
        raise InputError(f"{path}: --by: {error}.") from error


def read_npz(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """`imgs` [n, 64, 64] of 0 and 1, and `latents_values` [n, 6]; `metadata`, which is pickled, is left alone."""
    if not path.is_file():
        raise InputError(f"{path}: no such file. It is dSprites' own, from the repository of its authors.")
    try:
        with zipfile.ZipFile(path) as archive:
            images: NDArray[np.uint8] = _array(archive, "imgs", np.dtype(np.uint8), (64, 64))
            latents: NDArray[np.float64] = _array(archive, "latents_values", np.dtype(np.float64), (len(_COLUMNS),))
    except _DAMAGED as error:
        raise InputError(f"{path} is not dSprites' file: {' '.join(str(error).split())[:200]}.") from error
    if len(images) != len(latents):
        raise InputError(f"{path}: {len(images)} images, but latents of {len(latents)}.")
    if images.size and images.max() > 1:
        raise InputError(f"{path}: a pixel is 0 or 1, found {images.max()}.")
    if not np.isfinite(latents).all():
        raise InputError(f"{path}: latents_values has values that are not finite.")
    return images, latents


def _array(archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any], rest: tuple[int, ...]) -> NDArray[Any]:
    """One array, its header checked before anything is allocated. Never a pickle."""
    with archive.open(f"{name}.npy") as member:
        version = np.lib.format.read_magic(member)
        if version != (1, 0):
            raise ValueError(f"{name} is of version {version}, not (1, 0)")
        shape, fortran, found = np.lib.format.read_array_header_1_0(member)
        if found != dtype or fortran or shape[1:] != rest or not 0 < shape[0] <= _MOST:
            raise ValueError(
                f"{name} must be {dtype} of shape [1 to {_MOST}, {', '.join(map(str, rest))}], found {found} {shape}"
            )
        size = int(np.prod(shape)) * dtype.itemsize
        if archive.getinfo(f"{name}.npy").file_size != member.tell() + size:
            raise ValueError(f"{name} has not as many bytes as its header says")
        content = member.read(size)
    if len(content) != size:
        raise ValueError(f"{name} ends early")
    return np.frombuffer(content, dtype=dtype).reshape(shape)
