"""A client's synthetic set as it arrives: what can be said of it without a network.

Does it belong to this model and round, is it as large as was agreed, do its labels exist. Sizes are checked by the
header alone, before anything large is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from artifacts.errors import InputError
from artifacts.formats import tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from stages.models.file import check_pixels_fit
from stages.models.messages import check_claims
from stages.nets.params import InputShape


def read_surrogate(
    path: Path,
    model: TensorArtifact,
    shape: InputShape,
    *,
    rule: str | None = None,
    images_per_class: int | None = None,
) -> TensorArtifact:
    """A set for this model, of the method that `rule` names, no larger than agreed; None: of any, of any size.

    One that was matched at fresh weights is for any model.
    """
    metadata, specs = tensors_file.read_header(path)
    check_claims(path, metadata, model, kinds=("surrogate",), any_model=metadata.params.get("begin") == "fresh")
    if rule is not None and metadata.method != rule:
        raise InputError(f"{path} is a surrogate of {metadata.method}; this is --rule {rule}.")
    _check_sizes(path, {spec.name: spec.shape for spec in specs}, len(model.tensors), shape, images_per_class)
    artifact = tensors_file.read(path, kind="surrogate")
    labels = artifact.tensors["labels"]
    if not (labels.min() >= 0 and labels.max() < shape.num_classes):
        raise InputError(f"{path} has labels from {labels.min()} to {labels.max()} for {shape.num_classes} classes.")
    counts = np.bincount(labels)
    if images_per_class is not None and counts.max() > images_per_class:
        raise InputError(
            f"{path} holds {counts.max():,} images of class {counts.argmax()}; agreed are {images_per_class} for each "
            "class. Leave it out."
        )
    return artifact


def _check_sizes(
    path: Path, sizes: Mapping[str, Sequence[int]], layers: int, shape: InputShape, images_per_class: int | None
) -> None:
    count, *found = sizes["images"]
    check_pixels_fit(path, found, shape)
    if not count:
        raise InputError(f"{path} holds no images.")
    if images_per_class is not None and count > images_per_class * shape.num_classes:
        raise InputError(
            f"{path} holds {count:,} images; agreed are {images_per_class} for each of {shape.num_classes} classes. "
            "Leave it out."
        )
    norms = sizes.get("norms", (0,))[0]
    if norms > layers:
        raise InputError(f"{path} brings {norms:,} layer norms for a model of {layers} tensors. Leave it out.")
