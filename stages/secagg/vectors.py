"""The masked updates of a round at the server: each checked, all of one shape, one grid and one model, then added."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.errors import InputError
from artifacts.formats import tensors_file
from artifacts.formats.safetensors_layout import TensorSpec
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.metadata import InputRef, Metadata
from stages.declared import check_params
from stages.secagg.masks import Words
from stages.secagg.ring import Ring
from stages.secagg.roster import StepKeys
from stages.secagg.session import Session, check_signed, names
from stages.secagg.summed import carries_noise, summed_kind

_AGREED = ("peers", "step", "most", "encoding")


class Vectors:
    """Reads them one at a time: memory is one sum and one file, whatever the number of clients."""

    def __init__(self, session: Session, roster: StepKeys) -> None:
        self._session, self._roster = session, roster
        self.owners: dict[str, Path] = {}
        self.peers_of: dict[str, tuple[str, ...]] = {}
        self.references: list[InputRef] = []
        self.events: list[list[dict[str, Any]]] = []  # of each client
        self.disclosures: set[str] = set()
        self.simulation = False
        self._first: Path | None = None
        self._total: Words | None = None
        self._stated: dict[str, Any] = {}

    @property
    def peers(self) -> tuple[str, ...]:
        """All with whom somebody masked: in a complete graph those who sent shares, each with one another."""
        return tuple(sorted({peer for peers in self.peers_of.values() for peer in peers}))

    def check_pairs(self) -> None:
        """A mask that one of two put on and the other did not would stay in the sum."""
        for client, peers in self.peers_of.items():
            odd = next((p for p in peers if p in self.peers_of and client not in self.peers_of[p]), None)
            if odd is not None:
                raise InputError(
                    f"{self.owners[client]} is masked with {odd!r}, but {self.owners[odd]} is not masked with "
                    f"{client!r}: the server showed them different lists. The round is lost."
                )

    @property
    def encoding(self) -> dict[str, Any]:
        """The parameters of the noise, where there are shares of it; or of what the sum is decoded by."""
        return dict(self._stated["encoding"])

    @property
    def noisy(self) -> bool:
        return carries_noise(self.encoding)

    @property
    def kind(self) -> str:
        """Of the sum."""
        return summed_kind(self.encoding)

    @property
    def model(self) -> InputRef:
        (reference,) = self._stated["inputs"]
        assert isinstance(reference, InputRef)
        return reference

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return dict(self._stated["shapes"])

    @property
    def ring(self) -> Ring:
        reach = None if self.noisy else self._session.reach
        return Ring(self._session.modulus, self._stated["step"], self._stated["most"], reach)

    @property
    def total(self) -> Words:
        assert self._total is not None
        return self._total

    def add(self, path: Path) -> None:
        """Check one file and add it to the sum."""
        tensors = self.check(path).tensors
        size = self._session.modulus // 8
        if self._total is None:
            self._total = np.zeros(sum(tensor.size for tensor in tensors.values()), f"<u{size}")
        start = 0
        for name in sorted(tensors):
            words: Any = tensors[name].reshape(-1).view(f"<u{size}")
            self._total[start : start + words.size] += words
            start += words.size

    def check(self, path: Path) -> TensorArtifact:
        """The file is of this session, signed by its client, and like the others."""
        artifact = tensors_file.read(path, kind="secagg-masked", fits=functools.partial(self._check_shapes, path))
        metadata, client = artifact.metadata, str(artifact.metadata.client)
        self._session.check_member(metadata, path)
        check_signed(artifact, self._roster)
        if client in self.owners:
            raise InputError(f"{path} and {self.owners[client]} are both from client {client!r}: a client counts once.")
        self._check_like(artifact, client)
        self.owners[client] = path
        self.peers_of[client] = names(artifact, "peers")
        self.references.append(InputRef(role="masked", kind="secagg-masked", sha256=artifact.sha256))
        self.events.append([dict(event) for event in metadata.privacy])
        self.disclosures |= set(metadata.disclosures)
        self.simulation |= metadata.simulation
        return artifact

    def _check_shapes(self, path: Path, metadata: Metadata, specs: Sequence[TensorSpec]) -> None:
        """By the header alone: a file of any size is refused before it is read."""
        check_params(path, metadata)
        if self._first is not None and {spec.name: spec.shape for spec in specs} != self.shapes:
            raise InputError(f"{path} has other tensors than {self._first}. Mask all updates of a round alike.")

    def _check_like(self, artifact: TensorArtifact, client: str) -> None:
        path, params = artifact.path, artifact.metadata.params
        models = artifact.metadata.inputs_as("model")
        stated = {name: params.get(name) for name in _AGREED}
        if self._session.neighbours is not None:  # each has its own
            self._check_peers(artifact, params["peers"])
            stated["peers"] = []
        stated |= {"inputs": models, "shapes": {spec.name: spec.shape for spec in artifact.specs}}
        stated["private"] = bool(artifact.metadata.privacy)
        if self._first is None:
            self._check_sound(artifact, stated)
            self._first, self._stated = path, stated
        odd = next((name for name, value in stated.items() if value != self._stated[name]), None)
        if odd is not None:
            what = {"inputs": "model", "private": "kind of noise", "encoding": "encoding"}.get(odd, odd)
            raise InputError(
                f"{path} has another {what} than {self._first}: their sum would mean nothing, or hide less than "
                "each claims. Mask all updates of a round alike."
            )
        if client not in params["peers"]:
            raise InputError(f"{path} is from {client!r}, who is not among its own peers. Get it again.")

    def _check_sound(self, artifact: TensorArtifact, stated: dict[str, Any]) -> None:
        path, session = artifact.path, self._session
        ring = session.plain_ring()
        numbers = (
            type(stated["step"]) is float and stated["step"] > 0 and type(stated["most"]) is int and stated["most"] > 0
        )
        fits = numbers and len(session.clients) * stated["most"] < 2 ** (session.modulus - 1)
        if not fits or not isinstance(stated["encoding"], dict) or len(stated["inputs"]) != 1:
            raise InputError(f"{path} does not say how its numbers are to be read. Get it again.")
        noisy = carries_noise(stated["encoding"])
        if ring is not None and (stated["step"], stated["most"], noisy) != (ring.step, ring.most, False):
            raise InputError(f"{path} is on another grid than the list of keys declares. Mask the update again.")
        wanted = "I32" if session.modulus == 32 else "I64"
        if any(spec.dtype != wanted for spec in artifact.specs):
            raise InputError(f"{path} is not modulo 2^{session.modulus}, as the list of keys declares. Get it again.")
        self._check_peers(artifact, artifact.metadata.params["peers"])

    def _check_peers(self, artifact: TensorArtifact, peers: Sequence[str]) -> None:
        if not set(peers) <= set(self._session.clients) or len(peers) < self._session.least_peers:
            raise InputError(f"{artifact.path} was masked with others than the list of keys has. Get it again.")
