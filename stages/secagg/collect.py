"""`secagg collect`: the server's part between the clients' steps. One kind of file in, one list out, for all to read.

keys → the list of keys · shares → the list of shares · masked updates → the survivor list · signatures of that list →
the countersigned list. Each file is checked before it counts; the server needs no secret for any of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.errors import InputError, UsageError
from artifacts.formats import tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.metadata import InputRef, Metadata
from artifacts.publish import prepare
from stages.execution.progress import Summary
from stages.execution.versions import versions
from stages.secagg import shamir
from stages.secagg.graph import neighbourhood
from stages.secagg.primitives import KEY_BYTES, SEAL_BYTES, SIGNATURE_BYTES
from stages.secagg.ring import Ring
from stages.secagg.roster import StepKeys, read_roster
from stages.secagg.session import (
    Session,
    check_keys,
    check_signed,
    check_threshold,
    keys_statement,
    names,
    read_session,
    rows,
    stacked,
    survivors_statement,
)
from stages.secagg.terms import SecaggTerms, default_threshold
from stages.secagg.vectors import Vectors

CIPHERTEXT_BYTES = 2 * shamir.SHARE_BYTES + SEAL_BYTES
_COLLECTED = ("secagg-keys", "secagg-shares", "secagg-masked", "secagg-survivors")


def collect(
    files: Sequence[Path],
    out: Path,
    *,
    roster: Path,
    keys: Path | None = None,
    params: SecaggTerms | None = None,
    receiver: str | None = None,
    each: bool = False,
    force: bool = False,
) -> Summary:
    """Check what the clients sent in one step and write the list that goes down. `keys` is the round's list of keys.

    Of shares `each` writes a file for each reader beside `out` (`for_reader`), and the commitments alone into `out`.
    """
    prepare(out, "downlink")
    known = read_roster(roster)
    if not files:
        raise UsageError("secagg collect needs at least one file.")
    metadata, _ = tensors_file.read_header(files[0])
    kind = metadata.kind
    if kind not in _COLLECTED:
        raise InputError(f"{files[0]} is a {kind}; collected are {', '.join(_COLLECTED)}.")
    if (keys is None) != (kind == "secagg-keys"):
        raise UsageError("--keys, the round's list of keys, is needed for all but the keys themselves.")
    if receiver is not None and kind != "secagg-shares":
        raise UsageError("--for goes with shares.")
    if each and (kind != "secagg-shares" or receiver is not None):
        raise UsageError("--each goes with shares, and without --for.")
    if params is not None and params != SecaggTerms() and kind != "secagg-keys":
        raise UsageError("--threshold, --range and their like go with keys: the list of keys declares them.")
    if keys is None:
        return _keys(_read(files, kind), known, params or SecaggTerms(), out, force=force)
    session = read_session(keys, known)
    if kind == "secagg-shares":
        return _shares(_read(files, kind, session), session, known, receiver, out, each=each, force=force)
    if kind == "secagg-masked":
        return _survivors(files, session, known, out, force=force)
    return _confirmed(_read(files, kind, session), session, known, out, force=force)


def _keys(sent: dict[str, TensorArtifact], known: StepKeys, terms: SecaggTerms, out: Path, *, force: bool) -> Summary:
    clients = tuple(sent)
    rounds = {artifact.metadata.round for artifact in sent.values()}
    if len(rounds) != 1:
        raise InputError(f"the keys are of different rounds: {sorted(map(str, rounds))}. Give those of one.")
    round = rounds.pop() or 0
    params = declared(terms, len(clients))
    parts: dict[str, list[bytes]] = {"cipher_keys": [], "mask_keys": [], "signatures": []}
    for client, artifact in sent.items():
        for tensor, found in parts.items():
            width = SIGNATURE_BYTES if tensor == "signatures" else KEY_BYTES
            found += rows(artifact, tensor, width, (client,))
        statement = keys_statement(client, round, parts["cipher_keys"][-1], parts["mask_keys"][-1])
        known.check(client, parts["signatures"][-1], statement, artifact.path)
    check_keys(clients, parts["cipher_keys"], parts["mask_keys"], out)
    tensors = {name: stacked(found, len(found[0])) for name, found in parts.items()}
    about = _about("secagg-keys", "keys", round, sent.values(), {"clients": list(clients), **params})
    digest = tensors_file.write(out, tensors, about, force=force)
    return _summary(out, digest, round, clients=list(clients), **params)


def declared(terms: SecaggTerms, clients: int) -> dict[str, Any]:
    """What a list of so many clients' keys says beside them."""
    threshold = default_threshold(clients) if terms.threshold is None else terms.threshold
    params: dict[str, Any] = {"threshold": threshold, "modulus": terms.modulus}
    try:
        check_threshold(threshold, clients)
        params |= _sparse(terms, clients, threshold) if terms.graph == "sparse" else {}
        if terms.range is None:
            return params
        Ring.plain(modulus=terms.modulus, reach=terms.range, bits=terms.bits).check_fits(clients)
    except ValueError as error:
        raise UsageError(f"{error}. Choose --threshold, --range, --bits and --modulus that fit.") from error
    return params | {"range": terms.range, "bits": terms.bits}


