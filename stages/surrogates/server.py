"""`aggregate --rule fedlap|feddm`: the clients' synthetic sets of a round become the next model.

A set that does not belong, is too large or holds impossible numbers is left out, and the summary says why; with
`strict` it stops the round instead. Nothing is written unless a set is left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError, UsageError
from artifacts.formats import any_file, tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.kinds import KINDS, Custody
from artifacts.ledgers import lineage
from artifacts.metadata import Metadata
from artifacts.places import is_leaving
from artifacts.publish import prepare, prepare_kept
from artifacts.writing import atomic
from stages.execution.progress import Report, Summary, silent
from stages.execution.randomness import stream_seed
from stages.execution.versions import versions
from stages.methods.params.feddm import FedDmOptimisation
from stages.methods.params.fedlap import FedLapOptimisation
from stages.methods.params.surrogates import LARGEST_PIXEL
from stages.models.file import network_of, read_model, round_of, to_module
from stages.models.next_model import events_of, for_clients, record_participants, recording, with_past
from stages.nets.params import InputShape, Network, network_params
from stages.surrogates.file import read_surrogate
from stages.verify import check_same, require_signed

if TYPE_CHECKING:
    import torch
    from torch import nn

    from stages.execution.torch_setup import Device
    from stages.methods.surrogate_nets import LabelledSet

Optimisation = FedLapOptimisation | FedDmOptimisation
LARGEST_NORM = 1e4  # of a layer of a mean gradient


def aggregate_surrogates(
    model: Path,
    surrogates: Sequence[Path],
    out: Path,
    *,
    params: Optimisation,
    seed: int = 0,
    strict: bool = False,
    metrics: Path | None = None,
    key: Path | None = None,
    signed_by: Path | None = None,
    device: Device = "auto",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Descend on the union of the sets, no farther from the model than they are good for.

    `metrics` gets the server's own account of it: radii, steps, distance and loss of each. `seed` orders FedDM's
    batches, and draws FedLAP's augmentations and fresh weights. With the roster `signed_by` every set must be signed;
    one that is not stops the round.
    """
    custody: Custody = "downlink" if is_leaving(out) else "server"
    prepare(out, custody)
    if metrics is not None:
        prepare_kept(metrics, "server")
    if not surrogates:
        raise UsageError("aggregate needs at least one surrogate.")
    signed = require_signed(surrogates, signed_by) if signed_by is not None else None
    start = read_model(model)
    network, shape = network_of(start.metadata, model)

    from stages.execution.torch_setup import arithmetic, set_up

    where = set_up(device)
    module = to_module(start, where)
    received, refused = _receive(surrogates, start, shape, params, module, strict=strict)
    sources = [one.artifact for one in received]
    if signed is not None:
        check_same([source.sha256 for source in sources], signed)
    metadata = Metadata(
        kind="model",
        stage="aggregate",
        method=params.rule,
        custody=custody,
        round=round_of(start) + 1,
        params={**network_params(start.metadata.params), **params.to_json()},
        inputs=(lineage.by_digest(start, "model"), *(lineage.by_digest(source, "surrogate") for source in sources)),
        privacy=events_of([source.metadata.privacy for source in sources]),
        disclosures=_stated(sources),
        simulation=any(source.metadata.simulation for source in sources),
        versions=versions("torch"),
        arithmetic=arithmetic(where),
    )
    references, metadata = metadata.inputs[1:], with_past(metadata, start.metadata)
    if custody == "downlink":
        metadata = for_clients(metadata, start, out, key)
    any_file.refuse_other(out, metadata, force=force)
    if isinstance(params, FedLapOptimisation):
        if params.begin == "fresh":
            module = _fresh(network, shape, stream_seed(seed, stage="aggregate", round=metadata.round, of="beginning"))
        weights, stated = _fedlap(module.to(where), received, params, round_of(start) + 1, seed)
    else:
        weights, stated = _feddm(module, received, params, round_of(start) + 1, seed, report)
    tensors: dict[str, NDArray[Any]] = dict(start.tensors)
    tensors |= {name: weight.cpu().numpy() for name, weight in weights.items()}
    if metrics is not None:
        about = {"custody": "server", "round": metadata.round, **stated, "left_out": _named(refused, surrogates)}
        atomic.write_json(metrics, about, force=force)
    leaves = custody == "downlink"
    with recording(out) if leaves else contextlib.nullcontext():
        if leaves:
            record_participants(out, references, force=force)
        digest = tensors_file.write(out, tensors, metadata, force=force)
    return {
        "out": str(out),
        "sha256": digest,
        "kind": "model",
        "round": metadata.round,
        "messages": len(received),
        "bytes_in": sum(source.path.stat().st_size for source in sources),
        "steps": stated["steps"],
        "distance": round(stated["distance"], 6),
        **({"left_out": refused} if refused else {}),
        **({"unchanged": stated["unchanged"]} if "unchanged" in stated else {}),
    }


