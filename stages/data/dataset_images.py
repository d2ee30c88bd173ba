"""Dataset artifacts as arrays: PNGs decoded once and kept while a worker lives."""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.formats import dataset_file
from artifacts.formats.dataset_file import SealedDataset
from artifacts.formats.tensors_file import unreadable
from artifacts.metadata import Metadata
from stages.data.images import LabelledImages, counted
from stages.data.png import decode_png, encode_png

_CACHE_BYTES = 1 << 30

# Which rows are wanted, by the labels and the shape of an image.
Choose = Callable[[NDArray[np.int64], tuple[int, int, int]], NDArray[np.int64]]


@dataclass(frozen=True)
class LoadedDataset:
    """A dataset artifact that was found whole, decoded."""

    metadata: Metadata
    sha256: str
    content: LabelledImages
    has_blanks: bool = False  # in place of images that could not be decoded


@dataclass(frozen=True)
class DescribedDataset:
    """What a dataset says of itself, and its digest; no image was looked at."""

    metadata: Metadata
    sha256: str


class _Cache:
    """The datasets a worker used last, by the file's identity: a replaced file is read again.

    Described, a file is held as it was read, so that it is read and hashed once; decoded, its images alone are.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[Any, ...], SealedDataset | LoadedDataset] = OrderedDict()

    def described(self, path: Path) -> SealedDataset | LoadedDataset:
        identity = _identity(path)
        if identity not in self._entries:
            self._keep(identity, dataset_file.read_sealed(path))
        return self._entries[identity]

    def loaded(self, path: Path, *, blank: bool) -> LoadedDataset:
        identity = _identity(path)
        found = self._entries.pop(identity, None)
        if not isinstance(found, LoadedDataset) or found.has_blanks > blank:
            found = _decode(found if isinstance(found, SealedDataset) else dataset_file.read_sealed(path), blank=blank)
        self._keep(identity, found)
        return found

    def _keep(self, identity: tuple[Any, ...], entry: SealedDataset | LoadedDataset) -> None:
        self._entries[identity] = entry
        while len(self._entries) > 1 and sum(map(_size, self._entries.values())) > _CACHE_BYTES:
            self._entries.popitem(last=False)


def _identity(path: Path) -> tuple[Any, ...]:
    try:
        status = path.stat()
    except OSError as error:
        raise unreadable(path, error) from error
    return str(path.absolute()), status.st_ino, status.st_size, status.st_mtime_ns


def _size(entry: SealedDataset | LoadedDataset) -> int:
    return entry.content.images.nbytes if isinstance(entry, LoadedDataset) else len(entry.data)


_cache = _Cache()


def describe_dataset(path: Path) -> DescribedDataset:
    """For what must be settled before the data is read."""
    found = _cache.described(path)
    return DescribedDataset(found.metadata, found.sha256)


def load_dataset(path: Path) -> LoadedDataset:
    """Read, check and decode a dataset artifact."""
    return _cache.loaded(path, blank=False)


def load_described(
    paths: Sequence[Path], described: Sequence[LoadedDataset | DescribedDataset], *, blank: bool = False
) -> list[LoadedDataset]:
    """The datasets that were described before; one that is another file by now is refused.

    With `blank`, for what promises an ε, an image that cannot be decoded is black, without a word: a refusal because of
    one record would be an output too (privacy contract, rule 11).
    """
    datasets = [_cache.loaded(path, blank=blank) for path in paths]
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
        **({"unit": dataset_file.PERSON} if content.units is not None else {}),
    }


def save_dataset(path: Path, content: LabelledImages, metadata: Metadata, *, force: bool = False) -> str:
    """Write labelled images as a dataset artifact; returns the file's SHA-256."""
    pngs = [encode_png(image.transpose(1, 2, 0)) for image in content.images]
    return dataset_file.write(path, pngs, content.labels, metadata, units=content.units, force=force)


