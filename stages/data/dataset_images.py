"""Dataset artifacts as arrays: PNGs decoded once and kept while a worker lives; those of large files when needed."""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.formats import dataset_file, dataset_rows, dataset_stream
from artifacts.formats.dataset_file import SealedDataset
from artifacts.formats.tensors_file import unreadable
from artifacts.metadata import Metadata
from stages.data.images import LabelledImages, counted
from stages.data.png import encode_png
from stages.data.streamed import StreamedImages, StreamedRows, decoded, streamed_rows

_CACHE_BYTES = 1 << 30
_STREAMED_BYTES = 16 << 20  # of a file whose images are not all held in memory; about three times as much would be

Images = NDArray[np.uint8] | StreamedImages
LabelledRows = LabelledImages | StreamedRows

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


@dataclass(frozen=True)
class StreamedDataset:
    """A dataset artifact that was found whole, its images still in the file."""

    metadata: Metadata
    sha256: str
    content: StreamedRows
    blank: bool  # what cannot be decoded is black


Dataset = LoadedDataset | StreamedDataset
_Entry = SealedDataset | DescribedDataset | Dataset


class _Cache:
    """The datasets a worker used last, by the file's identity: a replaced file is read again.

    Described, a file is held as it was read, so that it is read and hashed once; decoded, its images alone are. Of a
    large one neither is.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[Any, ...], _Entry] = OrderedDict()

    def described(self, path: Path) -> _Entry:
        identity = _identity(path)
        if identity not in self._entries:
            self._keep(identity, _survey(path) if _is_large(path) else dataset_file.read_sealed(path))
        return self._entries[identity]

    def loaded(self, path: Path, *, blank: bool) -> LoadedDataset:
        identity = _identity(path)
        found = self._entries.pop(identity, None)
        if not isinstance(found, LoadedDataset) or found.has_blanks > blank:
            found = _decode(found if isinstance(found, SealedDataset) else dataset_file.read_sealed(path), blank=blank)
        self._keep(identity, found)
        return found

    def streamed(self, path: Path, *, blank: bool) -> StreamedDataset:
        identity = _identity(path)
        found = self._entries.pop(identity, None)
        if not isinstance(found, StreamedDataset) or found.blank != blank:
            whole = dataset_stream.scan(path)
            found = StreamedDataset(whole.metadata, whole.sha256, streamed_rows(whole, blank=blank), blank)
        self._keep(identity, found)
        return found

    def _keep(self, identity: tuple[Any, ...], entry: _Entry) -> None:
        self._entries[identity] = entry
        while len(self._entries) > 1 and sum(map(_size, self._entries.values())) > _CACHE_BYTES:
            self._entries.popitem(last=False)


def _identity(path: Path) -> tuple[Any, ...]:
    try:
        status = path.stat()
    except OSError as error:
        raise unreadable(path, error) from error
    return str(path.absolute()), status.st_ino, status.st_size, status.st_mtime_ns


def _size(entry: _Entry) -> int:
    if isinstance(entry, LoadedDataset):
        return entry.content.images.nbytes
    return len(entry.data) if isinstance(entry, SealedDataset) else 0


def _is_large(path: Path) -> bool:
    return int(_identity(path)[2]) > _STREAMED_BYTES


def _survey(path: Path) -> DescribedDataset:
    sha256, metadata = dataset_file.survey(path)
    return DescribedDataset(metadata, sha256)


_cache = _Cache()


def describe_dataset(path: Path) -> DescribedDataset:
    """For what must be settled before the data is read."""
    found = _cache.described(path)
    return DescribedDataset(found.metadata, found.sha256)


def load_dataset(path: Path) -> LoadedDataset:
    """Read, check and decode a dataset artifact."""
    return _cache.loaded(path, blank=False)


def open_dataset(path: Path, *, blank: bool = False) -> Dataset:
    """As `load_dataset`, for who takes some images at a time: those of a large file stay in it."""
    return _cache.streamed(path, blank=blank) if _is_large(path) else _cache.loaded(path, blank=blank)


def refuse_empty(path: Path, images: Sized, purpose: str) -> None:
    """`InputError` if there are none. Not under differential privacy: how many there are is private."""
    if not len(images):
        raise InputError(f"{path} holds no images: there is nothing to {purpose}.")


def load_described(
    paths: Sequence[Path], described: Sequence[DescribedDataset], *, blank: bool = False
) -> list[Dataset]:
    """The datasets that were described before, the large ones streamed; one that is another file by now is refused.

    With `blank`, for what promises an ε, an image that cannot be decoded is black, without a word: a refusal because of
    one record would be an output too (privacy contract, rule 11).
    """
    datasets = [open_dataset(path, blank=blank) for path in paths]
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
        **({"unit": dataset_rows.PERSON} if content.units is not None else {}),
    }


def save_dataset(path: Path, content: LabelledImages, metadata: Metadata, *, force: bool = False) -> str:
    """Write labelled images as a dataset artifact; returns the file's SHA-256."""
    pngs = [encode_png(image.transpose(1, 2, 0)) for image in content.images]
    return dataset_file.write(path, pngs, content.labels, metadata, units=content.units, force=force)


