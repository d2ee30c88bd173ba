"""`secagg sum`: the server takes the masks off the sum of a round's updates, and can do so for nothing else."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from artifacts.digests import canonical_json
from artifacts.errors import InputError, UsageError, VerificationError
from artifacts.formats import tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.kinds import KINDS
from artifacts.ledgers import lineage
from artifacts.metadata import Metadata
from artifacts.publish import prepare
from stages.execution.progress import Report, Summary, silent
from stages.execution.versions import versions
from stages.models.next_model import events_of
from stages.secagg import masks, shamir
from stages.secagg.primitives import KEY_BYTES, SIGNATURE_BYTES, commitment, pair_of
from stages.secagg.roster import StepKeys, read_roster
from stages.secagg.session import Session, check_signed, names, read_session, rows, survivors_statement
from stages.secagg.vectors import Vectors

Result = Literal["mean", "sum"]


def secure_sum(
    files: Sequence[Path],
    out: Path,
    *,
    roster: Path,
    keys: Path,
    shares: Path,
    survivors: Path,
    result: Result = "mean",
    force: bool = False,
    report: Report = silent,
) -> Summary:
    """Write the mean or the sum of the survivors' updates as an update of the server's.

    `files` are the survivors' masked updates and at least t answers to the request to unmask.
    """
    prepare(out, "server")
    known = read_roster(roster)
    session = read_session(keys, known)
    masked, answers = _sorted(files)
    vectors = Vectors(session, known)
    for number, path in enumerate(masked, start=1):
        vectors.add(path)
        report(number, len(masked), path.name)
    bound = session.bound(str(vectors.model.sha256))
    there = _survivors(survivors, session, known, bound)
    _check_same(tuple(sorted(vectors.owners)), there, survivors)
    dropped = tuple(sorted(set(vectors.peers) - set(there)))
    vectors.check_pairs()
    listed = tensors_file.read(shares, kind="secagg-shares")
    session.check_member(listed.metadata, shares)
    given = _answers(answers, session, known, there, dropped)
    seeds = recovered(given, "seeds", there, session)
    secrets = recovered(given, "mask_keys", dropped, session)
    _check_seeds(seeds, session, listed)
    for client, secret in secrets.items():
        if pair_of(secret).public != session.mask_keys[client]:
            raise _wrong(client, "mask key")
    total, ring = vectors.total, vectors.ring
    publics = {
        client: {peer: session.mask_keys[peer] for peer in there if client in vectors.peers_of[peer]}
        for client in dropped
    }
    masks.uncover(total, session=bound, seeds=seeds, dropped=secrets, publics=publics)
    whole: Any = ring.signed(total)
    # Under noise shares nothing is looked at: no wrap-around may stop a round after noise was added (rule 23).
    if ring.reach is not None and not ring.holds(whole, len(there)):
        raise VerificationError(
            "the uncovered sum is larger than the clients can have made it: a client masked other values, or with "
            "other peers, than it said. Nothing was written; the round is lost."
        )
    divisor = len(there) if result == "mean" else 1
    values: Any = (whole * (ring.step / divisor)).astype(np.float32)
    references = [lineage.by_digest(answer, "unmask") for answer in given]
    metadata = Metadata(
        kind=vectors.kind, stage="secagg", method="sum", custody="server", round=session.round,
        params={
            "of": result, "clients": len(there), "threshold": session.threshold, "step": ring.step,
            **({"encoding": vectors.encoding} if KINDS[vectors.kind].encoded else {}),
        },
        inputs=(vectors.model, session.reference, *vectors.references, *references),
        privacy=_events(vectors), disclosures=tuple(sorted(vectors.disclosures)), simulation=vectors.simulation,
        versions=versions("cryptography", "numpy"),
    )  # fmt: skip
    digest = tensors_file.write(out, masks.shaped(values, vectors.shapes), metadata, force=force)
    return {
        "out": str(out),
        "sha256": digest,
        "kind": vectors.kind,
        "round": session.round,
        "of": result,
        "survivors": list(there),
        "dropped": list(dropped),
    }


def _survivors(path: Path, session: Session, known: StepKeys, bound: str) -> tuple[str, ...]:
    """The countersigned list, by clients who masked for the same model."""
    listed = tensors_file.read(path, kind="secagg-survivors")
    session.check_member(listed.metadata, path)
    there, signers = names(listed, "survivors"), names(listed, "signers")
    if len(signers) < session.threshold or not set(signers) <= set(there) <= set(session.clients):
        raise InputError(
            f"{path} is signed by {len(signers)} of the survivors, {session.threshold} are needed. Collect the "
            "signatures of `secagg confirm`."
        )
    for signer, signature in zip(signers, rows(listed, "signatures", SIGNATURE_BYTES, signers), strict=True):
        known.check(signer, signature, survivors_statement(bound, there), path)
    return there


def _sorted(files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Masked updates and answers, in whatever order they were given."""
    found: dict[str, list[Path]] = {"secagg-masked": [], "secagg-unmask": []}
    for path in files:
        metadata, _ = tensors_file.read_header(path)
        if metadata.kind not in found:
            raise InputError(f"{path} is a {metadata.kind}; give the clients' secagg-masked and secagg-unmask files.")
        found[metadata.kind].append(path)
    if not all(found.values()):
        raise UsageError("secagg sum needs the masked updates and the answers to the request to unmask.")
    return found["secagg-masked"], found["secagg-unmask"]


