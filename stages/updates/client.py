"""`encode --method delta` and `state`: a client's private update, or the change of its control variates, leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.disclosures import COUNTS
from artifacts.errors import InputError, UsageError
from artifacts.formats import any_file, tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.identity import keys
from artifacts.kinds import Custody
from artifacts.ledgers import lineage
from artifacts.metadata import InputRef, Metadata
from artifacts.places import PRIVATE, client_of
from artifacts.publish import prepare
from stages.charging.spending import key_of, refuse_uncovered
from stages.charging.updates import Bounds, add_share
from stages.execution.progress import Summary
from stages.execution.versions import versions
from stages.methods.params.encoding import DeltaEncoding, Encoder, StateEncoding
from stages.models.file import check_fits, read_model, round_of
from stages.models.messages import is_noised, refuse_brought
from stages.updates.sent import send


def encode_update(
    model: Path,
    update: Path,
    out: Path,
    *,
    params: DeltaEncoding,
    before: Path | None = None,
    key: Path | None = None,
    client: str | None = None,
    force: bool = False,
) -> Summary:
    """Write the update as a message into an outbox, entered in the ledger first; or, for `secagg mask`, into private/.

    For client-level privacy the update is masked and clipped (`before` is the model of the round before, from which a
    public mask is made), and may carry a share of the round's noise.
    """
    custody: Custody = "private" if out.absolute().parent.name == PRIVATE else "outbound"
    if custody == "private" and params.adaptive_clip:
        raise UsageError("--adaptive-clip: under secure aggregation nobody sees how many updates were clipped.")
    covered = custody == "private" or params.clip_norm is not None
    made = Outgoing.read(
        model, update, out, kind="update", custody=custody, key=key, client=client, may_be_zeros=covered
    )
    counts = [*(["local_steps"] if params.tell_steps else []), *(["num_examples"] if params.tell_examples else [])]
    metadata = made.described(params, counts=_counts(made.change, counts), disclosed=counts)
    tensors: Mapping[str, NDArray[Any]] = made.change.tensors
    any_file.refuse_other(out, metadata, force=force)
    if params.noise_multiplier is not None:
        if made.private:
            raise UsageError(f"{update} is private for records already; --noise-multiplier protects whole clients.")
        refuse_brought(update, made.change.metadata)
        inputs = (lineage.by_digest(made.start, "model"), lineage.by_digest(made.change, "update"))
        bounds = Bounds(params, made.start, before, tensors)
        tensors, events = add_share(tensors, bounds, params, replace(metadata, inputs=inputs), made.key, [update])
        metadata = replace(metadata, privacy=events, disclosures=())
    elif params.clip_norm is not None or params.sparsify is not None:
        bounded = Bounds(params, made.start, before, tensors).apply(tensors)
        tensors = {tensor: value.astype(np.float32) for tensor, value in bounded.items()}
    return made.write(tensors, metadata, force=force)


def encode_state(
    model: Path,
    state: Path,
    out: Path,
    *,
    params: StateEncoding,
    previous: Path | None = None,
    key: Path | None = None,
    client: str | None = None,
    force: bool = False,
) -> Summary:
    """Write the change of the client's control variates into an outbox: its new `state` less the `previous` one."""
    made = Outgoing.read(model, state, out, kind="state", custody="outbound", key=key, client=client, previous=previous)
    # A change of control variates is the update divided by the number of steps: beside the update it discloses both.
    # Under DP the steps are a public constant, and noise covers the rest.
    metadata = made.described(params, disclosed=[] if made.private else ["local_steps"])
    tensors: Mapping[str, NDArray[Any]] = made.change.tensors
    if made.earlier is not None:
        tensors = {name: value - made.earlier.tensors[name] for name, value in tensors.items()}
    return made.write(tensors, metadata, force=force)


