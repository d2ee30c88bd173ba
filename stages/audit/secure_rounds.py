"""Files of secure aggregation, held against their session: whose they are, for whom, how large, and signed by whom.

Keys, shares and masks are fresh from the operating system, so that no replay gives them again. Instead every field
follows from the round's list of keys, from the client's signature, or is exactly as many random bytes as the protocol
needs (`docs/audit.md` counts them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifacts.errors import FedsynthError, InputError, VerificationError
from artifacts.formats import tensors_file
from artifacts.formats.tensors_file import TensorArtifact
from artifacts.identity.keys import Key
from artifacts.identity.roster import Roster
from artifacts.metadata import Metadata
from stages.audit.obstacles import in_words
from stages.audit.outbound import Problem, Seen
from stages.audit.surrounding_files import Given, Kept
from stages.methods.params.encoding import DeltaEncoding
from stages.secagg import shamir
from stages.secagg.mask import noise_of
from stages.secagg.member import Member
from stages.secagg.primitives import commitment, pair_of, sign, verify_key
from stages.secagg.ring import Ring
from stages.secagg.roster import StepKeys, signing_key
from stages.secagg.session import (
    Session,
    check_keys,
    keys_statement,
    names,
    read_session,
    signature_of,
    survivors_statement,
)
from stages.secagg.summed import carries_noise
from stages.secagg.total import recovered

STAGE = "secagg"
_SESSION = "the roster, and the list of keys that the server sent (--received)"


@dataclass
class SecureRounds:
    """The sessions among what was given. Each list of keys is read once."""

    given: Given | None
    roster: Roster | None
    _sessions: dict[str, Session | str] = field(default_factory=dict)

    @property
    def _known(self) -> StepKeys | None:
        if self.roster is None:
            return None
        return StepKeys(self.roster.path, {name: keys["secagg"] for name, keys in self.roster.clients.items()})

    def needs(self, seen: Seen) -> str | None:
        """What it would take to check the file."""
        if seen.metadata.stage != STAGE or seen.tensors is None:
            return None
        if self._known is None or self.given is None:
            return _SESSION
        if seen.metadata.kind == "secagg-keys" and seen.metadata.round not in self.given.key_lists:
            return f"the list of keys of round {seen.metadata.round}, which the server sends"
        if _is_answer(seen.metadata) and not self._asked(seen.metadata):
            return f"the list of survivors of round {seen.metadata.round}, which the server sends"
        return None

    def _asked(self, metadata: Metadata) -> set[tuple[str, ...]]:
        """The lists of survivors that the server sent in the session of a file."""
        assert self.given is not None
        return set().union(*(self.given.survivors.get(digest, ()) for digest in metadata.digests_of("keys")))

    def check(self, seen: Seen, key: Key | None, home: Path | None) -> Iterator[Problem]:
        """What is wrong with a file of a client's, or a list of the server's. `home` is where its key is."""
        if seen.metadata.stage != STAGE or seen.tensors is None or self.needs(seen) == _SESSION:
            return
        try:
            artifact = tensors_file.read(seen.path)
            session = self._session(artifact)
            if artifact.metadata.custody == "downlink":
                yield from _list(artifact, session, self._known)
                return
            yield from _FILES[artifact.metadata.kind](artifact, session)
            asked = self._asked(artifact.metadata) if _is_answer(artifact.metadata) else set()
            if asked and not any(_answers(artifact, one, session) for one in asked):
                yield "params", "it answers for other survivors than the server's list has"
            yield from self._signed(artifact, session, key)
            if session is None:
                yield from self._listed(artifact)
            if key is not None and home is not None:
                yield from _kept(artifact, session, Member(str(artifact.metadata.client), home, key))
        except FedsynthError as error:
            yield ("envelopes" if isinstance(error, VerificationError) else "tensors"), in_words(error)

    def _session(self, artifact: TensorArtifact) -> Session | None:
        """The session that a file says it belongs to; none for keys, which come before."""
        if artifact.metadata.kind == "secagg-keys":
            if artifact.metadata.inputs:
                raise InputError(f"{artifact.path} comes before anything that it could be made from.")
            return None
        digest = next(iter(artifact.metadata.digests_of("keys")), "")
        found = self.session_of(digest)
        if isinstance(found, str):
            raise InputError(f"{artifact.path}: {found}")
        found.check_member(artifact.metadata, artifact.path)
        return found

    def session_of(self, digest: str) -> Session | str:
        """The session of a list of keys; or why there is none."""
        assert self.given is not None and self._known is not None  # `needs` has said so
        if digest not in self._sessions:
            path = self.given.paths.get(digest)
            try:
                if path is None:
                    raise InputError("its list of keys is none that the server sent")
                self._sessions[digest] = read_session(path, self._known)
            except FedsynthError as error:
                self._sessions[digest] = str(error)
        return self._sessions[digest]

    def _listed(self, artifact: TensorArtifact) -> Iterator[Problem]:
        """A client's keys are those that the list of their round has; one that came too late is on none."""
        assert self.given is not None
        client = str(artifact.metadata.client)
        sessions = [self.session_of(digest) for digest in self.given.key_lists.get(artifact.metadata.round, ())]
        mine = artifact.tensors["cipher_keys"][0].tobytes(), artifact.tensors["mask_keys"][0].tobytes()
        listed = [
            (one.cipher_keys[client], one.mask_keys[client])
            for one in sessions
            if not isinstance(one, str) and client in one.clients
        ]
        if listed and mine not in listed:
            yield "tensors", "the server's list of its round has other keys of this client"

    def _signed(self, artifact: TensorArtifact, session: Session | None, key: Key | None) -> Iterator[Problem]:
        """By the client whose file it is; and, with its key at hand, the one signature that the key makes."""
        signature, statement = _signature(artifact, session)
        assert self._known is not None
        self._known.check(str(artifact.metadata.client), signature, statement, artifact.path)
        if key is None:
            return
        identity = signing_key(key)
        if verify_key(identity) != self._known.clients[str(artifact.metadata.client)]:
            yield "envelopes", "the client's key makes another identity than the roster has"
        elif sign(identity, statement) != signature:
            yield "envelopes", "its signature is not the one that the client's key makes of it: bits may be in it"


