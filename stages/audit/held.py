"""What a file may hold: the tensors of the model that it is for, in their shapes, and labels that are classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from artifacts.metadata import Metadata
from artifacts.safetensors_layout import TensorSpec
from artifacts.tensors_stream import TensorStream

_UPDATES = ("message", "secagg-masked", "state")
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class KnownModel:
    """What messages for a model may look like: its tensors but for batch norm's counters, its images and classes."""

    shapes: Shapes
    params: Mapping[str, Any]

    @classmethod
    def of(cls, params: Mapping[str, Any], specs: tuple[TensorSpec, ...]) -> KnownModel:
        return cls({spec.name: spec.shape for spec in specs if spec.dtype.startswith("F")}, params)


def misfits(found: TensorStream, model: KnownModel | None) -> Iterator[str]:
    """What does not belong into a file of a client; `model` is the one that it names, where that is at hand."""
    metadata, shapes = found.metadata, {spec.name: spec.shape for spec in found.specs}
    if metadata.kind in _UPDATES and model is not None:
        yield from _foreign(shapes, model.shapes, partial=metadata.kind == "state")
    elif metadata.kind == "surrogate":
        yield from _surrogate(found, shapes, model)
    elif metadata.kind == "proxy":
        yield from _proxy(metadata, found.specs, shapes, model)


def _foreign(shapes: Shapes, wanted: Shapes, *, partial: bool) -> Iterator[str]:
    for name, shape in shapes.items():
        if name not in wanted:
            yield f"the tensor {name!r} is none of its model's"
        elif shape != wanted[name]:
            yield f"the tensor {name!r} has the shape {list(shape)}, its model's {list(wanted[name])}"
    missing = sorted(wanted.keys() - shapes.keys())
    if missing and not partial:
        yield f"the tensor {missing[0]!r} of its model is missing"


def _surrogate(found: TensorStream, shapes: Shapes, model: KnownModel | None) -> Iterator[str]:
    labels = found.tensor("labels")
    each = found.metadata.params.get("images_per_class", 0)
    low, high = (int(labels.min()), int(labels.max())) if labels.size else (0, 0)
    if model is not None:
        yield from _images(shapes["images"], model)
        classes = model.params.get("num_classes", 0)
        if low < 0 or high >= classes:
            yield f"its labels run from {low} to {high}, but there are {classes} classes"
    if low >= 0 and type(each) is int and labels.size and len(set(labels.tolist())) * each < labels.size:
        yield f"it holds more than the {each} images of a class that its parameters say"


def _proxy(
    metadata: Metadata, specs: tuple[TensorSpec, ...], shapes: Shapes, model: KnownModel | None
) -> Iterator[str]:
    kinds = {spec.name: spec.dtype for spec in specs}
    if ("range" in kinds) != (kinds["images"] == "U8") or shapes.get("range", (2,)) != (2,):
        yield "`range` belongs to images of bytes, and is two numbers"
    if shapes["images"][0] != metadata.params.get("images"):
        yield f"it holds {shapes['images'][0]} images, its parameters say {metadata.params.get('images')}"
    if model is None:
        return
    yield from _images(shapes["images"], model)
    if shapes["labels"][1] != model.params.get("num_classes"):
        yield f"its labels have {shapes['labels'][1]} numbers each, the model has another number of classes"
    if shapes["scales"][0] > len(model.shapes):
        yield f"it has {shapes['scales'][0]} scales for the {len(model.shapes)} tensors of its model"


def _images(shape: tuple[int, ...], model: KnownModel) -> Iterator[str]:
    wanted = tuple(model.params.get(name) for name in ("channels", "height", "width"))
    if shape[1:] != wanted:
        yield f"its images are {list(shape[1:])}, its model takes {list(wanted)}"
