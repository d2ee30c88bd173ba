"""The rules of `aggregate` that average: messages become the next model, the mean update or the server's state.

Memory is one model, whatever the number of clients.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from artifacts.disclosures import COUNTS
from artifacts.errors import InputError, UsageError
from artifacts.formats import any_file, tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.identity import keys
from artifacts.kinds import KINDS, Custody
from artifacts.ledgers import lineage
from artifacts.metadata import InputRef, Metadata
from artifacts.places import is_leaving
from artifacts.publish import prepare
from stages.charging.spending import key_of
from stages.charging.updates import Bounds, add_noise
from stages.execution.progress import Report, Summary, silent
from stages.methods.params.aggregation import Averaging, DpMeanRule, ServerStep
from stages.methods.params.client_privacy import NEXT_CLIP
from stages.models.file import check_fits, read_fitting, read_model, round_of
from stages.models.messages import (
    STATES,
    UPDATES,
    check_claims,
    exchanged,
    is_noised,
    made_by,
    read_update,
    refuse_brought,
    refuse_one_share,
)
from stages.models.next_model import events_of, for_clients, record_participants, recording, with_past
from stages.nets.params import network_params
from stages.verify import check_same, require_signed

Result = Literal["model", "update"]
Tensors = Mapping[str, NDArray[Any]]


def average(
    model: Path,
    messages: Sequence[Path],
    out: Path,
    *,
    params: Averaging,
    result: Result | None = None,
    state: Path | None = None,
    state_out: Path | None = None,
    before: Path | None = None,
    key: Path | None = None,
    signed_by: Path | None = None,
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """The mean of the messages of this round, and what the rule makes of it; if one is refused, nothing is written.

    `state` is the server's state of the round before, absent in the first. A model that leaves (written into an
    outbox) does not say who took part; the server's private folder does, in `<name>.lineage.json`. Under noise the
    server's `key` makes it, and the ledger beside the key is charged; `before` is the model of the round before, from
    which a public mask is made. With the roster `signed_by` every message must be signed.
    """
    kind = result or params.writes[0]
    custody: Custody = "downlink" if is_leaving(out) else "server"
    if kind == "update" and custody == "downlink":
        raise UsageError(f"{out}: an aggregated update stays with the server; encode it, or aggregate --as model.")
    if kind == "update" and isinstance(params, DpMeanRule) and params.adaptive_clip:
        raise UsageError("--adaptive-clip: the next clip is stated in the next model; leave out --as update.")
    prepare(out, custody)
    if "state_out" in params.takes and state_out is None:
        raise UsageError(f"--rule {params.rule} needs --state-out.")
    if state_out is not None:
        prepare(state_out, "server")
    signed = require_signed(messages, signed_by) if signed_by is not None else None
    start = read_model(model)
    kept_before = _read_state(state, start)
    ordered = _check_headers(messages, start, params)
    bounds = Bounds(params, start, before, exchanged(start)) if isinstance(params, DpMeanRule) else None
    gathered = _gather(ordered, start, params, bounds, report=report)
    if signed is not None:
        check_same([reference.sha256 for reference in gathered.references], signed)
    share = _share(params, len(ordered))
    metadata = Metadata(
        kind=kind,
        stage="aggregate",
        method=params.rule,
        custody=custody,
        round=round_of(start) + 1,
        params={**(network_params(start.metadata.params) if kind == "model" else {}), **params.to_json()},
        inputs=(lineage.by_digest(start, "model"), *gathered.references),
        privacy=events_of(gathered.events),
        disclosures=tuple(sorted(gathered.disclosures - COUNTS)),
        simulation=gathered.simulation,
        # Under noise nothing shows which messages there were, not even of what kind.
        **(made_by([], "scipy") if params.noised else made_by([reference.kind for reference in gathered.references])),
    )
    planned = replace(metadata, inputs=metadata.inputs[:1]) if custody == "downlink" else metadata
    any_file.refuse_other(out, planned, force=force, results=[NEXT_CLIP])
    if bounds is not None and isinstance(params, DpMeanRule):
        noised = add_noise(gathered.mean, gathered.within, bounds, params, metadata, key_of(out, key))
        gathered.mean = noised.mean
        if noised.next_clip is not None:
            metadata = replace(metadata, params={**metadata.params, NEXT_CLIP: noised.next_clip})
        # What the clients sent is covered by the noise. Whether the server's key is a simulation's does not depend on
        # them; whether a message was would disclose that there was one.
        simulation = keys.read(key_of(out, key)).simulation or start.metadata.simulation
        metadata = replace(metadata, privacy=noised.events, disclosures=(), simulation=simulation)
    if params.noised or kind == "model":
        metadata = with_past(metadata, start.metadata)
    if custody == "downlink":
        metadata = for_clients(metadata, start, out, key)
    tensors: Tensors
    kept: Tensors = {}
    if kind == "update":
        # The mean itself, scaled: what the rule would take off the model.
        rate = params.server_rate if isinstance(params, ServerStep) else 1.0
        tensors = {name: (rate * change).astype(np.float32) for name, change in gathered.mean.items()}
    else:
        tensors, kept = params.result(start.tensors, gathered.mean, kept_before, share)
    _check_overflow(tensors)
    _check_overflow(kept)
    leaves = custody == "downlink"
    with recording(out) if leaves else contextlib.nullcontext():
        if leaves:
            record_participants(out, gathered.references, force=force)
        if state_out is not None:
            about = replace(metadata, kind="state", custody="server", params=params.to_json())
            tensors_file.write(state_out, kept, about, force=force)
        digest = tensors_file.write(out, tensors, metadata, force=force)
    return {
        "out": str(out),
        "sha256": digest,
        "kind": kind,
        "round": metadata.round,
        "messages": len(ordered),
        "bytes_in": sum(path.stat().st_size for path in ordered),
    }


@dataclass
class _Gathered:
    """What the messages of a round add up to."""

    mean: Tensors
    references: list[InputRef] = field(default_factory=list)
    events: list[Sequence[Mapping[str, Any]]] = field(default_factory=list)
    disclosures: set[str] = field(default_factory=set)
    simulation: bool = False
    within: int = 0  # of the updates, those that were not clipped


def _gather(
    ordered: Sequence[Path], model: TensorArtifact, params: Averaging, bounds: Bounds | None, *, report: Report
) -> _Gathered:
    """Read each message once, whole, and add it to the mean; with `bounds`, clipped, to the sum."""
    if bounds is not None:
        return _gather_sum(ordered, model, bounds, report)
    mean = params.gathering()
    gathered = _Gathered({})
    for number, path in enumerate(ordered, start=1):
        message = read_update(path, model, states=_of_states(params))
        try:
            params.add(mean, message.tensors, message.metadata.counts)
        except ValueError as error:
            raise InputError(f"{path} cannot be averaged: {error}. Leave it out.") from error
        gathered.references.append(lineage.by_digest(message, message.metadata.kind))
        gathered.disclosures |= set(message.metadata.disclosures)
        gathered.events.append(message.metadata.privacy)
        gathered.simulation |= message.metadata.simulation
        report(number, len(ordered), path.name)
    gathered.mean = mean.mean()
    return gathered


def _gather_sum(ordered: Sequence[Path], model: TensorArtifact, bounds: Bounds, report: Report) -> _Gathered:
    """Σ of clipped updates, in float64, over those who took part: possibly nobody (privacy contract, rule 12).

    The server clips again: a guarantee does not rest on what a client says of itself.
    """
    total = {name: np.zeros(tensor.shape) for name, tensor in exchanged(model).items()}
    gathered = _Gathered(total)
    for number, path in enumerate(ordered, start=1):
        message = read_update(path, model)
        if is_noised(message.metadata):
            raise InputError(f"{path} carries noise of its own: average it with --rule mean.")
        refuse_brought(path, message.metadata)
        bounded = bounds.apply(message.tensors)
        for name, change in bounded.items():
            total[name] += change
        gathered.within += bounds.adapts and bounds.is_within(bounded)
        gathered.references.append(lineage.by_digest(message, "message"))
        gathered.simulation |= message.metadata.simulation
        report(number, len(ordered), path.name)
    return gathered


def _check_overflow(tensors: Tensors) -> None:
    """Finite messages can have a sum that is not; nothing is written then."""
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise InputError(f"the aggregate overflows in tensor {name!r}: a message holds huge values. Leave it out.")


def _of_states(params: Averaging) -> bool:
    return params.reads == "state"


def _share(params: Averaging, present: int) -> float:
    """|S|/N, for rules that know the number of all clients."""
    clients: int | None = getattr(params, "clients", None)
    if clients is not None and present > clients:
        raise InputError(f"--clients {clients}, but {present} clients sent something.")
    return present / (clients or present)


def _read_state(path: Path | None, model: TensorArtifact) -> Tensors | None:
    if path is None:
        return None
    kept = read_fitting(path, model.tensors, kind="state", partial=True)
    if kept.metadata.round != round_of(model):
        raise InputError(f"{path} is of round {kept.metadata.round}, but {model.path} of round {round_of(model)}.")
    return kept.tensors


def _check_headers(messages: Sequence[Path], model: TensorArtifact, params: Averaging) -> list[Path]:
    """Refuse by name whatever does not belong, before any payload is read; sorted by client, so order is free."""
    if not messages and not params.noised:  # an empty Poisson sample is legal: it releases noise
        raise UsageError("aggregate needs at least one message.")
    needed, states = params.needed_counts(), _of_states(params)
    owners: dict[str, Path] = {}
    shares: dict[Path, Any] = {}
    for path in messages:
        metadata, specs = tensors_file.read_header(path)
        check_claims(path, metadata, model, kinds=STATES if states else UPDATES)
        if not KINDS[metadata.kind].encoded:  # what an encoded one holds is seen when it is decoded
            check_fits({spec.name: spec for spec in specs}, exchanged(model), path, partial=states)
        owner = metadata.client or str(path)
        if owner in owners:
            raise InputError(f"{path} and {owners[owner]} are both from client {owner!r}: a client counts once.")
        for count, flag in needed.items():
            if not metadata.counts.get(count):
                raise InputError(f"{path} does not declare its {count}. Encode it with {flag}.")
        least = metadata.params.get("least_clients") if metadata.privacy else None
        shares[path] = None if least is None else metadata.params
        if least is None:
            refuse_one_share(path, metadata)  # it does not say how many others it needs
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
