"""TOFU's proxies as files: pixels as they are sent, and a proxy that was checked, on its way back.

Pixels go as float32, float16 or bytes; with bytes `range` says what 0 and 255 stand for. Gradients say nothing of batch
norm's running averages: their change goes beside the images as it is, in `averages`, one after the other by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.formats import tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from stages.models.file import check_pixels_fit, network_of, to_module
from stages.nets.params import InputShape

if TYPE_CHECKING:
    from torch import nn

    from stages.execution.torch_setup import Device

MOST_IMAGES = 100_000
_LARGEST, _LARGEST_CHANGE = 1e30, 1e6


def sent_pixels(images: NDArray[np.float32], pixels: Literal["float32", "float16", "uint8"]) -> dict[str, NDArray[Any]]:
    """The tensors that the file holds."""
    if pixels == "float32":
        return {"images": images}
    if pixels == "float16":
        most = np.finfo(np.float16).max
        return {"images": np.clip(images, -most, most).astype(np.float16)}
    low, high = float(images.min()), float(images.max())
    steps = np.rint((images.astype(np.float64) - low) * (255 / max(high - low, 1e-30)))
    return {"images": steps.astype(np.uint8), "range": np.array([low, high], np.float32)}


def seen_pixels(tensors: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
    """The images that a receiver sees; the sender measures on these."""
    images = tensors["images"]
    if images.dtype != np.uint8:
        return images.astype(np.float32)
    low, high = tensors["range"].astype(np.float32)
    seen: NDArray[np.float32] = low + (high - low) * (images.astype(np.float32) / np.float32(255))
    return seen


def sent_averages(update: Mapping[str, NDArray[Any]], parameters: Collection[str]) -> dict[str, NDArray[np.float32]]:
    """What of an update no gradient carries, as one tensor of the file; nothing without batch norm."""
    found = [update[name].ravel() for name in sorted(update) if name not in parameters]
    return {"averages": np.concatenate(found)} if found else {}


def seen_averages(
    path: Path, averages: NDArray[Any] | None, model: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[np.float32]]:
    """The changes of the model's running averages, by name; none where the proxy leaves them as they are."""
    if averages is None:
        return {}
    sizes = {name: model[name].size for name in sorted(model)}
    if averages.size != sum(sizes.values()):
        found = f"{averages.size:,} averages where it has {sum(sizes.values()):,}"
        raise InputError(f"{path} does not fit the model: {found}.")
    parts = np.split(averages, np.cumsum(list(sizes.values()))[:-1])
    return {name: part.reshape(model[name].shape) for name, part in zip(sizes, parts, strict=True)}


def read_proxy(path: Path, shape: InputShape, layers: int) -> TensorArtifact:
    """A proxy whose tensors fit the model and hold numbers."""
    _, specs = tensors_file.read_header(path)
    sizes = {spec.name: tuple(spec.shape) for spec in specs}
    count, *image = sizes["images"]
    check_pixels_fit(path, image, shape)
    if not 1 <= count <= MOST_IMAGES:
        raise InputError(f"{path} holds {count:,} images; from 1 to {MOST_IMAGES:,} can be decoded.")
    for name, found, needed in (
        ("residuals", sizes["residuals"][1], shape.num_classes),
        ("scales", sizes["scales"][0], layers),
    ):
        if found != needed:
            raise InputError(f"{path} does not fit the model: {found} {name} where it has {needed}.")
    artifact = tensors_file.read(path, kind="proxy")
    has_range = "range" in artifact.tensors
    if has_range != (artifact.tensors["images"].dtype == np.uint8):
        raise InputError(f"{path}: `range` belongs to images of bytes, and only there. Encode it again.")
    for name, tensor in artifact.tensors.items():
        wide = tensor.astype(np.float64)
        if not (np.isfinite(wide).all() and (np.abs(wide) <= _LARGEST).all()):
            raise InputError(f"{path}: {name} holds numbers that no update has. Leave it out.")
    if (artifact.tensors["scales"] < 0).any():
        raise InputError(f"{path}: scales are never below 0. Leave it out.")
    return artifact


def carried(module: nn.Module, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
    """The update that a proxy's tensors stand for, by parameter: the sender measures it, the receiver applies it."""
    import torch

    from stages.methods.tofu import Proxy, decode

    where = next(module.parameters()).device
    arrays = (seen_pixels(dict(tensors)), tensors["residuals"], tensors["scales"])
    found = decode(module, Proxy(*(torch.from_numpy(np.array(array, np.float32)).to(where) for array in arrays)))
    return {name: part.detach().cpu().numpy() for name, part in found.items()}


def decoded(path: Path, model: TensorArtifact, device: Device = "auto") -> TensorArtifact:
    """The proxy, checked, with the update that it stands for in place of its own tensors: one pass forward and back."""
    from stages.execution.torch_setup import set_up
    from stages.nets.state import exchanged, trained

    module = to_module(model, set_up(device))
    _, shape = network_of(model.metadata, model.path)
    parameters = trained(module)
    artifact = read_proxy(path, shape, len(parameters))
    kept = {name: model.tensors[name] for name in exchanged(module) if name not in parameters}
    averages = seen_averages(path, artifact.tensors.get("averages"), kept)
    update = carried(module, artifact.tensors)
    if not all((np.abs(part) <= _LARGEST_CHANGE).all() for part in update.values()):  # false for NaN too
        raise InputError(
            f"{path}: the update that it stands for changes a weight by more than {_LARGEST_CHANGE:g}: its scales are "
            "wrong. Leave it out."
        )
    return replace(artifact, tensors={**update, **averages})
