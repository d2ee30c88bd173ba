"""`aggregate`: the messages of a round become the next model, or the aggregated update. Memory is one model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from artifacts import lineage, tensors_file
from artifacts.errors import InputError, UsageError
from artifacts.kinds import Custody
from artifacts.metadata import InputRef, Metadata
from artifacts.places import PRIVATE, in_outbox
from artifacts.publish import prepare
from artifacts.tensors_file import TensorArtifact
from stages.messages import check_claims, read_update
from stages.methods.averaging import WeightedMean, apply_update
from stages.methods.params.aggregation import Aggregation
from stages.model_file import read_model, round_of
from stages.progress import Report, Summary, silent
from stages.versions import versions


def aggregate(
    model: Path,
    messages: Sequence[Path],
    out: Path,
    *,
    params: Aggregation,
    result: Literal["model", "update"] = "model",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """x − η_g Σ a_k Δ_k over the messages of this round; nothing is written if any of them is refused.

    A model that leaves (written into an outbox) does not say who took part; that stands in the server's private
    folder, as `<name>.lineage.json`.
    """
    custody: Custody = "downlink" if in_outbox(out) else "server"
    prepare(out, custody, force=force)
    start = read_model(model)
    ordered = _check_headers(messages, start, params)
    mean = WeightedMean()
    references: list[InputRef] = []
    simulation = False
    disclosures: set[str] = set()
    for number, path in enumerate(ordered, start=1):
        message = read_update(path, start)
        weight = message.metadata.counts["num_examples"] if params.weights == "examples" else 1
        if not weight:
            raise InputError(f"{path} declares no examples, so it has no weight. Leave it out.")
        mean.add(message.tensors, weight)
        references.append(lineage.by_digest(message, message.metadata.kind))
        simulation |= message.metadata.simulation
        disclosures |= set(message.metadata.disclosures)
        report(number, len(ordered), path.name)
    metadata = Metadata(
        kind=result,
        stage="aggregate",
        method="mean",
        custody=custody,
        round=round_of(start) + 1,
        params={**(start.metadata.params if result == "model" else {}), **params.to_json()},
        inputs=(lineage.by_digest(start, "model"), *(() if custody == "downlink" else references)),
        disclosures=tuple(sorted(disclosures - {"num_examples"})),
        simulation=simulation,
        versions=versions("numpy"),
    )
    if custody == "downlink":
        # Written before the model: a model in an outbox always has its record.
        private = out.absolute().parent.parent / PRIVATE
        lineage.write_record(private / f"{out.stem}.lineage.json", out.name, references)
    average = mean.mean()
    if result == "model":
        tensors = apply_update(start.tensors, average, rate=params.server_rate)
    else:
        tensors = {name: (params.server_rate * t).astype("float32") for name, t in average.items()}
    try:
        digest = tensors_file.write(out, tensors, metadata, force=force)
    except ValueError as error:
        raise InputError(f"the aggregate overflows: {error}. A message holds huge values.") from error
    return {
        "out": str(out),
        "sha256": digest,
        "kind": result,
        "round": metadata.round,
        "messages": len(ordered),
        "bytes_in": sum(path.stat().st_size for path in ordered),
    }


def _check_headers(messages: Sequence[Path], model: TensorArtifact, params: Aggregation) -> list[Path]:
    """Refuse by name whatever does not belong, before any payload is read; sorted by client, so order is free."""
    if not messages:
        raise UsageError("aggregate needs at least one message.")
    owners: dict[str, Path] = {}
    for path in messages:
        metadata, _ = tensors_file.read_header(path)
        check_claims(path, metadata, model)
        owner = metadata.client or str(path)
        if owner in owners:
            raise InputError(f"{path} and {owners[owner]} are both from client {owner!r}: a client counts once.")
        if params.weights == "examples" and "num_examples" not in metadata.counts:
            raise InputError(
                f"{path} does not declare its number of examples. Encode it with --tell-examples, "
                "or aggregate with --weights uniform."
            )
        owners[owner] = path
    return [owners[owner] for owner in sorted(owners)]