def _sparse(terms: SecaggTerms, clients: int, threshold: int) -> dict[str, Any]:
    """How many neighbours each client draws, where that is fewer than all."""
    colluders = clients // 10 if terms.colluders is None else terms.colluders
    found = neighbourhood(clients, colluders, clients - threshold)
    if found is None:
        return {}
    return {"colluders": colluders, "neighbours": found.neighbours, "share_threshold": found.threshold}


def _shares(
    sent: dict[str, TensorArtifact],
    session: Session,
    known: StepKeys,
    receiver: str | None,
    out: Path,
    *,
    each: bool,
    force: bool,
) -> Summary:
    """All that is read is read once; each ciphertext goes to its reader."""
    senders = tuple(sent)
    if receiver is not None and receiver not in session.clients:
        raise UsageError(f"--for {receiver}: not on the list of keys.")
    if session.neighbours is not None and receiver is None and not each:
        raise UsageError("in a sparse graph each client reads its own shares: give --each, or --for CLIENT.")
    texts: dict[str, dict[str, Any]] = {name: {} for name in session.clients}  # by reader, then by sender
    commitments: dict[str, bytes] = {}
    for client, artifact in sent.items():
        check_signed(artifact, known)
        found = _ciphertexts(artifact, client, session)
        for reader, text in zip(names(artifact, "receivers"), found, strict=True):
            texts[reader][client] = text
        commitments |= {client: rows(artifact, "commitments", 32, (client,))[0]}
    _check_enough(len(senders), session, "sent shares")
    simulation = list(sent.values())

    def write(path: Path, readers: tuple[str, ...], own: tuple[str, ...], **more: Any) -> str:
        columns = [np.stack([texts[reader][sender] for sender in own]) for reader in readers if own]
        empty = np.empty((len(own), 0 if not readers else len(readers), CIPHERTEXT_BYTES), np.uint8)
        tensors = {
            "ciphertexts": np.stack(columns, axis=1) if columns else empty,
            "commitments": stacked([commitments[sender] for sender in own], 32),
        }
        params = {"senders": list(own), "receivers": list(readers), **more}
        about = _about("secagg-shares", "shares", session.round, simulation, params, session.reference)
        return tensors_file.write(path, tensors, about, force=force)

    # In a sparse graph a reader gets few, and must know who else is there to mask with.
    more = {} if session.neighbours is None else {"present": list(senders)}
    if receiver is not None:
        digest = write(out, (receiver,), tuple(sorted(texts[receiver])), **more)
    elif each:
        for reader in session.clients:
            path = for_reader(out, reader)
            prepare(path, "downlink")
            write(path, (reader,), tuple(sorted(texts[reader])), **more)
        digest = write(out, (), senders)
    else:
        digest = write(out, session.clients, senders)
    return _summary(out, digest, session.round, senders=list(senders))


def for_reader(listed: Path, reader: str) -> Path:
    """Beside the list of shares, `secagg-shares-0001.safetensors`: what one client reads of them."""
    stem, _, number = listed.stem.rpartition("-")
    return listed.with_name(f"{stem}-for-{reader}-{number}{listed.suffix}")


def _ciphertexts(artifact: TensorArtifact, sender: str, session: Session) -> Any:
    """One client's encrypted shares: for everybody, or for as many others as it had to draw."""
    found, receivers = artifact.tensors["ciphertexts"], names(artifact, "receivers")
    if session.neighbours is None:
        fits = receivers == session.clients
    else:
        fits = len(receivers) == session.neighbours and set(receivers) <= {*session.clients} - {sender}
    if names(artifact, "senders") != (sender,) or not fits:
        raise InputError(f"{artifact.path} names other senders or receivers than it should. Get it again.")
    wanted = (1, len(receivers), CIPHERTEXT_BYTES)
    if found.shape != wanted:
        raise InputError(f"{artifact.path}: its shares have the shape {list(found.shape)}, expected {list(wanted)}.")
    return found[0]


