"""`encode`: a client's private update, or the change of its control variates, becomes the file that leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts import keys, lineage, tensors_file
from artifacts.errors import InputError, UsageError
from artifacts.gate import destination
from artifacts.kinds import Custody
from artifacts.metadata import InputRef, Metadata
from artifacts.places import PRIVATE, client_of
from artifacts.publish import prepare
from artifacts.tensors_file import TensorArtifact
from stages.methods.params.encoding import Encoding
from stages.model_file import check_fits, read_model, round_of
from stages.private_updates import Bounds, add_share
from stages.progress import Summary
from stages.spending import key_of, refuse_uncovered
from stages.versions import versions


def encode(
    model: Path,
    update: Path,
    out: Path,
    *,
    params: Encoding,
    previous: Path | None = None,
    before: Path | None = None,
    key: Path | None = None,
    client: str | None = None,
    force: bool = False,
) -> Summary:
    """Write the update as a message into an outbox, entered in the ledger first; or, for `secagg mask`, into private/.

    The update is named by a commitment under the client's key; what the message tells without noise is declared.
    With `--method state`, `update` is the client's new state and `previous` the one before; their difference leaves.
    For client-level privacy the update is masked and clipped (`before` is the model of the round before, from which a
    public mask is made), and may carry a share of the round's noise.
    """
    masked_later = params.method == "delta" and out.absolute().parent.name == PRIVATE
    custody: Custody = "private" if masked_later else "outbound"
    prepare(out, custody, force=force)
    name = client_of(out, client)
    start = read_model(model)
    sends_state = params.method == "state"
    change = tensors_file.read(update, kind="state" if sends_state else "update")
    _check_belongs(start, change, name)
    earlier = _read_previous(change, previous, sends_state=sends_state)
    key = key_of(out, key)
    secret = keys.read(key)
    private = bool(change.metadata.privacy)
    # A change of control variates is the update divided by the number of steps: beside the update it tells both. Under
    # DP the steps are a public constant, and noise covers the rest.
    told = ["local_steps"] if params.tell_steps or (sends_state and not private) else []
    told += ["num_examples"] if params.tell_examples else []
    # What the update itself tells without noise; counts leave only where they are asked for.
    beside = set(change.metadata.disclosures) - {"local_steps", "num_examples"}
    round = round_of(start) + 1
    context = {"stage": "encode", "client": name, "round": round, "params": params.to_json()}
    metadata = Metadata(
        kind="state" if sends_state else "message",
        stage="encode",
        method=params.method,
        custody=custody,
        client=name,
        round=round,
        params=params.to_json(),
        counts={} if sends_state else _counts(change, told),
        inputs=(
            lineage.by_digest(start, "model"),
            *(
                lineage.for_outbound(source, role, key=secret, context=context)
                if custody == "outbound"
                else lineage.by_digest(source, role)
                for source, role in ((change, change.metadata.kind), (earlier, "previous"))
                if source is not None
            ),
        ),
        privacy=change.metadata.privacy,
        disclosures=tuple(sorted({*told, *beside, *([] if private else ["update"])})),
        simulation=secret.simulation or change.metadata.simulation,
        versions=versions("numpy"),
    )
    tensors: Mapping[str, NDArray[Any]] = change.tensors
    if earlier is not None:
        tensors = {tensor: value - earlier.tensors[tensor] for tensor, value in tensors.items()}
    if params.noise_multiplier is not None:
        if private:
            raise UsageError(f"{update} is private for records already; --noise-multiplier protects whole clients.")
        told_of = replace(metadata, inputs=(lineage.by_digest(start, "model"), lineage.by_digest(change, "update")))
        bounds = Bounds(params, start, before, tensors)
        tensors, events = add_share(tensors, bounds, params, told_of, key)
        metadata = replace(metadata, privacy=events, disclosures=())
    elif params.clip_norm is not None or params.sparsify is not None:
        bounded = Bounds(params, start, before, tensors).apply(tensors)
        tensors = {tensor: value.astype(np.float32) for tensor, value in bounded.items()}
    refuse_uncovered(key, metadata.privacy, metadata.disclosures)
    digest = tensors_file.write(out, tensors, metadata, force=force)
    return {
        "out": str(out),
        "sha256": digest,
        "bytes": destination(out).stat().st_size,
        "client": name,
        "round": round,
        "disclosures": list(metadata.disclosures),
    }


def _check_belongs(model: TensorArtifact, update: TensorArtifact, client: str) -> None:
    """The update is this client's, and was trained from this very model, which the message names by its digest."""
    if model.metadata.custody == "private":
        raise InputError(f"{model.path} is private: a message that names it would tell its digest. Train from another.")
    check_fits(update.tensors, model.tensors, update.path, partial=True)
    if update.metadata.client != client:
        raise InputError(f"{update.path} is the update of client {update.metadata.client!r}, not of {client!r}.")
    if InputRef(role="model", kind="model", sha256=model.sha256) not in update.metadata.inputs:
        raise InputError(f"{update.path} was not trained from {model.path}. Give the model that it started from.")


def _counts(update: TensorArtifact, names: list[str]) -> dict[str, int]:
    missing = [name for name in names if name not in update.metadata.counts]
    if missing:
        raise InputError(f"{update.path} does not say its {missing[0]}, which the message should tell. Train again.")
    return {name: update.metadata.counts[name] for name in names}


def _read_previous(state: TensorArtifact, previous: Path | None, *, sends_state: bool) -> TensorArtifact | None:
    """The state that the new one was computed from, as the new one itself names it."""
    wanted = next((r.sha256 for r in state.metadata.inputs if r.role == "state"), None) if sends_state else None
    if previous is None:
        if wanted is not None:
            raise UsageError(f"{state.path} changes an earlier state: give that one with --previous.")
        return None
    if not sends_state:
        raise UsageError("--previous goes with --method state.")
    before = tensors_file.read(previous, kind="state")
    if before.sha256 != wanted:
        raise InputError(f"{previous} is not the state that {state.path} was computed from.")
    return before
