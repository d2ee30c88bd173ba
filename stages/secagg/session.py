"""The list of keys that opens a session: who takes part, how many must stay, and how numbers are written.

Everything later in the round is bound to the digest of this one file. Clients who were shown different lists are in
different sessions: nothing of one fits the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.digests import canonical_json, sha256_hex
from artifacts.errors import InputError, VerificationError
from artifacts.formats import tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.metadata import InputRef, Metadata
from stages.privacy.events import output_digest
from stages.secagg.graph import neighbourhood
from stages.secagg.primitives import KEY_BYTES, SIGNATURE_BYTES, ForgeryError, check_public, sign
from stages.secagg.ring import Ring
from stages.secagg.roster import StepKeys

LEAST_CLIENTS = 2


@dataclass(frozen=True)
class Session:
    """One round of secure aggregation, as its list of keys says. Clients are in the order of their names."""

    id: str
    round: int
    clients: tuple[str, ...]
    threshold: int
    modulus: int
    reach: float | None
    bits: int | None
    cipher_keys: Mapping[str, bytes]
    mask_keys: Mapping[str, bytes]
    colluders: int | None = None
    neighbours: int | None = None  # that each client draws; None: everybody masks with everybody
    share_threshold: int | None = None

    @property
    def shares_needed(self) -> int:
        """So many shares of a secret give it."""
        return self.threshold if self.share_threshold is None else self.share_threshold

    @property
    def least_peers(self) -> int:
        """A client masks with at least so many, itself among them."""
        return self.threshold if self.share_threshold is None else self.share_threshold + 1

    def point(self, client: str) -> int:
        """Where the client's Shamir shares are."""
        return self.clients.index(client) + 1

    def plain_ring(self) -> Ring | None:
        """The ring for updates without noise shares, if the list declares a range."""
        if self.reach is None or self.bits is None:
            return None
        return Ring.plain(modulus=self.modulus, reach=self.reach, bits=self.bits)

    @property
    def reference(self) -> InputRef:
        return InputRef(role="keys", kind="secagg-keys", sha256=self.id)

    def bound(self, model: str) -> str:
        """What masks and signatures of this session are bound to: the list of keys, and the model that updates are for.

        Masks of different models do not cancel. Else a server could give all but one client a model whose updates it
        knows, and have that one's update as what is left of the sum (privacy contract, rule 34).
        """
        return sha256_hex(canonical_json({"session": self.id, "model": model}).encode())

    def seed_context(self, client: str) -> dict[str, str]:
        """What the commitment to a client's seed is bound to."""
        return {"session": self.id, "client": client}

    def check_member(self, metadata: Metadata, path: Path) -> None:
        """A later file of this session, by a client on the list or by the server."""
        if metadata.round != self.round or self.reference not in metadata.inputs:
            raise InputError(f"{path} belongs to another round or list of keys than this. Give the files of one round.")
        if metadata.client is not None and metadata.client not in self.clients:
            raise InputError(f"{path} is from {metadata.client!r}, who is not on the list of keys. Leave it out.")


def keys_statement(client: str, round: int, cipher_key: bytes, mask_key: bytes) -> dict[str, Any]:
    """What a client signs of its keys."""
    keys = {"cipher_key": cipher_key.hex(), "mask_key": mask_key.hex()}
    return {"step": "keys", "client": client, "round": round, **keys}


def survivors_statement(bound: str, survivors: tuple[str, ...]) -> dict[str, Any]:
    """What every client signs of the survivor list that it was shown, `bound` to the session and its model."""
    return {"step": "survivors", "session": bound, "survivors": list(survivors)}


def model_reference(digest: str) -> InputRef:
    """The model that a round's updates are for, as a later step names it."""
    return InputRef(role="model", kind="model", sha256=digest)


def check_threshold(threshold: int, clients: int) -> None:
    """t > n/2, or `ValueError`: two halves must not both reach it, or a lying server could ask each for its kind."""
    if clients < LEAST_CLIENTS:
        raise ValueError(f"{clients} client is too few: its update would be the sum")
    if not clients < 2 * threshold <= 2 * clients:
        raise ValueError(
            f"the threshold must be more than half of the {clients} clients and at most all, found {threshold}"
        )


def check_neighbours(session: Session) -> None:
    """The neighbours are those of the formula, or `ValueError`: with fewer a client would hide among fewer."""
    stated = [session.colluders, session.neighbours, session.share_threshold]
    if stated == [None, None, None]:
        return
    clients = len(session.clients)
    if session.colluders is not None:
        due = neighbourhood(clients, session.colluders, clients - session.threshold)
        if due is not None and stated[1:] == [due.neighbours, due.threshold]:
            return
    raise ValueError("its neighbours are not those that its clients, its threshold and its colluders ask for")