def check_answers(files: Sequence[Kept], rounds: SecureRounds) -> Iterator[tuple[Path, str]]:
    """With enough answers of a round its secrets come out: seeds that were committed to, and keys that were listed."""
    sessions: dict[str, list[TensorArtifact]] = {}
    for one in files:
        if one.metadata.kind == "secagg-unmask" and rounds.roster is not None and rounds.given is not None:
            digest = next(iter(one.metadata.digests_of("keys")), "")
            sessions.setdefault(digest, []).append(tensors_file.read(one.path))
    for digest, answers in sessions.items():
        session = rounds.session_of(digest)
        if isinstance(session, str) or len(answers) < session.threshold:
            continue  # the first is reported already, with fewer answers nothing comes out
        there, dropped = (_enough(answers, listing, session) for listing in ("survivors", "dropped"))
        try:
            seeds = recovered(answers, "seeds", there, session)
            keys = recovered(answers, "mask_keys", dropped, session)
        except FedsynthError as error:
            yield answers[0].path, in_words(error)
            continue
        for one in files:
            client, refers = str(one.metadata.client), {r.sha256 for r in one.metadata.inputs}
            if one.metadata.kind != "secagg-shares" or digest not in refers or client not in seeds:
                continue
            said = tensors_file.read(one.path).tensors["commitments"][0].tobytes()
            if commitment(seeds[client], session.seed_context(client)) != said:
                yield one.path, "its commitment is not to the seed that the round's answers give"
        for client, secret in keys.items():
            if pair_of(secret).public != session.mask_keys[client]:
                yield answers[0].path, f"the round's answers give another mask key of {client!r} than the list has"


