"""Compressed updates as files: checked against the model, and back to the update that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.formats import tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from stages.methods import compression
from stages.methods.params.compression import LowRank, Quantisation, TopK
from stages.methods.params.encoding import Encoder
from stages.methods.sparsify import kept_of
from stages.models.messages import exchanged
from stages.registry import ENCODERS

Tensors = Mapping[str, NDArray[Any]]


def compress(update: Tensors, params: Encoder, rng: Generator) -> dict[str, NDArray[Any]]:
    """The tensors of the file."""
    if isinstance(params, LowRank):
        return compression.factorise(update, rank=params.rank, iterations=params.iterations, rng=rng)
    vector = compression.flat(update)
    if isinstance(params, TopK):
        return compression.largest(vector, keep=params.keep)
    assert isinstance(params, Quantisation)
    return compression.quantise(vector, bits=params.bits, block=params.block, rounding=params.rounding, rng=rng)


def expand(sent: Tensors, params: Encoder, shapes: compression.Shapes) -> dict[str, NDArray[np.float32]]:
    """The update that the file's tensors stand for: the sender measures it, the receiver applies it."""
    if isinstance(params, LowRank):
        return compression.multiply(sent, shapes, rank=params.rank)
    size = _size(shapes)
    if isinstance(params, TopK):
        return compression.shaped(compression.spread(sent, size=size), shapes)
    assert isinstance(params, Quantisation)
    vector = compression.dequantise(sent, size=size, bits=params.bits, block=params.block)
    return compression.shaped(vector, shapes)


def expanded(path: Path, model: TensorArtifact) -> TensorArtifact:
    """A compressed update, checked, with the update that it stands for in place of its own tensors."""
    artifact = tensors_file.read(path, kind="compressed")
    params = ENCODERS.from_mapping(artifact.metadata.params)
    shapes = {name: tensor.shape for name, tensor in exchanged(model).items()}
    found = {name: tensor.shape for name, tensor in artifact.tensors.items()}
    needed = sizes(params, shapes)
    if found != needed:
        raise InputError(f"{path} does not fit the model: it holds {found} where {needed} belong.")
    if (wrong := misspelt(artifact.tensors, params, shapes)) is not None:
        raise InputError(f"{path}: {wrong}. Leave it out.")
    return replace(artifact, tensors=expand(artifact.tensors, params, shapes))


def misspelt(sent: Tensors, params: Encoder, shapes: compression.Shapes) -> str | None:
    """What in tensors of the right sizes our writer would have written otherwise, in words.

    Places in another order, or bits that nobody reads, would stand for the same update and carry something else.
    """
    if isinstance(params, LowRank):
        return None
    ranges = sent["ranges"]
    if np.signbit(ranges).any():
        return "a range of numbers is negative"
    if isinstance(params, TopK):
        positions, largest = sent["positions"], np.abs(sent["values"]).max(initial=0)
        if not (positions[0] >= 0 and positions[-1] < _size(shapes) and (np.diff(positions) > 0).all()):
            return "its positions are not those of numbers of the model, in order"
        if largest != 1 and (largest or ranges[0] > compression.TINY):
            return "its largest value is not 1, by which the others are stated"
        return None
    assert isinstance(params, Quantisation)
    unused = -_size(shapes) * params.bits % 8
    return "bits behind its last code are not zero" if sent["codes"][-1] & ((1 << unused) - 1) else None


def sizes(params: Encoder, shapes: compression.Shapes) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor that such a file holds."""
    size = _size(shapes)
    if isinstance(params, LowRank):
        return {"factors": (compression.factors_of(shapes, rank=params.rank),)}
    if isinstance(params, TopK):
        kept = (kept_of(size, params.keep),)
        return {"positions": kept, "ranges": (1,), "values": kept}
    assert isinstance(params, Quantisation)
    return {"codes": (-(-size * params.bits // 8),), "ranges": (-(-size // params.block),)}


def _size(shapes: compression.Shapes) -> int:
    return sum(int(np.prod(shape)) for shape in shapes.values())
