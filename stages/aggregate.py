"""`aggregate`: the messages of a round become the next model, the aggregated update or the server's state.

Memory is one model, whatever the number of clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from artifacts import keys, lineage, tensors_file
from artifacts.errors import InputError, UsageError
from artifacts.kinds import Custody
from artifacts.metadata import InputRef, Metadata
from artifacts.places import is_leaving
from artifacts.publish import prepare
from artifacts.tensors_file import TensorArtifact
from stages.messages import STATES, UPDATES, check_claims, exchanged, read_update
from stages.methods import feddyn
from stages.methods.averaging import WeightedMean, apply_update
from stages.methods.fednova import NormalisedMean
from stages.methods.params.aggregation import Aggregation
from stages.model_file import check_fits, read_model, round_of
from stages.next_model import for_clients, record_participants, with_past
from stages.private_updates import Bounds, add_noise
from stages.progress import Report, Summary, silent
from stages.spending import key_of
from stages.verify import check_same, require_signed
from stages.versions import versions

Result = Literal["model", "update", "state"]
Tensors = Mapping[str, NDArray[Any]]


def aggregate(
    model: Path,
    messages: Sequence[Path],
    out: Path,
    *,
    params: Aggregation,
    result: Result = "model",
    state: Path | None = None,
    state_out: Path | None = None,
    before: Path | None = None,
    key: Path | None = None,
    signed_by: Path | None = None,
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """x − η_g Σ a_k Δ_k over the messages of this round; nothing is written if any of them is refused.

    `state` is the server's state of the round before, absent in the first. A model that leaves (written into an
    outbox) does not say who took part; that stands in the server's private folder, as `<name>.lineage.json`. Under
    `dp-mean` the server's `key` makes the noise, and the ledger beside it is charged; `before` is the model of the
    round before, from which a public mask is made. With the roster `signed_by` every message must be signed.
    """
    custody: Custody = "downlink" if is_leaving(out) else "server"
    if result == "update" and custody == "downlink":
        raise UsageError(f"{out}: an aggregated update stays with the server; encode it, or aggregate --as model.")
    prepare(out, custody, force=force)
    _check_options(params, result, state, state_out, force=force)
    signed = require_signed(messages, signed_by) if signed_by is not None else None
    start = read_model(model)
    kept_before = _read_state(state, start)
    ordered = _check_headers(messages, start, params, states=result == "state")
    noised = params.rule == "dp-mean"
    bounds = Bounds(params, start, before, exchanged(start)) if noised else None
    gathered = _gather(ordered, start, params, bounds, states=result == "state", report=report)
    if signed is not None:
        check_same([reference.sha256 for reference in gathered.references], signed)
    share = len(ordered) / (params.clients or len(ordered) or 1)
    if share > 1:
        raise InputError(f"--clients {params.clients}, but {len(ordered)} clients sent something.")
    kept: Tensors = {}
    metadata = Metadata(
        kind=result,
        stage="aggregate",
        method=params.rule,
        custody=custody,
        round=round_of(start) + 1,
        params={**(start.metadata.params if result == "model" else {}), **params.to_json()},
        inputs=(lineage.by_digest(start, "model"), *gathered.references),
        disclosures=tuple(sorted(gathered.disclosures - {"num_examples", "local_steps"})),
        simulation=gathered.simulation,
        versions=versions("numpy", *(["scipy"] if noised else [])),  # it makes the noise
    )
    if bounds is not None:
        gathered.mean, events = add_noise(gathered.mean, bounds, params, metadata, key_of(out, key))
        # What the clients sent is covered by the noise. Whether the server's key is a simulation's does not depend on
        # them; whether a message was would tell that there was one.
        simulation = keys.read(key_of(out, key)).simulation or start.metadata.simulation
        metadata = replace(metadata, privacy=events, disclosures=(), simulation=simulation)
    if noised or result == "model":
        metadata = with_past(metadata, start.metadata)
    if custody == "downlink":
        metadata = for_clients(metadata, start, out, key)
    if result == "state":
        tensors = _next_state(gathered.mean, kept_before, share)
    elif params.rule == "feddyn":
        tensors, kept = _feddyn(start, gathered.mean, kept_before, params, share)
    elif result == "model":
        tensors = apply_update(start.tensors, gathered.mean, rate=params.server_rate)
    else:
        tensors = {name: (params.server_rate * change).astype(np.float32) for name, change in gathered.mean.items()}
    _check_overflow(tensors)
    _check_overflow(kept)
    if custody == "downlink":
        record_participants(out, gathered.references)
    if state_out is not None:
        about = replace(metadata, kind="state", custody="server", params=params.to_json())
        tensors_file.write(state_out, kept, about, force=force)
    digest = tensors_file.write(out, tensors, metadata, force=force)
    return {
        "out": str(out),
        "sha256": digest,
        "kind": result,
        "round": metadata.round,
        "messages": len(ordered),
        "bytes_in": sum(path.stat().st_size for path in ordered),
    }


@dataclass
class _Gathered:
    """What the messages of a round add up to."""

    mean: Tensors
    references: list[InputRef] = field(default_factory=list)
    disclosures: set[str] = field(default_factory=set)
    simulation: bool = False


def _gather(
    ordered: Sequence[Path],
    model: TensorArtifact,
    params: Aggregation,
    bounds: Bounds | None,
    *,
    states: bool,
    report: Report,
) -> _Gathered:
    """Read each message once, whole, and add it to the mean; with `bounds`, clipped, to the sum."""
    if bounds is not None:
        return _gather_sum(ordered, model, bounds, report)
    plain, normalised = WeightedMean(), NormalisedMean(params.momentum or 0.0)
    gathered = _Gathered({})
    for number, path in enumerate(ordered, start=1):
        message = read_update(path, model, states=states)
        counts = message.metadata.counts
        weight = counts["num_examples"] if params.weights == "examples" else 1
        try:
            if params.rule == "fednova":
                normalised.add(message.tensors, weight, counts["local_steps"])
            else:
                plain.add(message.tensors, weight)
        except ValueError as error:
            raise InputError(f"{path} cannot be averaged: {error}. Leave it out.") from error
        gathered.references.append(lineage.by_digest(message, message.metadata.kind))
        gathered.disclosures |= set(message.metadata.disclosures)
        gathered.simulation |= message.metadata.simulation
        report(number, len(ordered), path.name)
    gathered.mean = normalised.mean() if params.rule == "fednova" else plain.mean()
    return gathered


def _gather_sum(ordered: Sequence[Path], model: TensorArtifact, bounds: Bounds, report: Report) -> _Gathered:
    """Σ of clipped updates, in float64, over whoever took part: possibly nobody (privacy contract, rule 12).

    The server clips again: a guarantee does not rest on what a client says of itself.
    """
    total = {name: np.zeros(tensor.shape) for name, tensor in exchanged(model).items()}
    gathered = _Gathered(total)
    for number, path in enumerate(ordered, start=1):
        message = read_update(path, model)
        if message.metadata.privacy:
            raise InputError(f"{path} carries noise of its own: average it with --rule mean.")
        for name, change in bounds.apply(message.tensors).items():
            total[name] += change
        gathered.references.append(lineage.by_digest(message, "message"))
        gathered.simulation |= message.metadata.simulation
        report(number, len(ordered), path.name)
    return gathered


def _check_overflow(tensors: Tensors) -> None:
    """Finite messages can have a sum that is not; nothing is written then."""
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise InputError(f"the aggregate overflows in tensor {name!r}: a message holds huge values. Leave it out.")


def _next_state(mean: Tensors, before: TensorArtifact | None, share: float) -> Tensors:
    """SCAFFOLD's c ← c + |S|/N · mean Δc (Algorithm 1, line 17)."""
    zero = np.zeros(())
    earlier = before.tensors if before is not None else {}
    return {name: (earlier.get(name, zero) + share * change).astype(np.float32) for name, change in mean.items()}


