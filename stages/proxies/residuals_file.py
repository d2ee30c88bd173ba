"""Residuals on public images as files: checked, and back to the update that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.formats import tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.metadata import Metadata
from stages.methods.params.public_images import PublicImages
from stages.models.file import network_of, to_module
from stages.proxies.file import seen_averages
from stages.registry import ENCODERS

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.execution.torch_setup import Device


def encoding_of(metadata: Metadata) -> Mapping[str, Any]:
    """The parameters of the encoding: of a client's own file, or as all files of a secure sum stated them."""
    stated: Mapping[str, Any] = metadata.params["encoding"] if metadata.stage == "secagg" else metadata.params
    return stated


def decoded_residuals(path: Path, model: TensorArtifact, device: Device = "auto") -> TensorArtifact:
    """Such a file, checked, with the update that it stands for in place of its own tensors."""
    from stages.execution.torch_setup import set_up
    from stages.nets.state import exchanged, trained

    metadata, specs = tensors_file.read_header(path)
    params: Any = ENCODERS.from_mapping(encoding_of(metadata))
    _, shape = network_of(model.metadata, model.path)
    found = next(spec.shape for spec in specs if spec.name == "residuals")
    if tuple(found) != (params.images, shape.num_classes):
        raise InputError(
            f"{path} does not fit the model: residuals of {list(found)} where {[params.images, shape.num_classes]} "
            "belong."
        )
    artifact = tensors_file.read(path, kind="residuals")
    module = to_module(model, set_up(device))
    parameters = set(trained(module))
    kept = {name: model.tensors[name] for name in exchanged(module) if name not in parameters}
    averages = seen_averages(path, artifact.tensors.get("averages"), kept)
    update = carried_by_residuals(module, model, artifact.tensors, params)
    if not all(np.isfinite(part).all() for part in update.values()):
        raise InputError(f"{path}: the update that it stands for is not finite. Leave it out.")
    return replace(artifact, tensors={**update, **averages})


def carried_by_residuals(
    module: nn.Module, model: TensorArtifact, sent: Any, params: PublicImages
) -> dict[str, NDArray[np.float32]]:
    """What the receiver decodes; the sender measures it."""
    import torch

    from stages.methods.public_images import gradient

    images = public_images(model, params, module)
    residuals = torch.from_numpy(np.array(sent["residuals"], np.float32)).to(images.device)
    return {name: part.cpu().numpy() for name, part in gradient(module, images, residuals).items()}


def public_images(model: TensorArtifact, params: PublicImages, module: nn.Module) -> Tensor:
    """The same for all who have the model: its digest is the seed."""
    from stages.methods.public_images import draw

    _, shape = network_of(model.metadata, model.path)
    size = (shape.channels, shape.height, shape.width)
    return draw(params, size, int(str(model.sha256)[:15], 16)).to(next(module.parameters()).device)
