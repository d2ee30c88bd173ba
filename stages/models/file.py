"""Model artifacts: what a model file says about its network, and the module that it becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.errors import InputError
from artifacts.formats import tensors_file
from artifacts.formats.safetensors_layout import TensorSpec
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.metadata import Metadata
from stages.declared import check_params
from stages.families import stated
from stages.nets.params import SHAPE, InputShape, Network
from stages.plugins import refuse_missing
from stages.registry import NETWORKS

if TYPE_CHECKING:
    import torch
    from torch import nn


def model_params(net: Network, shape: InputShape) -> dict[str, Any]:
    """What is in a model's metadata: enough to build the network anew."""
    return {**{f"net_{k}": v for k, v in net.to_json().items()}, **{k: getattr(shape, k) for k in SHAPE}}


def network_of(metadata: Metadata, path: Path) -> tuple[Network, InputShape]:
    """The network that a model's metadata describes."""
    params = metadata.params
    refuse_missing(path, params)
    try:
        net: Network = stated(NETWORKS, {k[4:]: v for k, v in params.items() if k.startswith("net_")})
        return net, InputShape(**{k: params[k] for k in SHAPE})
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} does not describe a network that fedsynth knows: {error}.") from error


def read_model(path: Path) -> TensorArtifact:
    """A model, whole; one from somebody else says how it was made, in full."""
    model = tensors_file.read(path, kind="model")
    check_params(path, model.metadata)
    return model


def round_of(model: TensorArtifact) -> int:
    """How many rounds went into this model: 0 for the initial one."""
    return model.metadata.round or 0


def to_module(model: TensorArtifact, device: torch.device) -> nn.Module:
    """The network with the file's weights. Names and shapes must be the network's own."""
    import torch

    from stages.nets.build import new_network, skeleton, with_weights
    from stages.nets.state import file_tensors

    described = network_of(model.metadata, model.path)
    try:
        wanted = file_tensors(skeleton(*described))
        if wanted.keys() != model.tensors.keys() and described[0].initial_weights == "module":
            wanted = file_tensors(new_network(*described, 0))  # some modules have other tensors where there is memory
        check_fits(model.tensors, wanted, model.path)
        # Memory is taken for what the file holds, not for what it claims. Its arrays are read-only views: copied once.
        weights = {name: torch.from_numpy(array.copy()) for name, array in model.tensors.items()}
        return with_weights(*described, weights).to(device)
    except (ValueError, RuntimeError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{model.path} describes a network that cannot be built: {reason}.") from error


def check_fits(found: Mapping[str, Any], wanted: Mapping[str, Any], path: Path, *, partial: bool = False) -> None:
    """Tensors have the names, shapes and kind of numbers of the model's; `partial` allows some to be absent."""
    extra = sorted(found.keys() - wanted.keys())
    missing = [] if partial else sorted(wanted.keys() - found.keys())
    if extra or missing:
        word, name = ("has no", missing[0]) if missing else ("has the foreign", extra[0])
        raise InputError(f"{path} does not fit the model: it {word} tensor {name!r}.")
    for name, tensor in found.items():
        if tuple(tensor.shape) != tuple(wanted[name].shape):
            raise InputError(
                f"{path} does not fit the model: tensor {name!r} has the shape {list(tensor.shape)}, "
                f"the model's is {list(wanted[name].shape)}."
            )
        if _is_whole(tensor) != _is_whole(wanted[name]):
            has, needs = ("whole", "fractional") if _is_whole(tensor) else ("fractional", "whole")
            raise InputError(f"{path} does not fit the model: tensor {name!r} holds {has} numbers, not {needs} ones.")


def read_fitting(path: Path, wanted: Mapping[str, Any], *, kind: str, partial: bool = False) -> TensorArtifact:
    """A file of tensors like the model's; others are refused by the header alone, however large they are."""

    def fits(_: Metadata, specs: Sequence[TensorSpec]) -> None:
        check_fits({spec.name: spec for spec in specs}, wanted, path, partial=partial)

    return tensors_file.read(path, kind=kind, fits=fits)


def _is_whole(tensor: Any) -> bool:
    """Of an array, a tensor of torch, or what a header says of one."""
    return str(tensor.dtype).rpartition(".")[2].lower().startswith(("i", "u"))


def check_pixels_fit(path: Path, found: Sequence[int], shape: InputShape) -> None:
    """Images in a file of tensors have the channels, height and width that the model takes."""
    wanted = [shape.channels, shape.height, shape.width]
    if list(found) != wanted:
        raise InputError(f"{path} does not fit the model: its images are {list(found)}, the model takes {wanted}.")


def check_images_fit(path: Path, metadata: Metadata, shape: InputShape) -> None:
    """The images have the size, channels and classes that the model was made for."""
    found = tuple(metadata.params[k] for k in ("channels", "height", "width", "num_classes"))
    wanted = (shape.channels, shape.height, shape.width, shape.num_classes)
    if found != wanted:
        raise InputError(
            f"{path} does not fit the model: its images are {found[0]}×{found[1]}×{found[2]} in {found[3]} "
            f"classes, the model takes {wanted[0]}×{wanted[1]}×{wanted[2]} in {wanted[3]}."
        )
