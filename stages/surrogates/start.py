"""What a client's synthetic set begins as: its labels, and noise, the set of an earlier round or real images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError, UsageError
from artifacts.formats import tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from stages.data.dataset_images import DescribedDataset, LabelledRows
from stages.data.images import to_pixels
from stages.methods.labels import labels_of, parsed_labels
from stages.methods.params.fedlap import FedLapEncoding
from stages.methods.params.surrogates import SurrogateSet
from stages.nets.params import InputShape


def read_previous(
    path: Path | None, params: SurrogateSet, client: str, round: int, shape: InputShape
) -> TensorArtifact | None:
    """The client's own set of an earlier round, of the same size; without one the images begin as noise."""
    if path is None:
        return None
    if params.init != "previous":
        raise UsageError("--previous goes with --init previous.")
    before = tensors_file.read(path, kind="surrogate")
    about = before.metadata
    if about.client != client:
        raise InputError(f"{path} is a set of client {about.client!r}, not of {client!r}.")
    if (about.round or 0) >= round:
        raise InputError(f"{path} is of round {about.round}, but round {round} is being encoded: give an earlier one.")
    found, wanted = before.tensors["images"].shape[1:], (shape.channels, shape.height, shape.width)
    if found != wanted:
        raise InputError(f"{path} has images of {list(found)}, the model takes {list(wanted)}.")
    labels, counts = np.unique(before.tensors["labels"], return_counts=True)
    for label, count in zip(labels.tolist(), counts.tolist(), strict=True):
        if count != params.images_per_class:
            raise InputError(
                f"{path} has {count} images of class {label}, but --images-per-class is {params.images_per_class}."
            )
    return before


def public_classes(params: SurrogateSet, data: DescribedDataset) -> Sequence[int] | None:
    """The classes asked for, before anything is charged or read; None where they are those in the data."""
    names = data.metadata.params["class_names"]
    if params.classes == "own":
        return None
    if params.classes == "all":
        return range(len(names))
    try:
        chosen = sorted({int(label) for label in parsed_labels(params.classes, names)})
    except ValueError as error:
        raise UsageError(f"--classes: {error}.") from error
    if not chosen:
        raise UsageError(f"--classes {params.classes} names no class.")
    return chosen


def balanced_labels(
    params: SurrogateSet, chosen: Sequence[int] | None, content: LabelledRows, path: Path
) -> NDArray[np.int64]:
    """A balanced set over the classes asked for, in their order."""
    if chosen is None:
        present, found = np.unique(content.labels, return_counts=True)
        least = params.least_images
        chosen = present[found >= least].tolist()
        if not chosen and len(present):
            raise InputError(
                f"{path} has no class with {least} images or more: {found.max()} are the most. Lower --least-images."
            )
    by_class = params.match == "class" if isinstance(params, FedLapEncoding) else not params.is_private
    absent = sorted(set(chosen) - set(np.unique(content.labels).tolist())) if by_class else []
    if absent:
        raise InputError(
            f"{path} has no image of class {absent[0]}, to be matched by {params.method}. Leave it out of --classes."
        )
    counts = np.zeros(len(content.class_names), np.int64)
    counts[list(chosen)] = params.images_per_class
    return labels_of(counts)


def first_images(
    params: SurrogateSet,
    labels: NDArray[np.int64],
    shape: InputShape,
    content: LabelledRows,
    before: TensorArtifact | None,
    seed_of: Callable[[str], int],
    path: Path,
) -> NDArray[np.float32]:
    random = np.random.default_rng(seed_of("first images"))
    if before is not None:
        kept = before.tensors["labels"]
        images = random.standard_normal((len(labels), *before.tensors["images"].shape[1:]), np.float32)
        for label in sorted(set(labels.tolist()) & set(kept.tolist())):
            images[labels == label] = before.tensors["images"][kept == label]
        return images
    if params.init == "real":
        rows = []
        for label in np.unique(labels):
            mine = np.flatnonzero(content.labels == label)
            if len(mine) < params.images_per_class:
                raise InputError(
                    f"{path} has {len(mine)} images of class {label}, but --init real wants "
                    f"{params.images_per_class}. Lower --images-per-class, or begin with noise."
                )
            rows.append(np.sort(random.choice(mine, params.images_per_class, replace=False)))
        return to_pixels(content.images[np.concatenate(rows)])
    return random.standard_normal((len(labels), shape.channels, shape.height, shape.width), np.float32)