def joined(datasets: Sequence[LoadedDataset]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The images and labels of several datasets, one after the other."""
    return (
        np.concatenate([d.content.images for d in datasets]),
        np.concatenate([d.content.labels for d in datasets]),
    )


def joined_people(
    datasets: Sequence[LoadedDataset],
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """As `joined`, and whose each row is; a row of a file that does not say so is somebody's of its own.

    Nothing is left out, unlike in `joined_once`: a row that two files have would come back when its person goes.
    """
    units: list[NDArray[np.int64]] = []
    for dataset in datasets:
        first = sum(int(before.max(initial=-1)) + 1 for before in units[-1:])
        own = dataset.content.units
        units.append(first + (np.arange(len(dataset.content)) if own is None else own))
    return *joined(datasets), np.concatenate(units)


def joined_for(
    datasets: Sequence[LoadedDataset], unit: str | None
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64] | None]:
    """The rows that a differentially private stage sees, and whose they are where people are protected."""
    return joined_people(datasets) if unit == dataset_file.PERSON else (*joined_once(datasets), None)


def joined_once(datasets: Sequence[LoadedDataset]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """As `joined`, but a record that is in several files counts once, silently (privacy contract, rules 11 and 33).

    Twice in the data it would move a sum by twice the clip. Of each row there are as many as in the file that has most
    of it: so one record more, in as many files as one likes, is at most one row more here.
    """
    kept: list[NDArray[np.int64]] = []
    most: Counter[bytes] = Counter()
    for dataset in datasets:
        here: Counter[bytes] = Counter()
        rows = []
        for row, (image, label) in enumerate(zip(dataset.content.images, dataset.content.labels, strict=True)):
            record = hashlib.sha256(image.tobytes() + int(label).to_bytes(8, "little")).digest()
            here[record] += 1
            if here[record] > most[record]:
                rows.append(row)
        most |= here
        kept.append(np.array(rows, np.int64))
    return (
        np.concatenate([d.content.images[rows] for d, rows in zip(datasets, kept, strict=True)]),
        np.concatenate([d.content.labels[rows] for d, rows in zip(datasets, kept, strict=True)]),
    )


def load_rows(path: Path, choose: Choose) -> tuple[LabelledImages, int]:
    """Some of a dataset's images, for a look at them, and how many there are. The others are not decoded."""
    artifact = dataset_file.read(path)
    rows = choose(artifact.labels, dataset_file.image_shape(artifact.metadata))
    return _decoded(artifact, rows, blank=False)[0], len(artifact)


def _decode(sealed: SealedDataset, *, blank: bool) -> LoadedDataset:
    artifact = sealed.rows()
    content, has_blanks = _decoded(artifact, np.arange(len(artifact)), blank=blank)
    return LoadedDataset(artifact.metadata, artifact.sha256, content, has_blanks)


def _decoded(
    artifact: dataset_file.DatasetArtifact, rows: NDArray[np.int64], *, blank: bool
) -> tuple[LabelledImages, bool]:
    """The images of these rows, and whether some are black because they could not be decoded."""
    shape = dataset_file.image_shape(artifact.metadata)
    # The pages of this array are taken as they are written: memory follows what is there, not what the file claims.
    images, has_blanks = np.empty((len(rows), *shape), np.uint8), False
    for place, row in enumerate(rows.tolist()):
        try:
            image = decode_png(artifact.pngs[row].as_py(), max_pixels=shape[1] * shape[2])
            if image.shape != shape:
                raise ValueError(f"an image of {image.shape}, but the file says {shape}")
        except ValueError as error:
            if not blank:
                raise InputError(f"{artifact.path}, row {row}: {error}. Get the file again.") from error
            image, has_blanks = np.zeros(shape, np.uint8), True
        images[place] = image
    units = None if artifact.units is None else counted(artifact.units[rows])
    names = tuple(artifact.metadata.params["class_names"])
    return LabelledImages(images, artifact.labels[rows], names, units=units), has_blanks
