"""`encode`: a client's private update becomes the message that leaves."""

from __future__ import annotations

from pathlib import Path

from artifacts import keys, lineage, tensors_file
from artifacts.errors import InputError
from artifacts.metadata import InputRef, Metadata
from artifacts.places import Place, client_of
from artifacts.publish import prepare
from artifacts.tensors_file import TensorArtifact
from stages.methods.params.encoding import Encoding
from stages.model_file import check_fits, read_model, round_of
from stages.progress import Summary
from stages.versions import versions


def encode(
    model: Path,
    update: Path,
    out: Path,
    *,
    params: Encoding,
    key: Path | None = None,
    client: str | None = None,
    force: bool = False,
) -> Summary:
    """Write the update as a message into an outbox, entered in the ledger first.

    The update is named by a commitment under the client's key; what the message tells without noise is declared.
    """
    prepare(out, "outbound", force=force)
    name = client_of(out, client)
    start = read_model(model)
    change = tensors_file.read(update, kind="update")
    _check_belongs(start, change, name)
    place = Place.of(out)
    secret = keys.read(key or (place.key if place else Path("client.key")))
    disclosures = ["update"]
    counts = {}
    if params.tell_examples:
        disclosures.append("num_examples")
        counts["num_examples"] = change.metadata.counts["num_examples"]
    round = round_of(start) + 1
    context = {"stage": "encode", "client": name, "round": round, "params": params.to_json()}
    metadata = Metadata(
        kind="message",
        stage="encode",
        method=params.method,
        custody="outbound",
        client=name,
        round=round,
        params=params.to_json(),
        counts=counts,
        inputs=(
            lineage.by_digest(start, "model"),
            lineage.for_outbound(change, "update", key=secret, context=context),
        ),
        disclosures=tuple(sorted(disclosures)),
        simulation=secret.simulation,
        versions=versions("numpy"),
    )
    digest = tensors_file.write(out, change.tensors, metadata, force=force)
    return {
        "out": str(out),
        "sha256": digest,
        "bytes": out.stat().st_size,
        "client": name,
        "round": round,
        "disclosures": list(metadata.disclosures),
    }


def _check_belongs(model: TensorArtifact, update: TensorArtifact, client: str) -> None:
    """The update is this client's, and was trained from this very model."""
    check_fits(update.tensors, model.tensors, update.path, partial=True)
    if update.metadata.client != client:
        raise InputError(f"{update.path} is the update of client {update.metadata.client!r}, not of {client!r}.")
    if InputRef(role="model", kind="model", sha256=model.sha256) not in update.metadata.inputs:
        raise InputError(f"{update.path} was not trained from {model.path}. Give the model that it started from.")
