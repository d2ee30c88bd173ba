"""`encode --method tofu`: an update becomes the gradient of a few images. For clients and server.

That obscures the update and makes it smaller. It is no guarantee, and the norms of the layers are sent as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError, UsageError
from artifacts.formats import any_file, tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.identity import keys
from artifacts.identity.keys import Key
from artifacts.ledgers import lineage
from artifacts.metadata import InputRef, Metadata
from artifacts.places import Place, client_of
from artifacts.publish import prepare
from stages.charging.spending import key_of, refuse_uncovered
from stages.encode import encode as send_whole
from stages.execution.key_streams import key_seeds
from stages.execution.progress import Report, Summary, silent
from stages.execution.versions import versions
from stages.methods.params.encoding import DeltaEncoding
from stages.methods.params.public_images import PublicImages
from stages.methods.params.tofu import TofuEncoding
from stages.models.file import network_of, read_fitting, read_model, round_of, to_module
from stages.models.messages import is_noised
from stages.nets.params import InputShape, Network
from stages.proxies.file import carried, seen_pixels, sent_averages, sent_pixels
from stages.updates.sent import send

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.execution.torch_setup import Device

# What the decoder may get less than the search measured, for the order of a sum.
_LOST = 1e-4


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
    will get, measured by the receiver's own decoder on the tensors that are written. A proxy below `least_cosine`, or
    below what the search measured, is not written: `fallback` says what happens instead.
    """
    if previous is not None and params.init != "previous":
        raise UsageError("--previous goes with --init previous.")
    place = Place.of(out)
    at_server = place is not None and place.is_server
    prepare(out, "downlink" if at_server else "outbound")
    name = None if at_server else client_of(out, client)
    start = read_model(model)
    network, shape = network_of(start.metadata, model)
    change = read_own_update(update, start, name)
    key = key_of(out, key)
    secret = keys.read(key)
    before = None if previous is None else _read_previous(previous, name)
    metadata = _about(params, name, start, change, before, secret)
    any_file.refuse_other(out, metadata, force=force)
    if metadata.disclosures:
        refuse_uncovered(key, metadata.privacy, metadata.disclosures, [update])

    import torch

    from stages.execution.torch_setup import arithmetic, set_up
    from stages.methods.tofu import encode
    from stages.nets.state import trained

    where = set_up(device)
    metadata = replace(metadata, arithmetic=arithmetic(where))
    module = to_module(start, where)
    check_network(params, module, network, shape, images_move=True)
    wanted = {parameter: torch.from_numpy(change.tensors[parameter].copy()).to(where) for parameter in trained(module)}
    seed = key_seeds(secret, {"client": name, "round": metadata.round, "model": start.sha256})("first proxy")
    first = _first(params, shape, seed) if before is None else _earlier(before, params, shape, seed)
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
    except ValueError as error:
        raise InputError(f"{update} cannot be encoded: {error}.") from error
    sent["residuals"] = encoded.proxy.residuals.cpu().numpy()
    sent["scales"] = encoded.proxy.scales.cpu().numpy()
    cosine = arriving_cosine(carried(module, sent), wanted)
    search = encoded.cosines[-1]
    least = max(params.least_cosine, encoded.cosine - _LOST)
    if not (cosine > 0 and cosine >= least):  # also where it is not a number
        found = f"{update}: a proxy of {params.images} images decodes to a cosine of {cosine:.3f}"
        if params.fallback == "refuse" or name is None:
            raise InputError(f"{found}; the search reached {search:.3f}, --least-cosine is {params.least_cosine:g}. "
                             f"{_instead(name)}")  # fmt: skip
        full = send_whole(model, update, out, params=DeltaEncoding(), key=key, client=client, force=force)
        return {**full, "cosine": 1.0, "sent": "the full update", "reason": f"{found}."}
    return send(
        out, sent, metadata, force=force,
        cosine=round(cosine, 6), search_cosine=round(search, 6), iterations=len(encoded.cosines),
    )  # fmt: skip


def check_network(
    params: TofuEncoding | PublicImages, module: nn.Module, network: Network, shape: InputShape, *, images_move: bool
) -> None:
    """Refuse a network whose gradient cannot be differentiated again, or not in pieces where that is asked for."""
    from stages.methods.local_training import refuse_pieces
    from stages.methods.trials import try_proxy

    if params.micro_batch is not None:
        try:
            refuse_pieces(module.train())
        except ValueError as error:
            raise UsageError(f"--micro-batch: {error}.") from error
    if network.initial_weights != "module":
        return
    try:
        try_proxy(module, shape, images_move=images_move)
    except ValueError as error:
        raise UsageError(f"--method {params.method} does not work with --arch {network.arch}: {error}.") from error


def arriving_cosine(found: Mapping[str, NDArray[np.float32]], wanted: Mapping[str, Tensor]) -> float:
    """The cosine between what the receiver will decode and what was meant."""
    import torch

    from stages.methods.tofu import cosine_of

    both = ((torch.from_numpy(found[name]).flatten(), part.cpu().flatten()) for name, part in wanted.items())
    mine, meant = (torch.cat(parts) for parts in zip(*both, strict=True))
    return cosine_of(mine, meant)


def _instead(client: str | None) -> str:
    more = "Give more --images or --iterations"
    return f"{more}, or send the model itself." if client is None else f"{more}, or --fallback delta to send it whole."


def read_own_update(path: Path, model: TensorArtifact, client: str | None) -> TensorArtifact:
    """A client's own update, or one that the server aggregated, computed from this very model."""
    change = read_fitting(path, model.tensors, kind="update", partial=True)
    owner = change.metadata.client
    if owner != client:
        mine = "the server" if client is None else f"client {client!r}"
        theirs = "the server's" if owner is None else f"client {owner!r}'s"
        raise InputError(f"{path} is {theirs} update, not that of {mine}.")
    if model.metadata.custody == "private":
        raise InputError(f"{model.path} is private: a proxy that names it would disclose its digest.")
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
    private = is_noised(change.metadata)
    # Images that began as those of an earlier proxy bring with them what it cost, and what it disclosed without noise.
    events, stated = list(change.metadata.privacy), set(change.metadata.disclosures)
    if before is not None:
        events += [event for event in before.metadata.privacy if event not in events]
        stated |= set(before.metadata.disclosures)
    if client is not None and not private:
        stated |= {"derived_images", "layer_norms", "update"}
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
        disclosures=tuple(sorted(stated)),
        simulation=secret.simulation or change.metadata.simulation,
        versions=versions("torch"),
    )


def _first(params: TofuEncoding, shape: InputShape, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Step 1 of Algorithm 1: images, labels and ratios from N(0, 1); images of `residuals` are half as bright."""
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


def _earlier(
    before: TensorArtifact, params: TofuEncoding, shape: InputShape, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The images of the earlier proxy; labels and ratios begin anew."""
    import torch

    images = seen_pixels(dict(before.tensors))
    wanted = (params.images, shape.channels, shape.height, shape.width)
    if images.shape != wanted or before.tensors["residuals"].shape[1] != shape.num_classes:
        raise UsageError(f"{before.path} holds images of {list(images.shape)}; {list(wanted)} are asked for.")
    return torch.from_numpy(images.copy()), *_first(params, shape, seed)[1:]