def joined(datasets: Sequence[Dataset]) -> tuple[Images, NDArray[np.int64]]:
    """The images and labels of several datasets, one after the other."""
    return _rows_of(datasets, [None] * len(datasets))


def joined_people(
    datasets: Sequence[Dataset],
) -> tuple[Images, NDArray[np.int64], NDArray[np.int64]]:
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
    datasets: Sequence[Dataset], unit: str | None
) -> tuple[Images, NDArray[np.int64], NDArray[np.int64] | None]:
    """The rows that a differentially private stage sees, and whose they are where people are protected."""
    return joined_people(datasets) if unit == dataset_rows.PERSON else (*joined_once(datasets), None)


def joined_once(datasets: Sequence[Dataset]) -> tuple[Images, NDArray[np.int64]]:
    """As `joined`, but a record that is in several files counts once, silently (privacy contract, rules 11 and 33).

    Twice in the data it would move a sum by twice the clip. Of each row there are as many as in the file that has most
    of it: so one record more, in as many files as one likes, is at most one row more here.
    """
    if len(datasets) == 1:
        return joined(datasets)
    kept: list[NDArray[np.int64] | None] = []
    most: Counter[bytes] = Counter()
    for dataset in datasets:
        here: Counter[bytes] = Counter()
        rows = []
        for row, label in enumerate(dataset.content.labels):
            (image,) = dataset.content.images[row : row + 1]
            record = hashlib.sha256(image.tobytes() + int(label).to_bytes(8, "little")).digest()
            here[record] += 1
            if here[record] > most[record]:
                rows.append(row)
        most |= here
        kept.append(np.array(rows, np.int64))
    return _rows_of(datasets, kept)


def _rows_of(datasets: Sequence[Dataset], kept: Sequence[NDArray[np.int64] | None]) -> tuple[Images, NDArray[np.int64]]:
    """Those rows of each dataset, or all; what is in memory already is not copied if it is all there is."""
    contents = [dataset.content for dataset in datasets]
    labels = np.concatenate([c.labels if r is None else c.labels[r] for c, r in zip(contents, kept, strict=True)])
    images = [c.images if r is None else chosen(c.images, r) for c, r in zip(contents, kept, strict=True)]
    if len(images) == 1:
        return images[0], labels
    arrays = [part for part in images if isinstance(part, np.ndarray)]
    return np.concatenate(arrays) if len(arrays) == len(images) else StreamedImages(images), labels


def chosen(images: Images, rows: NDArray[np.int64]) -> Images:
    """The given rows, in the given order; of a file, still in it."""
    return images.take(rows) if isinstance(images, StreamedImages) else images[rows]


def load_rows(path: Path, choose: Choose) -> tuple[LabelledImages, int]:
    """Some of a dataset's images, for a look at them, and how many there are. The others are not decoded."""
    artifact = dataset_file.read(path)
    rows = choose(artifact.labels, dataset_rows.image_shape(artifact.metadata))
    return _decoded(artifact, rows, blank=False)[0], len(artifact)


def _decode(sealed: SealedDataset, *, blank: bool) -> LoadedDataset:
    artifact = sealed.rows()
    content, has_blanks = _decoded(artifact, np.arange(len(artifact)), blank=blank)
    return LoadedDataset(artifact.metadata, artifact.sha256, content, has_blanks)


def _decoded(
    artifact: dataset_file.DatasetArtifact, rows: NDArray[np.int64], *, blank: bool
) -> tuple[LabelledImages, bool]:
    """The images of these rows, and whether some are black because they could not be decoded."""
    shape = dataset_rows.image_shape(artifact.metadata)
    # The pages of this array are taken as they are written: memory follows what is there, not what the file claims.
    images, has_blanks = np.empty((len(rows), *shape), np.uint8), False
    for place, row in enumerate(rows.tolist()):
        image = decoded(artifact.pngs[row].as_py(), shape, artifact.path, row, blank=blank)
        has_blanks |= image is None
        images[place] = 0 if image is None else image
    units = None if artifact.units is None else counted(artifact.units[rows])
    names = tuple(artifact.metadata.params["class_names"])
    return LabelledImages(images, artifact.labels[rows], names, units=units), has_blanks