@dataclass(frozen=True, eq=False)
class _Received:
    """A surrogate that was found in order; on the device."""

    artifact: TensorArtifact
    content: LabelledSet

    @property
    def radius(self) -> float | None:
        found = self.artifact.tensors.get("radius")
        return None if found is None else float(found)


def _named(texts: Sequence[str], files: Sequence[Path]) -> list[str]:
    """The texts with each file by its client and name: the path of a run folder is no matter of the run."""
    for path in files:
        texts = [text.replace(str(path), "/".join(path.parts[-3:])) for text in texts]
    return list(texts)


def _receive(
    paths: Sequence[Path],
    model: TensorArtifact,
    shape: InputShape,
    params: Optimisation,
    module: nn.Module,
    *,
    strict: bool,
) -> tuple[list[_Received], list[str]]:
    """In the order of the clients' names, so that the order on the command line is free; and who was left out, why."""
    kept: dict[str, _Received] = {}
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


def _read(path: Path, model: TensorArtifact, shape: InputShape, params: Optimisation, module: nn.Module) -> _Received:
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
    return _Received(artifact, content)


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


def _fresh(network: Network, shape: InputShape, seed: int) -> nn.Module:
    """A network that none of the sets was made for, as DSC and PSG judge theirs."""
    from stages.nets.build import new_network

    return new_network(network, shape, seed)


def _fedlap(
    module: nn.Module, received: Sequence[_Received], params: FedLapOptimisation, round: int, seed: int
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    import torch

    from stages.methods.fedlap_server import Contribution, optimise

    counts = [one.artifact.metadata.counts["num_examples"] if params.weights == "examples" else 1 for one in received]
    where = received[0].content.labels.device
    contributions = [
        Contribution(
            one.content,
            count / sum(counts),
            torch.from_numpy(one.artifact.tensors["norms"].copy()).to(where) if params.calibrated else None,
        )
        for one, count in zip(received, counts, strict=True)
    ]
    radii = {str(one.artifact.metadata.client): one.radius for one in received}
    radius = _radius(list(radii.values()), params)
    weights, trace = optimise(
        module, contributions, radius=radius, steps=params.server_steps, rate=params.rate(round),
        augmentations=params.augmentations,
        generator=torch.Generator().manual_seed(stream_seed(seed, stage="aggregate", round=round, of="augmentation")),
        micro_batch=params.micro_batch,
    )  # fmt: skip
    _check_finite(weights)
    stated: dict[str, Any] = {
        "radius": radius,
        "radii": radii,
        "steps": len(trace),
        "distance": trace[-1].distance if trace else 0.0,
        "trace": [asdict(step) for step in trace],
    }
    if not trace:
        least = min(radii, key=lambda client: radii[client] or float("inf"))
        stated["unchanged"] = (
            f"the first step would leave the radius of {radius:g} (--strategy {params.strategy}); the least is that of "
            f"client {least!r}. Lower --learning-rate, choose another strategy, or leave that set out."
        )
    return weights, stated


def _radius(found: Sequence[float | None], params: FedLapOptimisation) -> float | None:
    """r_g by the strategy (Sec. 5.4), at most the server's own r; that is also r_k of a set that brings none (DP)."""
    if params.strategy == "fixed":
        return None
    most = float("inf") if params.radius is None else params.radius
    radii = [most if radius is None else radius for radius in found]
    quantile = {"min": 0.0, "median": 0.5, "max": 1.0}[params.strategy]
    return min(float(np.quantile(radii, quantile)), most)


def _feddm(
    module: nn.Module, received: Sequence[_Received], params: FedDmOptimisation, round: int, seed: int, report: Report
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    import torch

    from stages.methods.feddm_server import optimise
    from stages.methods.surrogate_nets import LabelledSet

    union = LabelledSet(
        torch.cat([one.content.images for one in received]), torch.cat([one.content.labels for one in received])
    )
    weights, trace = optimise(
        module,
        union,
        rho=params.rho,
        epochs=params.server_epochs,
        batch_size=params.batch_size,
        rate=params.rate(round),
        generator=torch.Generator().manual_seed(stream_seed(seed, stage="aggregate", round=round, of="batches")),
        report=lambda done, total: report(done, total, "epochs"),
        micro_batch=params.micro_batch,
    )
    _check_finite(weights)
    steps = params.server_epochs * -(-len(union) // params.batch_size)
    return weights, {"steps": steps, "distance": trace[-1].distance, "trace": [asdict(epoch) for epoch in trace]}


def _check_finite(weights: Mapping[str, torch.Tensor]) -> None:
    import torch

    for name, weight in weights.items():
        if not bool(torch.isfinite(weight).all()):
            raise InputError(f"the descent on the sets diverged in tensor {name!r}. Lower --learning-rate.")


def _stated(sources: Sequence[TensorArtifact]) -> tuple[str, ...]:
    """What the sets disclosed goes into the model, but for the numbers that are beside them."""
    stated = {name for source in sources for name in source.metadata.disclosures}
    return tuple(sorted(stated - KINDS["surrogate"].disclosed_beside))