def _enough(answers: Sequence[TensorArtifact], listing: str, session: Session) -> tuple[str, ...]:
    """Those of whom enough of the answers have a share."""
    count = Counter(name for answer in answers for name in names(answer, listing))
    return tuple(name for name in sorted(count) if count[name] >= session.shares_needed)


def _signature(artifact: TensorArtifact, session: Session | None) -> tuple[bytes, dict[str, Any]]:
    """The signature of a client's file, and what it signs."""
    metadata, tensors = artifact.metadata, artifact.tensors
    if metadata.kind == "secagg-keys":
        cipher, mask = (tensors[name][0].tobytes() for name in ("cipher_keys", "mask_keys"))
        signed = keys_statement(str(metadata.client), metadata.round or 0, cipher, mask)
    elif metadata.kind == "secagg-survivors":
        assert session is not None
        signed = survivors_statement(session.bound(_model(artifact)), names(artifact, "survivors"))
    else:
        return signature_of(artifact)
    return tensors["signatures"][0].tobytes(), signed


def _model(artifact: TensorArtifact) -> str:
    found = artifact.metadata.inputs_as("model")
    if len(found) != 1 or found[0].sha256 is None:
        raise InputError(f"{artifact.path} does not name the one model of its round.")
    return found[0].sha256


def _keys(artifact: TensorArtifact, _: Session | None) -> Iterator[Problem]:
    both = [artifact.tensors[name][0].tobytes() for name in ("cipher_keys", "mask_keys")]
    check_keys([str(artifact.metadata.client)], both[:1], both[1:], artifact.path)
    yield from ()


def _shares(artifact: TensorArtifact, session: Session | None) -> Iterator[Problem]:
    assert session is not None
    receivers, sender = names(artifact, "receivers"), str(artifact.metadata.client)
    if names(artifact, "senders") != (sender,):
        yield "params", "its shares are another client's"
    if session.neighbours is None and receivers != session.clients:
        yield "params", "its shares are not for everybody on the list of keys"
    elif session.neighbours is not None and not (
        len(receivers) == session.neighbours and set(receivers) <= {*session.clients} - {sender}
    ):
        yield "params", "its shares are not for as many others as the list of keys asks for"


def _masked(artifact: TensorArtifact, session: Session | None) -> Iterator[Problem]:
    assert session is not None
    params, peers = artifact.metadata.params, names(artifact, "peers")
    if not set(peers) <= set(session.clients) or len(peers) < session.least_peers:
        yield "params", "it was masked with others than the list of keys has"
    if artifact.metadata.client not in peers:
        yield "params", "its client is not among its own peers"
    if (params["step"], params["most"]) != _grid(params["encoding"], session):
        yield "params", "its numbers are on another grid than the list of keys and its noise make"
    wanted = f"I{session.modulus}"
    if any(spec.dtype != wanted for spec in artifact.specs):
        yield "tensors", f"its numbers are not modulo 2^{session.modulus}, as the list of keys declares"
    _model(artifact)


def _grid(encoding: Mapping[str, Any], session: Session) -> tuple[float, int]:
    """The step and the bound that follow from the session, or from the noise that the update carries."""
    ring = session.plain_ring()
    if ring is None:
        try:
            noise = noise_of(DeltaEncoding.from_mapping(encoding))
            ring = Ring.for_noise(
                modulus=session.modulus, clip_norm=noise.clip_norm, noise_multiplier=noise.noise_multiplier
            )
        except ValueError:
            return 0.0, 0
    elif carries_noise(encoding):
        return 0.0, 0
    return ring.step, ring.most


def _survivors(artifact: TensorArtifact, session: Session | None) -> Iterator[Problem]:
    assert session is not None
    there = names(artifact, "survivors")
    if not set(there) <= set(session.clients) or len(there) < session.threshold:
        yield "params", "its survivors are not those of its list of keys, or too few"
    if names(artifact, "signers") != (artifact.metadata.client,) or artifact.metadata.client not in there:
        yield "params", "it is not one survivor's signature"


