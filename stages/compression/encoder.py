"""`encode --method quantised|topk|lowrank`: a client's update in fewer bytes, by plain means that hide nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from artifacts.disclosures import COUNTS
from artifacts.errors import InputError
from artifacts.formats import any_file, tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.identity import keys
from artifacts.identity.keys import Key
from artifacts.kinds import Custody
from artifacts.ledgers import lineage
from artifacts.ledgers.gate import destination
from artifacts.metadata import Metadata
from artifacts.places import client_of
from artifacts.publish import prepare
from stages.charging.spending import key_of, refuse_uncovered
from stages.compression.file import Tensors, compress, expand
from stages.execution.key_streams import key_seeds
from stages.execution.progress import Summary
from stages.execution.versions import versions
from stages.methods.compression import flat
from stages.methods.params.compression import Compression
from stages.methods.params.encoding import Encoder
from stages.models.file import check_fits, read_model, round_of
from stages.proxies.encoder import read_own_update


def encode_compressed(
    model: Path,
    update: Path,
    out: Path,
    *,
    params: Compression,
    previous: Path | None = None,
    error_out: Path | None = None,
    key: Path | None = None,
    client: str | None = None,
    force: bool = False,
) -> Summary:
    """Write the compressed update into an outbox. The summary says the cosine that the receiver will get.

    With `topk`, `error_out` is a private file for what was left out, and `previous` that of the round before, which is
    added to the update: error feedback.
    """
    prepare(out, "outbound")
    if error_out is not None:
        prepare(error_out, "private")
    name = client_of(out, client)
    start = read_model(model)
    change = read_own_update(update, start, name)
    before = None if previous is None else _read_error(previous, change, name)
    key = key_of(out, key)
    secret = keys.read(key)
    metadata = about_sent(params, name, start, change, before, secret)
    any_file.refuse_other(out, metadata, force=force)
    refuse_uncovered(key, metadata.privacy, metadata.disclosures, [update])
    owed = _added(change.tensors, before)
    seed = key_seeds(secret, {"client": name, "round": metadata.round, "model": start.sha256})("compression")
    sent = compress(owed, params, np.random.default_rng(seed))
    found = expand(sent, params, {tensor: value.shape for tensor, value in owed.items()})
    cosine = _cosine(found, owed)
    if not cosine > 0:  # also where it is not a number
        raise InputError(f"{update} cannot be encoded: what arrives of it has a cosine of {cosine:.3f}.")
    if error_out is not None:
        left = {tensor: value - found[tensor] for tensor, value in owed.items()}
        tensors_file.write(error_out, left, _of_error(metadata, start, change, before), force=force)
    digest = tensors_file.write(out, sent, metadata, force=force)
    return {
        "out": str(out),
        "sha256": digest,
        "bytes": destination(out).stat().st_size,
        "client": name,
        "round": metadata.round,
        "cosine": round(cosine, 6),
        "disclosures": list(metadata.disclosures),
    }


def _added(update: Tensors, before: TensorArtifact | None) -> dict[str, np.ndarray]:
    if before is None:
        return {name: value.astype(np.float32) for name, value in update.items()}
    return {name: value + before.tensors[name] for name, value in update.items()}


def _cosine(found: Tensors, wanted: Tensors) -> float:
    a, b = flat(found).astype(np.float64), flat(wanted).astype(np.float64)
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths > 0 else 0.0


def _read_error(path: Path, update: TensorArtifact, client: str) -> TensorArtifact:
    """What this client's topk of the round before left out."""
    before = tensors_file.read(path, kind="state")
    if (before.metadata.method, before.metadata.client) != ("topk", client):
        raise InputError(f"{path} is not what a topk message of client {client!r} left out.")
    if before.metadata.round is None or before.metadata.round >= (update.metadata.round or 0):
        raise InputError(f"{path} is of round {before.metadata.round}; an earlier one than the update's is needed.")
    check_fits(before.tensors, update.tensors, path)
    return before


def about_sent(
    params: Encoder,
    client: str,
    model: TensorArtifact,
    change: TensorArtifact,
    before: TensorArtifact | None,
    secret: Key,
    *libraries: str,
    custody: Custody = "outbound",
) -> Metadata:
    """What the file of a client's update says of itself; `libraries` besides numpy decide its bytes.

    One that leaves names its sources by commitments; one that stays, for `secagg mask`, by their digests.
    """
    number = round_of(model) + 1
    # What an earlier update left behind brings with it what that one cost, and what it disclosed without noise.
    sources = [change, *([before] if before is not None else [])]
    events = [event for source in sources for event in source.metadata.privacy]
    disclosed = {word for source in sources for word in source.metadata.disclosures}
    if not all(source.metadata.privacy for source in sources):
        disclosed.add("update")
    context = {"stage": "encode", "client": client, "round": number, "params": params.to_json()}
    named = [(change, "update"), *([(before, "previous")] if before is not None else [])]
    return Metadata(
        kind=params.kind,
        stage="encode",
        method=params.method,
        custody=custody,
        client=client,
        round=number,
        params=params.to_json(),
        inputs=(
            lineage.by_digest(model, "model"),
            *(
                lineage.for_outbound(source, role, key=secret, context=context)
                if custody == "outbound"
                else lineage.by_digest(source, role)
                for source, role in named
            ),
        ),
        privacy=tuple(event for number, event in enumerate(events) if event not in events[:number]),
        disclosures=tuple(sorted(disclosed - COUNTS)),
        simulation=secret.simulation or any(source.metadata.simulation for source in sources),
        versions=versions("numpy", *libraries),
    )


def _of_error(sent: Metadata, model: TensorArtifact, change: TensorArtifact, before: TensorArtifact | None) -> Metadata:
    return Metadata(
        kind="state",
        stage="encode",
        method=sent.method,
        custody="private",
        client=sent.client,
        round=sent.round,
        params=sent.params,
        inputs=(
            lineage.by_digest(model, "model"),
            lineage.by_digest(change, "update"),
            *([lineage.by_digest(before, "previous")] if before is not None else []),
        ),
        privacy=sent.privacy,
        disclosures=sent.disclosures,
        simulation=sent.simulation,
        versions=sent.versions,
    )