def _survivors(files: Sequence[Path], session: Session, known: StepKeys, out: Path, *, force: bool) -> Summary:
    vectors = Vectors(session, known)
    for path in files:
        vectors.check(path)
    there = tuple(sorted(vectors.owners))
    _check_enough(len(there), session, "sent a masked update")
    tensors = {"signatures": stacked([], SIGNATURE_BYTES)}
    params: dict[str, Any] = {"survivors": list(there), "signers": []}
    about = _about("secagg-survivors", "mask", session.round, [], params, session.reference, vectors.model)
    digest = tensors_file.write(out, tensors, about, force=force)
    asked = session.clients if session.neighbours is not None else vectors.peers
    return _summary(out, digest, session.round, survivors=list(there), dropped=sorted(set(asked) - set(there)))


def _confirmed(
    sent: dict[str, TensorArtifact], session: Session, known: StepKeys, out: Path, *, force: bool
) -> Summary:
    first = next(iter(sent.values()))
    model = _model(first)
    there, signatures = names(first, "survivors"), []
    for client, artifact in sent.items():
        if names(artifact, "survivors") != there:
            raise InputError(f"{artifact.path} signs another survivor list than {first.path}. Show all clients one.")
        if client not in there:
            raise InputError(f"{artifact.path} is by {client!r}, who is not among the survivors. Leave it out.")
        if _model(artifact) != model:
            raise InputError(f"{artifact.path} is for another model than {first.path}. Give all clients one.")
        signature = rows(artifact, "signatures", SIGNATURE_BYTES, (client,))[0]
        statement = survivors_statement(session.bound(str(model.sha256)), there)
        known.check(client, signature, statement, artifact.path)
        signatures.append(signature)
    _check_enough(len(signatures), session, "signed the survivor list")
    tensors = {"signatures": stacked(signatures, SIGNATURE_BYTES)}
    params = {"survivors": list(there), "signers": list(sent)}
    about = _about("secagg-survivors", "confirm", session.round, sent.values(), params, session.reference, model)
    digest = tensors_file.write(out, tensors, about, force=force)
    return _summary(out, digest, session.round, survivors=list(there), signers=list(sent))


def _model(signed: TensorArtifact) -> InputRef:
    """The model that a client's signature of the survivor list is about."""
    models = signed.metadata.inputs_as("model")
    if len(models) != 1 or models[0].sha256 is None:
        raise InputError(f"{signed.path} does not name the model of its round. Get it again.")
    return models[0]


def _read(files: Sequence[Path], kind: str, session: Session | None = None) -> dict[str, TensorArtifact]:
    """One file of each client, by name, in order."""
    sent: dict[str, TensorArtifact] = {}
    for path in files:
        artifact = tensors_file.read(path, kind=kind)
        client = artifact.metadata.client
        if artifact.metadata.custody != "outbound" or client is None:
            raise InputError(f"{path} is a list of the server's; give the clients' files.")
        if session is not None:
            session.check_member(artifact.metadata, path)
        if client in sent:
            raise InputError(f"{path} and {sent[client].path} are both from client {client!r}: a client counts once.")
        sent[client] = artifact
    return dict(sorted(sent.items()))


def _check_enough(found: int, session: Session, did: str) -> None:
    if found < session.threshold:
        raise InputError(
            f"{found} clients {did}, but {session.threshold} are needed. Wait for more; with fewer nothing may be "
            "uncovered."
        )


def _about(kind: str, step: str, round: int, sent: Any, params: Mapping[str, Any], *inputs: InputRef) -> Metadata:
    simulation = any(artifact.metadata.simulation for artifact in sent)
    return Metadata(
        kind=kind, stage="secagg", method=step, custody="downlink", round=round, params=params, inputs=inputs,
        simulation=simulation, versions=versions(),
    )  # fmt: skip


def _summary(out: Path, digest: str, round: int, **more: Any) -> Summary:
    return {"out": str(out), "sha256": digest, "round": round, **more}