def read_session(path: Path, roster: StepKeys) -> Session:
    """The server's list of keys, every signature checked against the roster."""
    listed = tensors_file.read(path, kind="secagg-keys")
    params = listed.metadata.params
    if listed.metadata.custody != "downlink":
        raise InputError(f"{path} is one client's keys; give the list of all that `secagg collect` wrote.")
    clients = names(listed, "clients")
    cipher_keys = rows(listed, "cipher_keys", KEY_BYTES, clients)
    mask_keys = rows(listed, "mask_keys", KEY_BYTES, clients)
    signatures = rows(listed, "signatures", SIGNATURE_BYTES, clients)
    try:
        session = Session(
            listed.sha256, _round(listed), clients, params["threshold"], params["modulus"], params.get("range"),
            params.get("bits"), dict(zip(clients, cipher_keys, strict=True)),
            dict(zip(clients, mask_keys, strict=True)),
            *(params.get(name) for name in ("colluders", "neighbours", "share_threshold")),
        )  # fmt: skip
        check_threshold(session.threshold, len(clients))
        check_neighbours(session)
        if (session.reach is None) != (session.bits is None):
            raise ValueError("it has one of range and bits")
        ring = session.plain_ring()
        if ring is not None:
            ring.check_fits(len(clients))
    except ValueError as error:
        raise InputError(f"{path} cannot be a list of keys: {error}. Ask the server for another.") from error
    check_keys(clients, cipher_keys, mask_keys, path)
    for client, signature in zip(clients, signatures, strict=True):
        statement = keys_statement(client, session.round, cipher_keys[clients.index(client)], session.mask_keys[client])
        roster.check(client, signature, statement, path)
    return session


def check_keys(clients: Sequence[str], cipher_keys: Sequence[bytes], mask_keys: Sequence[bytes], where: Path) -> None:
    """No key twice, and none that makes every agreement public: masks made with it would hide nothing."""
    if len(set(cipher_keys) | set(mask_keys)) != 2 * len(clients):
        raise InputError(f"{where}: a key is there twice. Each client makes two of its own for each round.")
    for client, *both in zip(clients, cipher_keys, mask_keys, strict=True):
        try:
            for public in both:
                check_public(public)
        except ForgeryError as error:
            raise VerificationError(f"{where}, client {client!r}: {error}. Leave it out.") from error


def names(artifact: TensorArtifact, field: str) -> tuple[str, ...]:
    """A list of clients in the metadata: sorted, each once, as the kind declares it."""
    return tuple(artifact.metadata.params[field])


def rows(artifact: TensorArtifact, tensor: str, width: int, owners: tuple[str, ...]) -> list[bytes]:
    """The rows of a tensor of bytes, one for each owner."""
    found = artifact.tensors[tensor]
    if found.shape != (len(owners), width):
        raise InputError(
            f"{artifact.path}: {tensor!r} has the shape {list(found.shape)}, expected {[len(owners), width]}. "
            "Get the file again."
        )
    return [row.tobytes() for row in found]


def stacked(parts: list[bytes], width: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(b"".join(parts), np.uint8).reshape(len(parts), width)


def signed(metadata: Metadata, tensors: Mapping[str, Any], identity: bytes) -> dict[str, Any]:
    """The metadata's parameters with the client's signature of all that the file says."""
    return {**metadata.params, "signature": sign(identity, _statement(metadata, tensors)).hex()}


def check_signed(artifact: TensorArtifact, roster: StepKeys) -> None:
    """Refuse a file that is not, to the last value, what the client whom it names signed."""
    signature, statement = signature_of(artifact)
    roster.check(artifact.metadata.client or "", signature, statement, artifact.path)


def signature_of(artifact: TensorArtifact) -> tuple[bytes, dict[str, Any]]:
    """The signature in the parameters of a client's file, and what it signs."""
    return bytes.fromhex(artifact.metadata.params["signature"]), _statement(artifact.metadata, artifact.tensors)


def _statement(metadata: Metadata, tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "step": metadata.kind,
        "client": metadata.client,
        "round": metadata.round,
        "params": {name: value for name, value in metadata.params.items() if name != "signature"},
        "inputs": [reference.to_json() for reference in metadata.inputs],
        "privacy": [dict(event) for event in metadata.privacy],
        "disclosures": list(metadata.disclosures),
        "tensors": output_digest(tensors),
    }


def _round(artifact: TensorArtifact) -> int:
    if artifact.metadata.round is None:
        raise InputError(f"{artifact.path} names no round. Get it again.")
    return artifact.metadata.round