def _unmask(artifact: TensorArtifact, session: Session | None) -> Iterator[Problem]:
    assert session is not None
    there, dropped = names(artifact, "survivors"), names(artifact, "dropped")
    if not {*there, *dropped} <= set(session.clients) or set(there) & set(dropped):
        yield "params", "its survivors and dropped clients are not those of its list of keys, each once"
    # In a sparse graph it answers for those who gave it shares, and is none of them.
    few = session.neighbours is None and (len(there) < session.threshold or artifact.metadata.client not in there)
    if few or (session.neighbours is not None and artifact.metadata.client in (*there, *dropped)):
        yield "params", "it answers with too few survivors, or for somebody else"
    try:
        for row in (*artifact.tensors["seeds"], *artifact.tensors["mask_keys"]):
            shamir.from_bytes(row.tobytes())
    except ValueError:
        yield "tensors", "a row is no share"


def _is_answer(metadata: Metadata) -> bool:
    """Whether it is a client's answer to the server's list of those who are still there."""
    return metadata.custody == "outbound" and metadata.kind in ("secagg-survivors", "secagg-unmask")


def _answers(artifact: TensorArtifact, asked: tuple[str, ...], session: Session | None) -> bool:
    """Whether an answer is to this list; in a sparse graph its shares are of those on it who gave it theirs."""
    there, sparse = names(artifact, "survivors"), session is not None and session.neighbours is not None
    if artifact.metadata.kind == "secagg-survivors":
        return there == asked
    mine = set(there) <= set(asked) if sparse else there == asked
    return mine and not set(names(artifact, "dropped")) & set(asked)


_FILES = {
    "secagg-keys": _keys, "secagg-shares": _shares, "secagg-masked": _masked, "secagg-survivors": _survivors,
    "secagg-unmask": _unmask,
}  # fmt: skip


def _list(artifact: TensorArtifact, session: Session | None, known: StepKeys | None) -> Iterator[Problem]:
    """A list of the server's: about clients of the session, and by their signatures."""
    assert known is not None
    if session is None:
        read_session(artifact.path, known)
        return
    lists = [value for value in artifact.metadata.params.values() if isinstance(value, list)]
    if not {name for one in lists for name in one} <= set(session.clients):
        yield "params", "it names clients that are not on the list of keys"
    if artifact.metadata.kind == "secagg-survivors":
        statement = survivors_statement(session.bound(_model(artifact)), names(artifact, "survivors"))
        for signer, row in zip(names(artifact, "signers"), artifact.tensors["signatures"], strict=True):
            known.check(signer, row.tobytes(), statement, artifact.path)


def _kept(artifact: TensorArtifact, session: Session | None, member: Member) -> Iterator[Problem]:
    """With the round's secrets, which a client keeps until it has answered, keys and commitments are made again."""
    path = member.secrets_path(artifact.metadata.round or 0)
    if artifact.metadata.kind not in ("secagg-keys", "secagg-shares") or not path.exists():
        return
    kept = member.secrets(artifact.metadata.round)
    if artifact.metadata.kind == "secagg-keys" and kept.cipher_secret:
        for name, secret in (("cipher_keys", kept.cipher_secret), ("mask_keys", kept.mask_secret)):
            if pair_of(bytes.fromhex(secret)).public != artifact.tensors[name][0].tobytes():
                yield "tensors", f"its {name} are not those of the secrets that the client keeps"
    if artifact.metadata.kind == "secagg-shares" and kept.seed and session is not None:
        made = commitment(bytes.fromhex(kept.seed), session.seed_context(member.name))
        if made != artifact.tensors["commitments"][0].tobytes():
            yield "tensors", "its commitment is not to the seed that the client keeps"
        if b"".join(map(bytes.fromhex, kept.ciphertexts or [])) != artifact.tensors["ciphertexts"].tobytes():
            yield "tensors", "its shares are not those that the client keeps a copy of"