def _feddyn(
    model: TensorArtifact, mean: Tensors, before: TensorArtifact | None, params: Aggregation, share: float
) -> tuple[Tensors, Tensors]:
    # The running averages of batch norm are no parameters: FedDyn keeps no h for them.
    h = (
        before.tensors
        if before is not None
        else {n: np.zeros(t.shape) for n, t in mean.items() if ".running_" not in n}
    )
    return feddyn.server_step(model.tensors, mean, h, share=share, alpha=params.dynamic_weight)


def _check_options(
    params: Aggregation, result: Result, state: Path | None, state_out: Path | None, *, force: bool
) -> None:
    dynamic = params.rule == "feddyn"
    if dynamic and result != "model":
        raise UsageError("--rule feddyn gives a model: leave out --as.")
    if result == "state" and (params.rule != "mean" or params.weights != "uniform" or params.clients is None):
        raise UsageError("--as state needs --clients N, and neither --rule nor --weights.")
    if state is not None and not (dynamic or result == "state"):
        raise UsageError("--state goes with --rule feddyn or --as state.")
    if (state_out is not None) != dynamic:
        raise UsageError("--state-out goes with --rule feddyn, and is needed there.")
    if state_out is not None:
        prepare(state_out, "server", force=force)


def _read_state(path: Path | None, model: TensorArtifact) -> TensorArtifact | None:
    if path is None:
        return None
    kept = tensors_file.read(path, kind="state")
    check_fits(kept.tensors, model.tensors, path, partial=True)
    if kept.metadata.round != round_of(model):
        raise InputError(f"{path} is of round {kept.metadata.round}, but {model.path} of round {round_of(model)}.")
    return kept


