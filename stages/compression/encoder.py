"""`encode --method quantised|topk|lowrank`: a client's update in fewer bytes, by plain means that hide nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from artifacts.errors import InputError
from artifacts.formats import tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.ledgers import lineage
from artifacts.metadata import Metadata
from artifacts.publish import prepare
from stages.compression.file import Tensors, compress, expand
from stages.execution.key_streams import key_seeds
from stages.execution.progress import Summary
from stages.methods.compression import flat
from stages.methods.params.compression import Compression
from stages.models.file import check_fits
from stages.updates.client import Outgoing


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
    made = Outgoing.read(model, update, out, kind="update", custody="outbound", key=key, client=client)
    if error_out is not None:
        prepare(error_out, "private")
    if previous is not None:
        made = replace(made, earlier=_read_error(previous, made.change, made.client))
    metadata = made.described(params, disclosed=[])
    made.check(metadata, force=force)
    owed = _added(made.change.tensors, made.earlier)
    context = {"client": made.client, "round": metadata.round, "model": made.start.sha256}
    seed = key_seeds(made.secret, context)("compression")
    sent = compress(owed, params, np.random.default_rng(seed))
    found = expand(sent, params, {tensor: value.shape for tensor, value in owed.items()})
    cosine = _cosine(found, owed)
    if not cosine > 0:  # also where it is not a number
        raise InputError(f"{update} cannot be encoded: what arrives of it has a cosine of {cosine:.3f}.")
    if error_out is not None:
        left = {tensor: value - found[tensor] for tensor, value in owed.items()}
        tensors_file.write(error_out, left, _of_error(metadata, made), force=force)
    return made.write(sent, metadata, force=force, cosine=round(cosine, 6))


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


def _of_error(sent: Metadata, made: Outgoing) -> Metadata:
    return Metadata(
        kind="state",
        stage="encode",
        method=sent.method,
        custody="private",
        client=sent.client,
        round=sent.round,
        params=sent.params,
        inputs=(
            lineage.by_digest(made.start, "model"),
            lineage.by_digest(made.change, "update"),
            *([lineage.by_digest(made.earlier, "previous")] if made.earlier is not None else []),
        ),
        privacy=sent.privacy,
        disclosures=sent.disclosures,
        simulation=sent.simulation,
        versions=sent.versions,
    )