def _check_same(owners: tuple[str, ...], there: tuple[str, ...], survivors: Path) -> None:
    missing, late = sorted(set(there) - set(owners)), sorted(set(owners) - set(there))
    if missing:
        raise InputError(f"the masked update of {missing[0]!r} is missing: {survivors} has it among the survivors.")
    if late:
        raise InputError(f"the masked update of {late[0]!r} came too late: by {survivors} it dropped. Leave it out.")


def _answers(
    paths: Sequence[Path], session: Session, known: StepKeys, there: tuple[str, ...], dropped: tuple[str, ...]
) -> list[TensorArtifact]:
    """At least t answers to the same request, each by another survivor."""
    answers: dict[str, TensorArtifact] = {}
    for path in paths:
        artifact = tensors_file.read(path, kind="secagg-unmask")
        client = str(artifact.metadata.client)
        session.check_member(artifact.metadata, path)
        check_signed(artifact, known)
        answered = names(artifact, "survivors"), names(artifact, "dropped")
        alike = answered == (there, dropped)
        if session.neighbours is not None:  # each answers for those who gave it shares
            alike = set(answered[0]) <= set(there) and not set(answered[1]) & set(there)
        if not alike:
            raise InputError(f"{path} answers another survivor list than this round's. Leave it out.")
        if client not in there or client in answers:
            raise InputError(f"{path} is by {client!r}, who is no survivor or has answered already. Leave it out.")
        answers[client] = artifact
    if len(answers) < session.threshold:
        raise InputError(
            f"{len(answers)} clients answered, {session.threshold} are needed to uncover the sum. Wait for more."
        )
    return [answers[client] for client in sorted(answers)]


def recovered(
    answers: Sequence[TensorArtifact], tensor: str, owners: tuple[str, ...], session: Session
) -> dict[str, bytes]:
    """Of each owner the secret, from the shares in t of the answers that have one of it."""
    listing = "survivors" if tensor == "seeds" else "dropped"
    shares: dict[str, dict[int, int]] = {owner: {} for owner in owners}
    for answer in answers:
        point, held = session.point(str(answer.metadata.client)), names(answer, listing)
        for owner, row in zip(held, rows(answer, tensor, shamir.SHARE_BYTES, held), strict=True):
            if owner in shares and len(shares[owner]) < session.shares_needed:
                try:
                    shares[owner][point] = shamir.from_bytes(row)
                except ValueError:
                    raise InputError(f"{answer.path} holds something else than shares. Leave it out.") from None
    secrets, weights = {}, functools.lru_cache(maxsize=1)(shamir.weights_at_zero)
    for owner, given in shares.items():
        if len(given) < session.shares_needed:
            raise InputError(
                f"{len(given)} of those who answered have a share of {owner!r}, {session.shares_needed} are needed to "
                "uncover the sum. Wait for more."
            )
        number = sum(weight * given[point] for weight, point in zip(weights(tuple(given)), given, strict=True))
        if number % shamir.PRIME >= 2 ** (8 * KEY_BYTES):
            raise _wrong(owner, "mask key" if tensor == "mask_keys" else "seed")
        secrets[owner] = (number % shamir.PRIME).to_bytes(KEY_BYTES, "big")
    return secrets


def _check_seeds(seeds: dict[str, bytes], session: Session, listed: TensorArtifact) -> None:
    """Each seed is the one that its client committed to when it sent its shares."""
    senders = names(listed, "senders")
    commitments = dict(zip(senders, rows(listed, "commitments", 32, senders), strict=True))
    for client, seed in seeds.items():
        if commitments.get(client) != commitment(seed, session.seed_context(client)):
            raise _wrong(client, "seed")


def _wrong(client: str, what: str) -> VerificationError:
    return VerificationError(
        f"the {what} of {client!r} does not come out of the shares: {client!r} shared another one, or someone who "
        "answered gave a wrong share. Try other answers; nothing was written."
    )


def _events(vectors: Vectors) -> tuple[dict[str, Any], ...]:
    """Shares of noise become one event of the sum, what the round costs each client; so do events about records."""
    kinds = {canonical_json([{**event, "id": ""} for event in events]) for events in vectors.events}
    if vectors.noisy and (len(kinds) != 1 or not vectors.events[0]):
        raise InputError("the masked updates cannot be charged: their events differ. Encode all alike.")
    return events_of(vectors.events)