def _check_headers(messages: Sequence[Path], model: TensorArtifact, params: Aggregation, *, states: bool) -> list[Path]:
    """Refuse by name whatever does not belong, before any payload is read; sorted by client, so order is free."""
    if not messages and params.rule != "dp-mean":  # an empty Poisson sample is legal: it releases noise
        raise UsageError("aggregate needs at least one message.")
    needed = {"num_examples": params.weights == "examples", "local_steps": params.rule == "fednova"}
    owners: dict[str, Path] = {}
    shares: dict[Path, Any] = {}
    for path in messages:
        metadata, specs = tensors_file.read_header(path)
        check_claims(path, metadata, model, kinds=STATES if states else UPDATES)
        if metadata.kind != "proxy":  # what a proxy stands for is seen when it is decoded
            check_fits({spec.name: spec for spec in specs}, exchanged(model), path, partial=states)
        owner = metadata.client or str(path)
        if owner in owners:
            raise InputError(f"{path} and {owners[owner]} are both from client {owner!r}: a client counts once.")
        for count, wanted in needed.items():
            if wanted and not metadata.counts.get(count):
                flag = "--tell-examples" if count == "num_examples" else "--tell-steps"
                raise InputError(f"{path} does not declare its {count}. Encode it with {flag}.")
        least = metadata.params.get("least_clients") if metadata.privacy else None
        shares[path] = None if least is None else metadata.params
        if isinstance(least, int) and len(messages) < least:
            raise InputError(
                f"{path} carries a share of noise that is complete with {least} messages; {len(messages)} are here. "
                "Wait for more: with fewer nothing may be released."
            )
        owners[owner] = path
    _check_shares(shares)
    return [owners[owner] for owner in sorted(owners)]


def _check_shares(shares: Mapping[Path, Any]) -> None:
    """A share of noise counts on the others': each message carries one, of the same size, in the same places."""
    counting = next((path for path, params in shares.items() if params is not None), None)
    odd = next((path for path, params in shares.items() if counting and params != shares[counting]), None)
    if odd is not None:
        raise InputError(
            f"{counting} carries a share of the round's noise, but {odd} none like it: together they would hide less "
            "than each claims. Encode all messages with the same parameters."
        )
