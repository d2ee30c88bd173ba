"""`secagg mask`: a client's update, in whole steps, under masks that vanish from the round's sum. Once a round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.disclosures import COUNTS
from artifacts.errors import InputError, VerificationError
from artifacts.formats import tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.identity.commitments import commit
from artifacts.kinds import KINDS
from artifacts.ledgers import lineage
from artifacts.metadata import InputRef
from stages.charging.spending import refuse_uncovered
from stages.execution.progress import Summary
from stages.execution.versions import versions
from stages.methods.params.encoding import DeltaEncoding
from stages.models.file import check_fits, read_model, round_of
from stages.models.messages import exchanged
from stages.privacy.events import output_digest
from stages.secagg import masks, shamir
from stages.secagg.member import Member, Secrets
from stages.secagg.primitives import ForgeryError, unseal
from stages.secagg.ring import Ring
from stages.secagg.session import Session, names, signed
from stages.secagg.terms import least_threshold
from stages.updates.sent import send


def mask(
    shares: Path,
    model: Path,
    update: Path,
    out: Path,
    *,
    key: Path | None = None,
    client: str | None = None,
    force: bool = False,
) -> Summary:
    """Write the masked update. `shares` is the server's list of who sent shares; these are the peers to mask with."""
    member = Member.writing(out, key=key, client=client)
    listed = tensors_file.read(shares, kind="secagg-shares")
    kept = member.secrets(listed.metadata.round)
    if not kept.cipher_secret:
        raise InputError(f"round {kept.round} is over for {member.name!r}: it has answered and keeps no secrets.")
    if kept.session is None:
        raise InputError(f"{member.name!r} sent no shares in round {kept.round}: run `secagg shares` first.")
    session = kept.opened
    received = _received(listed, session, member, kept)
    start = read_model(model)
    source = _source(update, start, session, member)
    ring, encoding = ring_of(source, session)
    vector: Any = masks.flat(source.tensors, np.dtype(np.float32))
    try:
        steps = ring.quantised(vector)
    except ValueError as error:
        raise InputError(f"{update}: {error}. Clip it (`encode --clip-norm`), or agree on a larger --range.") from error
    chosen = _present(listed, session, member, kept)
    peers = {name: session.mask_keys[name] for name in sorted({*received, *chosen} - {member.name})}
    covered = masks.masked(
        steps, client=member.name, seed=bytes.fromhex(kept.seed), secret=bytes.fromhex(kept.mask_secret),
        publics=peers, session=session.bound(start.sha256),
    )  # fmt: skip
    shapes = {name: tensor.shape for name, tensor in source.tensors.items()}
    tensors = masks.shaped(ring.signed(covered), shapes)
    # What the source discloses without noise goes with it, counts apart, which are not in the sum.
    stated = {*source.metadata.disclosures, *(() if source.metadata.privacy else ("update",))}
    about = member.about(
        "secagg-masked", "mask", session.round, session.reference, *_inputs(source, member),
        params={"peers": sorted({*peers, member.name}), "step": ring.step, "most": ring.most, "encoding": encoding},
        privacy=source.metadata.privacy, disclosures=tuple(sorted(stated - COUNTS)),
    )  # fmt: skip
    simulation = about.simulation or source.metadata.simulation
    about = replace(about, versions=versions("cryptography", "numpy"), simulation=simulation)
    about = replace(about, params=signed(about, tensors, member.identity))
    refuse_uncovered(member.key_path, about.privacy, about.disclosures, [update])
    member.once("mask", session.round, session.id, output_digest(tensors))
    present = None if session.neighbours is None else chosen
    member.keep(replace(kept, received=received, present=present, model=start.sha256))
    return send(out, tensors, about, force=force, peers=len(peers))


