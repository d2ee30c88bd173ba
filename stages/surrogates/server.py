"""`aggregate --rule fedlap|feddm`: the clients' synthetic sets of a round become the next model.

A set that does not belong, is too large or holds impossible numbers is left out, and the summary says why; with
`strict` it stops the round instead. Nothing is written unless a set is left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
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
from stages.models.file import network_of, read_model, round_of, to_module
from stages.models.next_model import events_of, for_clients, record_participants, recording, with_past
from stages.nets.params import InputShape, Network, network_params
from stages.surrogates.received import Optimisation, Received, receive
from stages.verify import check_same, require_signed

if TYPE_CHECKING:
    import torch
    from torch import nn

    from stages.execution.torch_setup import Device


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
    received, refused = receive(surrogates, start, shape, params, module, strict=strict)
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


def _named(texts: Sequence[str], files: Sequence[Path]) -> list[str]:
    """The texts with each file by its client and name: the path of a run folder is no matter of the run."""
    for path in files:
        texts = [text.replace(str(path), "/".join(path.parts[-3:])) for text in texts]
    return list(texts)


def _fresh(network: Network, shape: InputShape, seed: int) -> nn.Module:
    """A network that none of the sets was made for, as DSC and PSG judge theirs."""
    from stages.nets.build import new_network

    return new_network(network, shape, seed)


def _fedlap(
    module: nn.Module, received: Sequence[Received], params: FedLapOptimisation, round: int, seed: int
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
    module: nn.Module, received: Sequence[Received], params: FedDmOptimisation, round: int, seed: int, report: Report
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
