"""What a file may hold: the tensors of the model that it is for, in their shapes, and labels that are classes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from artifacts.formats.safetensors_layout import TensorSpec
from artifacts.formats.tensors_stream import TensorStream
from artifacts.kinds import KINDS
from stages.compression.file import misspelt, sizes
from stages.execution.dispatch import named
from stages.nets.params import matches
from stages.proxies.residuals_file import encoding_of
from stages.registry import ENCODERS
from stages.secagg.summed import summed_kind

Shapes = dict[str, tuple[int, ...]]
_RUNNING = ("running_mean", "running_var")
_PIXELS = {"float32": "F32", "float16": "F16", "uint8": "U8"}


@dataclass(frozen=True)
class KnownModel:
    """What messages for a model may look like: tensors that are sent, images and classes."""

    shapes: Shapes
    params: Mapping[str, Any]

    @classmethod
    def of(cls, params: Mapping[str, Any], specs: tuple[TensorSpec, ...]) -> KnownModel:
        frozen = params.get("net_freeze")
        floats = (spec for spec in specs if spec.dtype.startswith("F"))
        sent = {spec.name: spec.shape for spec in floats if not matches(spec.name, frozen)}
        return cls(sent, params)

    @property
    def layers(self) -> int:
        """The tensors that are trained: what batch norm averages is not."""
        return len(self.shapes) - len(self._averages)

    @property
    def averages(self) -> int:
        """How many numbers batch norm's running averages are."""
        return sum(math.prod(shape) for shape in self._averages)

    @property
    def _averages(self) -> list[tuple[int, ...]]:
        return [shape for name, shape in self.shapes.items() if name.rpartition(".")[2] in _RUNNING]


def misfits(found: TensorStream, labels: NDArray[Any] | None, model: KnownModel | None) -> Iterator[str]:
    """What does not belong into a file of a client; `model` is the one that it names, where that is at hand.

    `labels` are those of a surrogate.
    """
    kind = KINDS[found.metadata.kind]
    if found.metadata.stage == "secagg" and kind.holds_weights:
        summed = KINDS[summed_kind(found.metadata.params.get("encoding") or {})]
        kind = summed if summed.encoded else kind
    if kind.holds_weights and model is not None:
        yield from _foreign(_shapes(found), model.shapes, partial=kind.partial)
    check = next((one.checked_by for one in ENCODERS.classes if one.kind == kind.name), None)
    if check is not None:
        yield from named(check)(found, labels, model)


def _foreign(shapes: Shapes, wanted: Shapes, *, partial: bool) -> Iterator[str]:
    for name, shape in shapes.items():
        if name not in wanted:
            yield f"the tensor {name!r} is none of its model's"
        elif shape != wanted[name]:
            yield f"the tensor {name!r} has the shape {list(shape)}, its model's {list(wanted[name])}"
    missing = sorted(wanted.keys() - shapes.keys())
    if missing and not partial:
        yield f"the tensor {missing[0]!r} of its model is missing"


def surrogate_misfits(found: TensorStream, labels: NDArray[Any] | None, model: KnownModel | None) -> Iterator[str]:
    assert labels is not None  # a surrogate always has them
    each = found.metadata.params.get("images_per_class", 0)
    low, high = (int(labels.min()), int(labels.max())) if labels.size else (0, 0)
    if model is not None:
        shapes = _shapes(found)
        yield from _images(shapes["images"], model)
        if shapes.get("norms", (model.layers,)) != (model.layers,):
            yield f"it has {shapes['norms'][0]} norms for the {model.layers} layers of its model"
        classes = model.params.get("num_classes", 0)
        if low < 0 or high >= classes:
            yield f"its labels run from {low} to {high}, but there are {classes} classes"
    if low >= 0 and type(each) is int and labels.size and len(set(labels.tolist())) * each < labels.size:
        yield f"it holds more than the {each} images of a class that its parameters say"


def residuals_misfits(found: TensorStream, _labels: None, model: KnownModel | None) -> Iterator[str]:
    if model is not None:
        wanted = {"residuals": (encoding_of(found.metadata).get("images"), model.params.get("num_classes"))}
        yield from _other_sizes(found, wanted, model)


def compressed_misfits(found: TensorStream, _labels: None, model: KnownModel | None) -> Iterator[str]:
    if model is None:
        return
    params = ENCODERS.from_mapping(found.metadata.params)
    if wrong := list(_other_sizes(found, sizes(params, model.shapes), model)):
        yield from wrong
    elif (
        what := misspelt({spec.name: found.tensor(spec.name) for spec in found.specs}, params, model.shapes)
    ) is not None:
        yield what


def _other_sizes(found: TensorStream, wanted: Mapping[str, Any], model: KnownModel) -> Iterator[str]:
    yield from _running(_shapes(found), model)
    held = {name: shape for name, shape in _shapes(found).items() if name != "averages"}
    if held != wanted:
        yield f"it holds {held}, where its parameters and its model make {wanted}"


def proxy_misfits(found: TensorStream, _labels: None, model: KnownModel | None) -> Iterator[str]:
    kinds, shapes = {spec.name: spec.dtype for spec in found.specs}, _shapes(found)
    if ("range" in kinds) != (kinds["images"] == "U8") or shapes.get("range", (2,)) != (2,):
        yield "`range` belongs to images of bytes, and is two numbers"
    params = found.metadata.params
    if kinds["images"] != _PIXELS.get(params.get("pixels", "float32")):
        yield f"its images are {kinds['images']}, its parameters say {params.get('pixels')}"
    if shapes["images"][0] != params.get("images"):
        yield f"it holds {shapes['images'][0]} images, its parameters say {params.get('images')}"
    if model is None:
        return
    yield from _images(shapes["images"], model)
    if shapes["residuals"][1] != model.params.get("num_classes"):
        yield f"its residuals have {shapes['residuals'][1]} numbers each, the model has another number of classes"
    if shapes["scales"][0] != model.layers:
        yield f"it has {shapes['scales'][0]} scales for the {model.layers} layers of its model"
    yield from _running(shapes, model)


def _running(shapes: Shapes, model: KnownModel) -> Iterator[str]:
    if shapes.get("averages", (model.averages,)) != (model.averages,):
        yield f"it has {shapes['averages'][0]} running averages, its model {model.averages}"


def _shapes(found: TensorStream) -> Shapes:
    return {spec.name: spec.shape for spec in found.specs}


def _images(shape: tuple[int, ...], model: KnownModel) -> Iterator[str]:
    wanted = tuple(model.params.get(name) for name in ("channels", "height", "width"))
    if shape[1:] != wanted:
        yield f"its images are {list(shape[1:])}, its model takes {list(wanted)}"
