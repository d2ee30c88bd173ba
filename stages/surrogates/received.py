"""The clients' sets as the server takes them: each checked whole before any counts; on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from artifacts.errors import InputError
from artifacts.formats.tensors_file import TensorArtifact
from stages.methods.params.feddm import FedDmOptimisation
from stages.methods.params.fedlap import FedLapOptimisation
from stages.methods.params.surrogates import LARGEST_PIXEL
from stages.nets.params import InputShape
from stages.surrogates.file import read_surrogate

if TYPE_CHECKING:
    from torch import nn

    from stages.methods.surrogate_nets import LabelledSet

Optimisation = FedLapOptimisation | FedDmOptimisation
LARGEST_NORM = 1e4  # of a layer of a mean gradient


@dataclass(frozen=True, eq=False)
class Received:
    """A surrogate that was found in order; on the device."""

    artifact: TensorArtifact
    content: LabelledSet

    @property
    def radius(self) -> float | None:
        found = self.artifact.tensors.get("radius")
        return None if found is None else float(found)


def receive(
    paths: Sequence[Path],
    model: TensorArtifact,
    shape: InputShape,
    params: Optimisation,
    module: nn.Module,
    *,
    strict: bool,
) -> tuple[list[Received], list[str]]:
    """In the order of the clients' names, so that the order on the command line is free; and who was left out, why."""
    kept: dict[str, Received] = {}
    refused: list[str] = []
    for path in paths:
        try:
            found = _read(path, model, shape, params, module)
            owner = found.artifact.metadata.client or str(path)
            if owner in kept:
                raise InputError(
                    f"{path} and {kept[owner].artifact.path} are both from client {owner!r}: a client counts once."
                )
            kept[owner] = found
        except InputError as error:
            cause = error.__cause__  # a disk's fault is not its client's
            if strict or (isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError | IsADirectoryError)):
                raise
            refused.append(str(error))
    if not kept:
        raise InputError(f"not one of the {len(refused)} surrogates can be used. {refused[0]}")
    return [kept[owner] for owner in sorted(kept)], refused


def _read(path: Path, model: TensorArtifact, shape: InputShape, params: Optimisation, module: nn.Module) -> Received:
    import torch

    from stages.methods.surrogate_nets import LabelledSet, gradient, start_weights
    from stages.nets.state import trained

    artifact = read_surrogate(path, model, shape, rule=params.rule, images_per_class=params.images_per_class)
    images, labels = artifact.tensors["images"], artifact.tensors["labels"]
    largest = float(np.max(np.abs(images)))
    if not largest <= LARGEST_PIXEL:
        raise InputError(f"{path} has pixels of up to {largest:g}, beyond {LARGEST_PIXEL:g}: no image. Leave it out.")
    _check_claimed(path, artifact, params, len(trained(module)))
    where = next(module.parameters()).device
    content = LabelledSet(
        torch.from_numpy(images.astype(np.float32)).to(where), torch.from_numpy(labels.copy()).to(where)
    )
    first = gradient(module, start_weights(module), content, micro_batch=params.micro_batch)
    if not all(bool(torch.isfinite(part).all()) for part in first.values()):
        raise InputError(f"{path}: the model's gradient on these images is not finite. Leave it out.")
    return Received(artifact, content)


def _check_claimed(path: Path, artifact: TensorArtifact, params: Optimisation, layers: int) -> None:
    """Radius, norms and counts, where this rule uses them."""
    if isinstance(params, FedDmOptimisation):
        rho = artifact.metadata.params.get("rho")
        if not isinstance(rho, int | float) or not rho >= params.rho:
            raise InputError(f"{path} was matched within ρ = {rho}, but --rho is {params.rho:g}. Leave it out.")
        return
    radius = artifact.tensors.get("radius")
    if params.strategy != "fixed":
        if radius is None and params.radius is None:
            raise InputError(f"{path} brings no radius: give the agreed one with --radius.")
        if radius is not None and not (np.isfinite(radius) and radius > 0):
            raise InputError(f"{path} has the radius {float(radius):g}: it stands in for nothing. Leave it out.")
    if params.weights == "examples" and not artifact.metadata.counts.get("num_examples"):
        raise InputError(f"{path} does not declare its num_examples. Encode it with --tell-examples.")
    if params.calibrated:
        norms = artifact.tensors.get("norms")
        if norms is None or len(norms) != layers:
            found = "none" if norms is None else str(len(norms))
            raise InputError(f"{path} brings {found} of the {layers} layer norms. Encode it with --calibrate.")
        if not ((norms >= 0).all() and (norms <= LARGEST_NORM).all()):
            raise InputError(
                f"{path} brings layer norms that are no lengths of gradients, from 0 to {LARGEST_NORM:g}. Leave it out."
            )
