"""Model artifacts: what a model file says about its network, and the module that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts import tensors_file
from artifacts.errors import InputError
from artifacts.metadata import Metadata
from artifacts.tensors_file import TensorArtifact
from stages.nets.params import InputShape, NetParams

if TYPE_CHECKING:
    import torch
    from torch import nn

_SHAPE = ("channels", "height", "width", "num_classes")


def model_params(net: NetParams, shape: InputShape) -> dict[str, Any]:
    """What stands in a model's metadata: enough to build the network anew."""
    return {**{f"net_{k}": v for k, v in net.to_json().items()}, **{k: getattr(shape, k) for k in _SHAPE}}


def network_of(metadata: Metadata, path: Path) -> tuple[NetParams, InputShape]:
    """The network that a model's metadata describes."""
    params = metadata.params
    try:
        net = NetParams.from_mapping({k[4:]: v for k, v in params.items() if k.startswith("net_")})
        return net, InputShape(**{k: params[k] for k in _SHAPE})
    except (ValueError, KeyError) as error:
        raise InputError(f"{path} does not describe a network that fedsynth knows: {error}.") from error


def read_model(path: Path) -> TensorArtifact:
    return tensors_file.read(path, kind="model")


def round_of(model: TensorArtifact) -> int:
    """How many rounds went into this model: 0 for the initial one."""
    return model.metadata.round or 0


def to_module(model: TensorArtifact, device: torch.device) -> nn.Module:
    """The network with the file's weights. Names and shapes must be the network's own."""
    import torch

    from stages.nets.build import skeleton

    try:
        module = skeleton(*network_of(model.metadata, model.path))
    except (ValueError, RuntimeError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{model.path} describes a network that cannot be built: {reason}.") from error
    check_fits(model.tensors, module.state_dict(), model.path)
    # Memory is taken for what the file holds, not for what it claims. Its arrays are read-only views: copied once.
    weights = {name: torch.from_numpy(array.copy()) for name, array in model.tensors.items()}
    module.load_state_dict(weights, assign=True)
    return module.to(device)


def check_fits(found: Mapping[str, Any], wanted: Mapping[str, Any], path: Path, *, partial: bool = False) -> None:
    """Tensors have the names and shapes of the model's; `partial` allows some to be absent."""
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


def check_images_fit(path: Path, metadata: Metadata, shape: InputShape) -> None:
    """The images have the size, channels and classes that the model was made for."""
    found = tuple(metadata.params[k] for k in ("channels", "height", "width", "num_classes"))
    wanted = (shape.channels, shape.height, shape.width, shape.num_classes)
    if found != wanted:
        raise InputError(
            f"{path} does not fit the model: its images are {found[0]}×{found[1]}×{found[2]} in {found[3]} "
            f"classes, the model takes {wanted[0]}×{wanted[1]}×{wanted[2]} in {wanted[3]}."
        )
