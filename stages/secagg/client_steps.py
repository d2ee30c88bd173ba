"""What a client does in a round of secure aggregation before its update: `keys` and `shares`."""

from __future__ import annotations

import secrets as system
from dataclasses import replace
from pathlib import Path

import numpy as np

from artifacts.digests import sha256_hex
from artifacts.errors import InputError, UsageError, VerificationError
from artifacts.formats import tensors_file
from artifacts.metadata import MAX_ROUND
from stages.execution.progress import Summary
from stages.secagg import shamir
from stages.secagg.graph import drawn
from stages.secagg.member import NO_SESSION, Member, Secrets
from stages.secagg.primitives import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    commitment,
    new_pair,
    pair_of,
    seal,
    sign,
    verify_key,
)
from stages.secagg.roster import StepKeys, read_roster
from stages.secagg.session import Session, keys_statement, read_session, signed, stacked


def keys(out: Path, *, round: int, key: Path | None = None, client: str | None = None, force: bool = False) -> Summary:
    """Make two key pairs for the round, fresh from the operating system, and send their public halves, signed."""
    member = Member.writing(out, key=key, client=client)
    if not 1 <= round <= MAX_ROUND:
        raise UsageError(f"--round must be at least 1, found {round}.")
    cipher, mask = new_pair(), new_pair()
    with member.alone():
        before = member.secrets(round) if not force and member.secrets_path(round).exists() else None
        if before is not None and before.cipher_secret:
            # Made by a call that was interrupted, or sent: the same again. --force begins the round anew.
            cipher, mask = (pair_of(bytes.fromhex(secret)) for secret in (before.cipher_secret, before.mask_secret))
        member.once("keys", round, NO_SESSION, sha256_hex(cipher.public + mask.public))
        member.forget_answered()
        member.keep(before or Secrets(member.name, round, cipher.secret.hex(), mask.secret.hex()))
        signature = sign(member.identity, keys_statement(member.name, round, cipher.public, mask.public))
        tensors = {
            "cipher_keys": stacked([cipher.public], KEY_BYTES),
            "mask_keys": stacked([mask.public], KEY_BYTES),
            "signatures": stacked([signature], SIGNATURE_BYTES),
        }
        digest = tensors_file.write(out, tensors, member.about("secagg-keys", "keys", round), force=force)
    return {"out": str(out), "sha256": digest, "client": member.name, "round": round}


def shares(
    listed: Path,
    out: Path,
    *,
    roster: Path,
    least_threshold: int = 2,
    least_clients: int = 2,
    key: Path | None = None,
    client: str | None = None,
    force: bool = False,
) -> Summary:
    """Check the list of keys; share the seed of the own mask and the secret mask key among all who are on it."""
    member = Member.writing(out, key=key, client=client)
    known = read_roster(roster)
    session = read_session(listed, known)
    if session.threshold < least_threshold:
        raise InputError(
            f"{listed} lets {session.threshold} clients end the round; this client wants at least {least_threshold}."
        )
    if len(session.clients) < least_clients:
        raise InputError(
            f"{listed} has {len(session.clients)} clients; this client hides among at least {least_clients}. Ask the "
            "server for the list of all."
        )
    with member.alone():
        kept = member.secrets(session.round)
        _check_own(session, member, kept, known, listed)
        member.once("shares", session.round, session.id, session.id)
        if kept.ciphertexts is None:
            kept = _shared(kept, session, known)
            member.keep(kept)
    assert kept.ciphertexts is not None
    width = len(kept.ciphertexts[0]) // 2
    tensors = {
        "ciphertexts": np.frombuffer(bytes.fromhex("".join(kept.ciphertexts)), np.uint8).reshape(1, -1, width),
        "commitments": stacked([commitment(bytes.fromhex(kept.seed), session.seed_context(member.name))], 32),
    }
    about = member.about("secagg-shares", "shares", session.round, session.reference)
    about = replace(about, params={"senders": [member.name], "receivers": kept.receivers or list(session.clients)})
    about = replace(about, params=signed(about, tensors, member.identity))
    digest = tensors_file.write(out, tensors, about, force=force)
    return {
        "out": str(out),
        "sha256": digest,
        "client": member.name,
        "round": session.round,
        "clients": list(session.clients),
        "threshold": session.threshold,
        **({} if session.neighbours is None else {"neighbours": session.neighbours, "colluders": session.colluders}),
    }


def _shared(kept: Secrets, session: Session, roster: StepKeys) -> Secrets:
    """A fresh seed; both secrets in shares, one pair of them encrypted for each client, itself included.

    In a sparse graph for those alone that the client draws now: the list of keys is fixed, nobody can choose them.
    """
    seed = system.token_bytes(KEY_BYTES)
    others = [name for name in session.clients if name != kept.client]
    receivers = session.clients if session.neighbours is None else drawn(others, session.neighbours)
    points = [session.point(name) for name in receivers]
    both = [
        shamir.split(int.from_bytes(secret, "big"), session.shares_needed, points)
        for secret in (seed, bytes.fromhex(kept.mask_secret))
    ]
    sent = []
    for receiver, *pair in zip(receivers, *both, strict=True):
        context = {"session": session.id, "from": kept.client, "to": receiver}
        text = b"".join(shamir.to_bytes(share) for share in pair)
        sent.append(seal(text, bytes.fromhex(kept.cipher_secret), session.cipher_keys[receiver], context).hex())
    fields = dict(vars(session))
    for name in ("cipher_keys", "mask_keys"):
        fields[name] = {client: public.hex() for client, public in fields[name].items()}
    return replace(
        kept,
        seed=seed.hex(),
        session={**fields, "clients": list(session.clients)},
        verify_keys={name: roster.clients[name].hex() for name in session.clients},
        ciphertexts=sent,
        receivers=None if session.neighbours is None else list(receivers),
    )


def _check_own(session: Session, member: Member, kept: Secrets, roster: StepKeys, listed: Path) -> None:
    """The list has this client, with the very keys that it made."""
    if member.name not in session.clients:
        raise InputError(f"{listed} does not have client {member.name!r}. Send its keys to the server.")
    if not kept.cipher_secret:
        raise InputError(f"round {session.round} is over for {member.name!r}: it has answered and keeps no secrets.")
    own = [pair_of(bytes.fromhex(secret)).public for secret in (kept.cipher_secret, kept.mask_secret)]
    if own != [session.cipher_keys[member.name], session.mask_keys[member.name]]:
        raise VerificationError(
            f"{listed} has other keys of {member.name!r} than it made last in round {session.round}: an old file, or "
            "someone else's. Send the keys again."
        )
    if roster.clients[member.name] != verify_key(member.identity):
        raise VerificationError(f"{roster.path} has another identity of {member.name!r} than its key makes.")