def _received(listed: TensorArtifact, session: Session, member: Member, kept: Secrets) -> dict[str, list[str]]:
    """The shares that each peer made for this client, decrypted, by peer. One that is not its peer's is refused."""
    path = listed.path
    if listed.metadata.custody != "downlink":
        raise InputError(f"{path} is one client's shares; give the list of all that `secagg collect` wrote.")
    session.check_member(listed.metadata, path)
    senders, receivers = names(listed, "senders"), names(listed, "receivers")
    stranger = next((name for name in senders if name not in session.clients), None)
    if stranger is not None:
        raise InputError(f"{path} has shares of {stranger!r}, who is not on the list of keys. Ask for another.")
    there = senders if session.neighbours is None else _all_present(listed, session)
    if len(there) < session.threshold:
        raise InputError(f"{path}: {len(there)} clients sent shares, {session.threshold} are needed. Wait for more.")
    texts = listed.tensors["ciphertexts"]
    if member.name not in receivers or texts.shape[:2] != (len(senders), len(receivers)):
        raise InputError(f"{path} holds no shares for {member.name!r}. Ask the server for its file.")
    if member.name not in there:
        raise InputError(f"{path} lacks the shares of {member.name!r} itself. Send them to the server.")
    column = receivers.index(member.name)
    received = {}
    for row, sender in enumerate(senders):
        data = texts[row, column].tobytes()
        if sender == member.name and data.hex() != (kept.ciphertexts or [])[session.clients.index(sender)]:
            raise VerificationError(f"{path} has other shares of {sender!r} than it sent. Ask the server for another.")
        context = {"session": session.id, "from": sender, "to": member.name}
        try:
            text = unseal(data, bytes.fromhex(kept.cipher_secret), session.cipher_keys[sender], context)
            both = [text[: shamir.SHARE_BYTES], text[shamir.SHARE_BYTES :]]
            for share in both:
                shamir.from_bytes(share)
        except (ForgeryError, ValueError):
            raise VerificationError(
                f"{path}: the share from {sender!r} for {member.name!r} is not one that {sender!r} made: changed, "
                "swapped or of another round. Ask the server for another list."
            ) from None
        received[sender] = [share.hex() for share in both]
    return received


def _all_present(listed: TensorArtifact, session: Session) -> tuple[str, ...]:
    """In a sparse graph a client is sent a few shares, and beside them the names of all who sent some."""
    present = tuple(listed.metadata.params.get("present") or ())
    if not set(names(listed, "senders")) <= set(present) <= set(session.clients):
        raise InputError(f"{listed.path} does not say who sent shares. Ask the server for another.")
    return present


def _present(listed: TensorArtifact, session: Session, member: Member, kept: Secrets) -> list[str]:
    """Of those whom the client drew, who sent shares too: it masks with these, and not by who drew it.

    With fewer than t of them its secrets might not come out; with none the server would take off what is left.
    """
    if session.neighbours is None:
        return []
    found = sorted({*(kept.receivers or [])} & {*_all_present(listed, session)})
    if len(found) < session.shares_needed:
        raise InputError(
            f"{listed.path}: of the {session.neighbours} neighbours that {member.name!r} drew {len(found)} sent "
            f"shares, {session.shares_needed} are needed. The round is lost; take the next number."
        )
    return found


def _source(path: Path, model: TensorArtifact, session: Session, member: Member) -> TensorArtifact:
    """The client's own update of this round, private or encoded, for this model."""
    metadata, _ = tensors_file.read_header(path)
    if not KINDS[metadata.kind].adds_up:
        wanted = " or a ".join(name for name, kind in KINDS.items() if kind.adds_up)
        raise InputError(f"{path} is a {metadata.kind}; only a {wanted} adds up. Give one of these.")
    source = tensors_file.read(path)
    if source.metadata.custody != "private":
        raise InputError(
            f"{path} leaves by itself: under masks it would hide nothing. Encode it into private/ instead."
        )
    if source.metadata.client != member.name:
        raise InputError(f"{path} is of client {source.metadata.client!r}, not of {member.name!r}.")
    if source.metadata.round != session.round or round_of(model) + 1 != session.round:
        raise InputError(
            f"{path} is of round {source.metadata.round} and {model.path} begins round {round_of(model) + 1}; the keys "
            f"are of round {session.round}."
        )
    if model.metadata.custody == "private":
        raise InputError(f"{model.path} is private: a file that names it would tell its digest. Train from another.")
    if lineage.by_digest(model, "model") not in source.metadata.inputs:
        raise InputError(f"{path} was not made from {model.path}. Give the model that it started from.")
    if not KINDS[source.metadata.kind].encoded:  # else its own parameters say what it holds, and the decoder checks it
        check_fits(source.tensors, exchanged(model), path)
    return source