@dataclass(frozen=True)
class Outgoing:
    """A private update or state on its way out, with the model that it began from and the client whose it is."""

    out: Path
    custody: Custody
    client: str
    start: TensorArtifact
    change: TensorArtifact
    earlier: TensorArtifact | None
    key: Path
    secret: keys.Key

    @classmethod
    def read(
        cls,
        model: Path,
        source: Path,
        out: Path,
        *,
        kind: str,
        custody: Custody,
        key: Path | None,
        client: str | None,
        previous: Path | None = None,
        may_be_zeros: bool = False,
    ) -> Outgoing:
        """With `may_be_zeros` an update whose training diverged leaves like any other: noise or masks cover it."""
        prepare(out, custody)
        name = client_of(out, client)
        start = read_model(model)
        change = tensors_file.read(source, kind=kind)
        _check_belongs(start, change, name)
        if change.metadata.counts.get("local_steps") == 0 and not may_be_zeros:
            if change.metadata.counts.get("num_examples") == 0:
                raise InputError(
                    f"{source} was trained on no images, and only noise or masks cover that: nothing leaves."
                )
            raise InputError(
                f"{source}: training diverged to values that are not finite, so that none of its steps counts. Lower "
                "--learning-rate of train-client."
            )
        earlier = _read_previous(change, previous) if kind == "state" else None
        key = key_of(out, key)
        return cls(out, custody, name, start, change, earlier, key, keys.read(key))

    @property
    def private(self) -> bool:
        """Whether it was trained under record-level DP."""
        return is_noised(self.change.metadata)

    def described(
        self,
        params: Encoder,
        *,
        disclosed: Sequence[str],
        counts: dict[str, int] | None = None,
        libraries: Sequence[str] = (),
    ) -> Metadata:
        """The private input is named by a commitment under the client's key; what leaves without noise is declared.

        `libraries` besides numpy decide the bytes of the file.
        """
        about, round = self.change.metadata, round_of(self.start) + 1
        # What an earlier update left behind brings with it what that one cost and disclosed. A new state says itself
        # what the old one did.
        owed = self.earlier is not None and about.kind == "update"
        sources = [about, self.earlier.metadata] if owed and self.earlier is not None else [about]
        events = [event for source in sources for event in source.privacy]
        # What the update itself discloses without noise; counts leave only where they are asked for.
        beside = {word for source in sources for word in source.disclosures} - COUNTS
        if not all(is_noised(source) for source in sources):
            beside.add("update")
        context = {"stage": "encode", "client": self.client, "round": round, "params": params.to_json()}
        return Metadata(
            kind=params.kind,
            stage="encode",
            method=params.method,
            custody=self.custody,
            client=self.client,
            round=round,
            params=params.to_json(),
            counts=counts or {},
            inputs=(
                lineage.by_digest(self.start, "model"),
                *(
                    lineage.for_outbound(source, role, key=self.secret, context=context)
                    if self.custody == "outbound"
                    else lineage.by_digest(source, role)
                    for source, role in ((self.change, about.kind), (self.earlier, "previous"))
                    if source is not None
                ),
            ),
            privacy=tuple(event for number, event in enumerate(events) if event not in events[:number]),
            disclosures=tuple(sorted({*disclosed, *beside})),
            simulation=self.secret.simulation or any(source.simulation for source in sources),
            versions=versions("numpy", *libraries),
        )

    def check(self, metadata: Metadata, *, force: bool) -> None:
        """Before long work, and before anything is written beside the file: may it leave as it is described?"""
        any_file.refuse_other(self.out, metadata, force=force)
        refuse_uncovered(self.key, metadata.privacy, metadata.disclosures, [self.change.path])

    def write(self, tensors: Mapping[str, NDArray[Any]], metadata: Metadata, *, force: bool, **beside: Any) -> Summary:
        """`beside` is what the command says besides, which is not in the file."""
        self.check(metadata, force=force)
        return send(self.out, tensors, metadata, force=force, **beside)


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
        raise InputError(f"{update.path} does not say its {missing[0]}, which the message should state. Train again.")
    return {name: update.metadata.counts[name] for name in names}


def _read_previous(state: TensorArtifact, previous: Path | None) -> TensorArtifact | None:
    """The state that the new one was computed from, as the new one itself names it."""
    wanted = next(iter(state.metadata.digests_of("state")), None)
    if previous is None:
        if wanted is not None:
            raise UsageError(f"{state.path} changes an earlier state: give that one with --previous.")
        return None
    before = tensors_file.read(previous, kind="state")
    if before.sha256 != wanted:
        raise InputError(f"{previous} is not the state that {state.path} was computed from.")
    return before
