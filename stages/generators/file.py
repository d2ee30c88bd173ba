"""Generator artifacts: what the file says about its network, and the weights that it holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.formats import tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.metadata import Metadata
from stages.families import stated
from stages.methods.params.generator import GeneratorTraining
from stages.models.file import check_fits
from stages.nets.generator_params import ImageShape
from stages.registry import GENERATORS

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from stages.methods.generator_training import Generator

CLASS_COUNTS = "class_counts"
PROGRESS = "progress"  # is in the params of a checkpoint, never in those of a finished generator
_SHAPE = tuple(field.name for field in dataclasses.fields(ImageShape))


def generator_params(params: GeneratorTraining, shape: ImageShape, class_names: Sequence[str]) -> dict[str, Any]:
    """What is in a generator's metadata: enough to build it anew."""
    return {**params.to_json(), **{k: getattr(shape, k) for k in _SHAPE}, "class_names": list(class_names)}


def read_generator(path: Path) -> TensorArtifact:
    generator = tensors_file.read(path, kind="generator")
    if PROGRESS in generator.metadata.params:
        raise InputError(f"{path} is the checkpoint of an unfinished training. Run train-generator again to finish it.")
    return generator


def described(metadata: Metadata, path: Path) -> tuple[GeneratorTraining, ImageShape, tuple[str, ...]]:
    """The training, the images and the class names that a generator's metadata describe."""
    params = dict(metadata.params)
    try:
        shape = ImageShape(**{k: params.pop(k) for k in _SHAPE})
        names = params.pop("class_names")
        if not isinstance(names, list) or len(names) != shape.num_classes:
            raise ValueError(f"class_names must be {shape.num_classes} names")
        return stated(GENERATORS, params), shape, tuple(str(name) for name in names)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} does not describe a generator that fedsynth knows: {error}.") from error


def facts_of(metadata: Metadata) -> dict[str, Any]:
    """What decides about the parameters of `synthesize`, beside what is asked for."""
    return {"family": metadata.method, "private": bool(metadata.privacy)}


def facts_in(generator: Path) -> dict[str, Any]:
    """The same from a file, of which nothing but the metadata is read."""
    metadata, _ = tensors_file.read_header(generator, kind="generator")
    if metadata.method not in GENERATORS.words:
        known = ", ".join(GENERATORS.words)
        raise InputError(f"{generator} is a generator of the family {metadata.method!r}. Known families: {known}.")
    return facts_of(metadata)


def weights_of(generator: TensorArtifact, family: Generator, device: torch.device) -> dict[str, Tensor]:
    """The file's weights, if they are those of the network that it describes."""
    import torch

    found = {name: array for name, array in generator.tensors.items() if name != CLASS_COUNTS}
    check_fits(found, family.kept, generator.path)
    return {name: torch.from_numpy(array.copy()).to(device) for name, array in found.items()}


def class_counts_of(generator: TensorArtifact, num_classes: int) -> NDArray[np.int64]:
    """How often each class stood in the training data."""
    counts = generator.tensors.get(CLASS_COUNTS)
    if counts is None or counts.dtype != np.int64 or counts.shape != (num_classes,):
        raise InputError(f"{generator.path} does not say how often each of its {num_classes} classes was seen.")
    if counts.min() < 0 or counts.sum() < 1:
        raise InputError(f"{generator.path}: its class counts are impossible: {counts.tolist()}.")
    return counts