@dataclass(frozen=True)
class Noise:
    """What an encoded message says of the noise that it carries."""

    clip_norm: float
    noise_multiplier: float
    least_clients: int
    colluders: int


def ring_of(source: TensorArtifact, session: Session) -> tuple[Ring, dict[str, Any]]:
    """How the update is written in whole numbers, and the encoding on which all clients of the round must agree.

    That of its noise, or of what the sum has to be decoded by; none for an update as it is.
    """
    noise = _noise_of(source)
    if noise is None:
        ring = session.plain_ring()
        if ring is None:
            raise InputError(
                f"{source.path} carries no share of noise, and the list of keys declares no range for plain values. "
                "Collect the keys with --range."
            )
        return ring, dict(source.metadata.params) if KINDS[source.metadata.kind].encoded else {}
    if session.reach is not None:
        raise InputError(
            f"{source.path} carries a share of noise, which has its own grid. Collect the keys without --range."
        )
    sound = least_threshold(len(session.clients), noise.colluders)
    if session.threshold < sound:
        raise InputError(
            f"{source.path} counts with {noise.colluders} clients that side with the server; of {len(session.clients)} "
            f"clients at least {sound} must stay then, the list of keys says {session.threshold}. Collect the keys "
            f"with --threshold {sound} or more."
        )
    if session.neighbours is not None and (session.colluders or 0) < noise.colluders:
        raise InputError(
            f"{source.path} counts with {noise.colluders} clients that side with the server, the list of keys with "
            f"{session.colluders}. Collect the keys with --colluders {noise.colluders} or more."
        )
    if session.threshold < noise.least_clients:
        raise InputError(
            f"{source.path} counts on the noise of {noise.least_clients} clients, but the round may end with "
            f"{session.threshold}. Collect the keys with --threshold {noise.least_clients} or more."
        )
    try:
        ring = Ring.for_noise(
            modulus=session.modulus, clip_norm=noise.clip_norm, noise_multiplier=noise.noise_multiplier
        )
        ring.check_fits(len(session.clients))
    except ValueError as error:
        raise InputError(f"{source.path}: {error}. Collect the keys with --modulus 64.") from error
    return ring, dict(source.metadata.params)


def _noise_of(source: TensorArtifact) -> Noise | None:
    """None for an update without a share of noise; one with noise for its records needs no more."""
    if source.metadata.kind != "message" or not any(e.get("unit") == "client" for e in source.metadata.privacy):
        return None
    try:
        return noise_of(DeltaEncoding.from_mapping(source.metadata.params))
    except ValueError as error:
        raise InputError(f"{source.path} does not say what noise it carries: {error}. Encode it again.") from error


def noise_of(params: DeltaEncoding) -> Noise:
    """The share of noise that such a message carries; `ValueError` where it carries none."""
    if params.noise_multiplier is None or params.clip_norm is None or params.least_clients is None:
        raise ValueError("its noise is not described")
    return Noise(
        params.clip_norm, params.noise_multiplier / params.shares**0.5, params.least_clients, params.colluders or 0
    )


def _inputs(source: TensorArtifact, member: Member) -> list[InputRef]:
    """The model by its digest, the private file by a commitment."""
    context = {"stage": "secagg", "client": member.name, "round": source.metadata.round}
    kind = source.metadata.kind
    return [
        *source.metadata.inputs_as("model"),
        commit(member.key, role=kind, kind=kind, sha256=source.sha256, context=context),
    ]
