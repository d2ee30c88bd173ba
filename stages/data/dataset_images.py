"""Dataset artifacts as arrays: PNGs decoded once and kept while a worker lives."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts import dataset_file
from artifacts.digests import sha256_file
from artifacts.errors import InputError
from artifacts.metadata import Metadata
from artifacts.tensors_file import unreadable
from stages.data.images import LabelledImages
from stages.data.png import decode_png, encode_png

_CACHE_BYTES = 1 << 30


@dataclass(frozen=True)
class LoadedDataset:
    """A dataset artifact that was found whole, decoded."""

    metadata: Metadata
    sha256: str
    content: LabelledImages


class _Cache:
    """The datasets a worker used last, by the file's identity: a replaced file is read again."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[Any, ...], LoadedDataset] = OrderedDict()

    def get(self, path: Path) -> LoadedDataset:
        try:
            status = path.stat()
        except OSError as error:
            raise unreadable(path, error) from error
        identity = (str(path.absolute()), status.st_ino, status.st_size, status.st_mtime_ns)
        if identity not in self._entries:
            self._entries[identity] = _decode(path)
        self._entries.move_to_end(identity)
        while len(self._entries) > 1 and self._bytes() > _CACHE_BYTES:
            self._entries.popitem(last=False)
        return self._entries[identity]

    def _bytes(self) -> int:
        return sum(entry.content.images.nbytes for entry in self._entries.values())


_cache = _Cache()


@dataclass(frozen=True)
class DescribedDataset:
    """What a dataset says of itself, and its digest; no image was looked at."""

    metadata: Metadata
    sha256: str


def describe_dataset(path: Path) -> DescribedDataset:
    """For what must be settled before the data is read."""
    metadata = dataset_file.read_metadata(path)
    try:
        return DescribedDataset(metadata, sha256_file(path))
    except OSError as error:
        raise unreadable(path, error) from error


def load_dataset(path: Path) -> LoadedDataset:
    """Read, check and decode a dataset artifact."""
    return _cache.get(path)


def load_described(paths: Sequence[Path], described: Sequence[LoadedDataset | DescribedDataset]) -> list[LoadedDataset]:
    """The datasets that were described before; one that is another file by now is refused."""
    datasets = [load_dataset(path) for path in paths]
    for path, loaded, before in zip(paths, datasets, described, strict=True):
        if loaded.sha256 != before.sha256:
            raise InputError(f"{path} was replaced while it was being read. Run the command again.")
    return datasets


def dataset_params(content: LabelledImages) -> dict[str, Any]:
    """What a dataset artifact says about its images."""
    _, channels, height, width = content.images.shape
    return {
        "num_classes": len(content.class_names),
        "channels": channels,
        "height": height,
        "width": width,
        "class_names": list(content.class_names),
    }


def save_dataset(path: Path, content: LabelledImages, metadata: Metadata, *, force: bool = False) -> str:
    """Write labelled images as a dataset artifact; returns the file's SHA-256."""
    pngs = [encode_png(image.transpose(1, 2, 0)) for image in content.images]
    return dataset_file.write(path, pngs, content.labels, metadata, force=force)


def joined(datasets: Sequence[LoadedDataset]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The images and labels of several datasets, one after the other."""
    return (
        np.concatenate([d.content.images for d in datasets]),
        np.concatenate([d.content.labels for d in datasets]),
    )


def _decode(path: Path) -> LoadedDataset:
    artifact = dataset_file.read(path)
    params = artifact.metadata.params
    shape = (params["channels"], params["height"], params["width"])
    images: list[NDArray[np.uint8]] = []  # grows with what is there, not with what the file claims
    for row, png in enumerate(artifact.pngs):
        try:
            image = decode_png(png.as_py())
        except ValueError as error:
            raise InputError(f"{path}, row {row}: {error}. Get the file again.") from error
        if image.shape != shape:
            raise InputError(f"{path}, row {row}: an image of {image.shape}, but the file says {shape}.")
        images.append(image)
    stacked = np.stack(images) if images else np.empty((0, *shape), np.uint8)
    content = LabelledImages(stacked, artifact.labels.copy(), tuple(params["class_names"]))
    return LoadedDataset(artifact.metadata, artifact.sha256, content)
