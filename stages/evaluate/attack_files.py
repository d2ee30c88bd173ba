"""Files under attack: the update that each stands for, and images that no client has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.formats import tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.kinds import KINDS
from artifacts.metadata import InputRef
from stages.data.dataset_images import load_dataset
from stages.data.images import LabelledImages
from stages.models.file import check_fits, check_images_fit
from stages.models.messages import exchanged, read_update
from stages.nets.params import InputShape
from stages.proxies.file import seen_pixels

_DIGITS = 6
Pixels = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Attacked:
    """A file, the update that it stands for, and a proxy's own images, as one sees them."""

    artifact: TensorArtifact
    own_images: Pixels | None


def read_attacked(path: Path, model: TensorArtifact) -> Attacked:
    """A message or a proxy as the server reads it; a client's own update too, from which neither was made yet."""
    metadata, _ = tensors_file.read_header(path)
    kind = KINDS[metadata.kind]
    if kind.encoded and kind.pictures:
        artifact = read_update(path, model)
        own = seen_pixels(dict(tensors_file.read(path, kind=metadata.kind).tensors))
        return Attacked(artifact, np.clip(own, -1, 1))
    if metadata.custody != "private":
        return Attacked(read_update(path, model), None)
    artifact = tensors_file.read(path, kind="update")
    if InputRef(role="model", kind="model", sha256=model.sha256) not in artifact.metadata.inputs:
        raise InputError(f"{path} is for another model than {model.path}: its digest is not the one it names.")
    check_fits(artifact.tensors, exchanged(model), path)
    return Attacked(artifact, None)


def other_images(path: Path, shape: InputShape, count: int) -> LabelledImages:
    dataset = load_dataset(path)
    check_images_fit(path, dataset.metadata, shape)
    if len(dataset.content) < count:
        raise InputError(f"{path} holds {len(dataset.content)} images; to compare with, {count} are needed.")
    return dataset.content


def rounded(value: float | np.floating[Any]) -> float:
    return float(f"{float(value):.{_DIGITS}g}")
