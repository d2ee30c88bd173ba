"""`encode --method tofu`: an update becomes a few images and soft labels whose gradient it is. For clients and server.

That obscures the update and makes it smaller. It is no guarantee, and the norms of the layers are told as they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from artifacts import keys, lineage, tensors_file
from artifacts.errors import InputError, UsageError
from artifacts.gate import destination
from artifacts.keys import Key
from artifacts.metadata import InputRef, Metadata
from artifacts.places import Place, client_of
from artifacts.publish import prepare
from artifacts.tensors_file import TensorArtifact
from stages.key_streams import key_seeds
from stages.methods.params.tofu import TofuEncoding
from stages.model_file import check_fits, network_of, read_model, round_of, to_module
from stages.nets.params import InputShape
from stages.progress import Report, Summary, silent
from stages.proxy_file import seen_pixels, sent_averages, sent_pixels
from stages.spending import key_of, refuse_uncovered
from stages.versions import versions

if TYPE_CHECKING:
    from torch import Tensor

    from stages.torch_setup import Device


def encode_proxy(
    model: Path,
    update: Path,
    out: Path,
    *,
    params: TofuEncoding,
    previous: Path | None = None,
    key: Path | None = None,
    client: str | None = None,
    device: Device = "auto",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Write the proxy into an outbox: a client's, of its private update, or the server's, of an aggregated one.

    `previous` is the sender's proxy of an earlier round, to begin from. The summary says the cosine that the receiver
    will get, and the one before pixels were rounded.
    """
    if previous is not None and params.init != "previous":
        raise UsageError("--previous goes with --init previous.")
    place = Place.of(out)
    at_server = place is not None and place.is_server
    prepare(out, "downlink" if at_server else "outbound", force=force)
    name = None if at_server else client_of(out, client)
    start = read_model(model)
    _, shape = network_of(start.metadata, model)
    change = _read_update(update, start, name)
    key = key_of(out, key)
    secret = keys.read(key)
    before = None if previous is None else _read_previous(previous, name)
    metadata = _about(params, name, start, change, before, secret)
    if metadata.disclosures:
        refuse_uncovered(key, metadata.privacy, metadata.disclosures)

    import torch

    from stages.methods.tofu import encode
    from stages.torch_setup import set_up

    where = set_up(device)
    module = to_module(start, where)
    wanted = {
        parameter: torch.from_numpy(change.tensors[parameter].copy()).to(where)
        for parameter, _ in module.named_parameters()
    }
    seed = key_seeds(secret, {"client": name, "round": metadata.round, "model": start.sha256})("first proxy")
    first = _first(params, shape, seed) if before is None else _earlier(before, params, shape)
    sent: dict[str, NDArray[Any]] = {**sent_averages(change.tensors, wanted)}

    def as_seen(images: Tensor) -> Tensor:
        sent.update(sent_pixels(images.cpu().numpy(), params.pixels))
        return torch.from_numpy(seen_pixels(sent)).to(where)

    try:
        encoded = encode(
            module,
            wanted,
            (first[0].to(where), first[1].to(where), first[2].to(where)),
            params=params,
            sent=as_seen,
            report=lambda done, total, cosine: report(done, total, f"cosine {cosine:.3f}"),
        )
        proxy = encoded.proxy
        for tensor, value in (("labels", proxy.labels), ("weights", proxy.weights), ("scales", proxy.scales)):
            sent[tensor] = value.cpu().numpy()
        digest = tensors_file.write(out, sent, metadata, force=force)
    except ValueError as error:
        raise InputError(f"{update} cannot be encoded: {error}.") from error
    return {
        "out": str(out),
        "sha256": digest,
        "bytes": destination(out).stat().st_size,
        **({"client": name} if name is not None else {}),
        "round": metadata.round,
        "cosine": round(encoded.cosine, 6),
        "cosine_before_rounding": round(encoded.unrounded, 6),
        "iterations": len(encoded.cosines),
        "disclosures": list(metadata.disclosures),
    }


def _read_update(path: Path, model: TensorArtifact, client: str | None) -> TensorArtifact:
    """A client's own update, or one that the server aggregated, computed from this very model."""
    change = tensors_file.read(path, kind="update")
    check_fits(change.tensors, model.tensors, path, partial=True)
    owner = change.metadata.client
    if owner != client:
        mine = "the server" if client is None else f"client {client!r}"
        theirs = "the server's" if owner is None else f"client {owner!r}'s"
        raise InputError(f"{path} is {theirs} update, not that of {mine}.")
    if model.metadata.custody == "private":
        raise InputError(f"{model.path} is private: a proxy that names it would tell its digest.")
    if InputRef(role="model", kind="model", sha256=model.sha256) not in change.metadata.inputs:
        raise InputError(f"{path} was not computed from {model.path}. Give the model that it started from.")
    return change


def _about(
    params: TofuEncoding,
    client: str | None,
    model: TensorArtifact,
    change: TensorArtifact,
    before: TensorArtifact | None,
    secret: Key,
) -> Metadata:
    round = round_of(model) + 1
    private = bool(change.metadata.privacy)
    # Images that began as those of an earlier proxy bring with them what it cost, and what it told without noise.
    events, told = list(change.metadata.privacy), set(change.metadata.disclosures)
    if before is not None:
        events += [event for event in before.metadata.privacy if event not in events]
        told |= set(before.metadata.disclosures)
    if client is not None and not private:
        told |= {"derived_images", "layer_norms", "update"}
    context = {"stage": "encode", "client": client, "round": round, "params": params.to_json()}
    # An aggregated update names who took part; what goes down does not.
    source = lineage.for_outbound(change, "update", key=secret, context=context) if client is not None else None
    return Metadata(
        kind="proxy",
        stage="encode",
        method="tofu",
        custody="downlink" if client is None else "outbound",
        client=client,
        round=round,
        params=params.to_json(),
        inputs=(lineage.by_digest(model, "model"), *([source] if source is not None else [])),
        privacy=tuple(events),
        disclosures=tuple(sorted(told)),
        simulation=secret.simulation or change.metadata.simulation,
        versions=versions("torch"),
    )


def _first(params: TofuEncoding, shape: InputShape, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Step 1 of Algorithm 1: everything from N(0, 1); images of the solver `residuals` are half as bright."""
    import torch

    random = torch.Generator().manual_seed(seed)
    sizes = ((shape.channels, shape.height, shape.width), (shape.num_classes,), ())
    images, labels, free = (torch.randn((params.images, *size), generator=random) for size in sizes)
    return images * (1.0 if params.solver == "paper" else 0.5), labels, free


def _read_previous(path: Path, client: str | None) -> TensorArtifact:
    """The sender's own proxy of an earlier round."""
    before = tensors_file.read(path, kind="proxy")
    if before.metadata.client != client:
        raise InputError(f"{path} is a proxy of {before.metadata.client or 'the server'!r}, not of the sender.")
    return before


def _earlier(before: TensorArtifact, params: TofuEncoding, shape: InputShape) -> tuple[Tensor, Tensor, Tensor]:
    import torch

    images = seen_pixels(dict(before.tensors))
    wanted = (params.images, shape.channels, shape.height, shape.width)
    if images.shape != wanted or before.tensors["labels"].shape[1] != shape.num_classes:
        raise UsageError(f"{before.path} holds images of {list(images.shape)}; {list(wanted)} are asked for.")
    weights = np.maximum(before.tensors["weights"].astype(np.float64), 1e-30)
    labels = before.tensors["labels"].astype(np.float32)
    return torch.from_numpy(images.copy()), torch.from_numpy(labels), torch.from_numpy(np.log(weights)).float()
