"""`secagg confirm` and `secagg unmask`: the clients agree on one survivor list, then give what uncovers the sum.

For a survivor the share of its seed, for a dropped peer the share of its mask key, never both for one: with both the
server could take every mask off one client's update. The list must be signed by at least t of the survivors, and each
client signs one list: two lists would need 2t > n signatures of honest clients.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from artifacts.digests import canonical_json, sha256_hex
from artifacts.errors import InputError, VerificationError
from artifacts.formats import tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.ledgers.gate import destination
from artifacts.metadata import Metadata
from artifacts.writing import atomic
from stages.execution.progress import Summary
from stages.secagg import shamir
from stages.secagg.member import Member, Secrets
from stages.secagg.primitives import SIGNATURE_BYTES, sign
from stages.secagg.roster import StepKeys
from stages.secagg.session import Session, model_reference, names, rows, signed, stacked, survivors_statement


def confirm(
    survivors: Path, out: Path, *, key: Path | None = None, client: str | None = None, force: bool = False
) -> Summary:
    """Sign the survivor list that this client was shown. It signs one a round."""
    member = Member.writing(out, key=key, client=client)
    listed = tensors_file.read(survivors, kind="secagg-survivors")
    kept = member.secrets(listed.metadata.round)
    session, there = _check_list(listed, kept, member)
    statement = survivors_statement(session.bound(kept.model), there)
    member.once("confirm", session.round, session.id, sha256_hex(canonical_json(statement).encode()))
    tensors = {"signatures": stacked([sign(member.identity, statement)], SIGNATURE_BYTES)}
    about = member.about(
        "secagg-survivors", "confirm", session.round, session.reference, model_reference(kept.model),
        params={"survivors": list(there), "signers": [member.name]},
    )  # fmt: skip
    digest = tensors_file.write(out, tensors, about, force=force)
    return {"out": str(out), "sha256": digest, "client": member.name, "round": session.round, "survivors": list(there)}


def unmask(
    confirmed: Path, out: Path, *, key: Path | None = None, client: str | None = None, force: bool = False
) -> Summary:
    """Answer the round's one request to unmask, then forget the round's secrets."""
    member = Member.writing(out, key=key, client=client)
    listed = tensors_file.read(confirmed, kind="secagg-survivors")
    kept = member.secrets(listed.metadata.round)
    answered = None if force else _answered(listed, kept, member, out)
    if answered is not None:
        member.keep(kept)  # a client that forgot them may have been killed before the disk had
        atomic.note_kept(answered.path)
        return _summary(out, answered.sha256, answered.metadata)
    session, there = _check_list(listed, kept, member)
    statement = survivors_statement(session.bound(kept.model), there)
    request = sha256_hex(canonical_json(statement).encode())
    if member.did("confirm", session.round) not in (None, request):
        raise VerificationError(
            f"{confirmed} is another survivor list than the one that {member.name!r} signed: the server shows two. "
            "Nothing was revealed; tell the other clients."
        )
    _check_signers(listed, session, there, kept)
    member.once("unmask", session.round, session.id, request)
    # Of those who gave it shares: in a sparse graph a few, else all.
    received = kept.received or {}
    dropped = tuple(sorted(received.keys() - set(there)))
    there = tuple(name for name in there if name in received)
    tensors = {
        "seeds": stacked([bytes.fromhex(received[name][0]) for name in there], shamir.SHARE_BYTES),
        "mask_keys": stacked([bytes.fromhex(received[name][1]) for name in dropped], shamir.SHARE_BYTES),
    }
    about = member.about(
        "secagg-unmask", "unmask", session.round, session.reference,
        params={"survivors": list(there), "dropped": list(dropped)},
    )  # fmt: skip
    about = replace(about, params=signed(about, tensors, member.identity))
    digest = tensors_file.write(out, tensors, about, force=force)
    # Anyone who takes this disk later finds nothing to put beside what the server has kept of the round.
    member.keep(Secrets(member.name, session.round))
    return _summary(out, digest, about)


def _summary(out: Path, digest: str, about: Metadata) -> Summary:
    stated = {name: about.params[name] for name in ("survivors", "dropped")}
    return {"out": str(out), "sha256": digest, "client": about.client, "round": about.round, **stated}


def _answered(listed: TensorArtifact, kept: Secrets, member: Member, out: Path) -> TensorArtifact | None:
    """The answer to this very list, where it is written and the secrets are forgotten."""
    path = destination(out)
    if kept.cipher_secret or not path.is_file() or member.did("unmask", kept.round) is None:
        return None
    found = tensors_file.read(path, kind="secagg-unmask")
    about = found.metadata
    same = (about.client, about.round) == (member.name, kept.round)
    there, answered = set(names(listed, "survivors")), about.params
    fits = {*answered["survivors"]} <= there and not {*answered["dropped"]} & there
    return found if same and fits else None


def _check_list(listed: TensorArtifact, kept: Secrets, member: Member) -> tuple[Session, tuple[str, ...]]:
    """A survivor list of this session: those who sent shares, at least t of them, this client among them."""
    path = listed.path
    if listed.metadata.custody != "downlink":
        raise InputError(f"{path} is one client's signature; give the list that `secagg collect` wrote.")
    if kept.session is None and not kept.cipher_secret:
        raise VerificationError(
            f"{member.name!r} has answered in round {kept.round} and keeps no secrets of it: it answers one request to "
            "unmask a round, --force notwithstanding."
        )
    if kept.session is None or kept.received is None:
        raise InputError(f"{member.name!r} has masked no update in round {kept.round}: nothing of it to unmask.")
    session = kept.opened
    session.check_member(listed.metadata, path)
    there = names(listed, "survivors")
    known = kept.received if session.neighbours is None else session.clients
    stranger = next((name for name in there if name not in known), None)
    if stranger is not None:
        raise InputError(f"{path} has {stranger!r}, who sent no shares in this round. Ask the server for another list.")
    left = [name for name in kept.present or () if name in there]
    if session.neighbours is not None and len(left) < session.shares_needed:
        raise InputError(
            f"{path}: of the neighbours that {member.name!r} drew {len(left)} are left, {session.shares_needed} are "
            "needed to hide among. Nothing was revealed; the round is lost."
        )
    if len(there) < session.threshold:
        raise InputError(f"{path}: {len(there)} survivors, but {session.threshold} are needed. The round is lost.")
    if member.name not in there:
        raise InputError(f"{path} does not have {member.name!r}, so nothing is asked of it. Send the masked update.")
    return session, there


def _check_signers(listed: TensorArtifact, session: Session, there: tuple[str, ...], kept: Secrets) -> None:
    """At least t of the survivors signed this very list."""
    signers = names(listed, "signers")
    if len(signers) < session.threshold or not set(signers) <= set(there):
        raise InputError(
            f"{listed.path} is signed by {len(signers)} of the survivors, {session.threshold} are needed. Each runs "
            "`secagg confirm`, and the server collects the signatures."
        )
    known = StepKeys(listed.path, {name: bytes.fromhex(public) for name, public in (kept.verify_keys or {}).items()})
    # Anyone who masked an update for another model signed another statement: its masks would not vanish from the sum.
    statement = survivors_statement(session.bound(kept.model), there)
    for signer, signature in zip(signers, rows(listed, "signatures", SIGNATURE_BYTES, signers), strict=True):
        known.check(signer, signature, statement, listed.path)
