"""One client in a round: its secrets, in a private file that only it can read, and the book of what it has done.

The book (`secagg.jsonl`, a chained log beside the key) is what makes «once a round» true: each step is entered before
its file is written, the same again is free, anything else is refused, with --force too. A step whose forerunner is not
entered is refused as well, so that nothing is gained by deleting the book. (A client that puts back an old copy of its
whole private folder deceives itself: no program on its own disk can notice.)
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from artifacts.digests import ZEROS, canonical_json, is_sha256
from artifacts.errors import InputError, VerificationError
from artifacts.formats.plain_data import read_json
from artifacts.identity import keys
from artifacts.identity.keys import Key
from artifacts.identity.owner import refuse_shared
from artifacts.ledgers import chain
from artifacts.metadata import InputRef, Metadata
from artifacts.places import client_of
from artifacts.publish import prepare
from artifacts.writing import atomic, locks
from stages.charging.spending import key_of
from stages.execution.versions import versions
from stages.secagg.roster import signing_key
from stages.secagg.session import Session

Step = Literal["keys", "shares", "mask", "confirm", "unmask"]
_ORDER: tuple[Step, ...] = ("keys", "shares", "mask", "confirm", "unmask")
_SCHEMA = "fedsynth.secagg/1"
_BOOK = "secagg.jsonl"


@dataclass(frozen=True)
class Secrets:
    """What a client keeps of a round, as JSON, mode 0600. `repr` hides it. Keys, seeds and shares are hexadecimal."""

    client: str
    round: int
    cipher_secret: str = ""
    mask_secret: str = ""
    seed: str = ""
    session: dict[str, Any] | None = None  # the list of keys that it answered
    verify_keys: dict[str, str] | None = None  # of those on the list
    ciphertexts: list[str] | None = None  # what it sent: the same list gets the same answer
    received: dict[str, list[str]] | None = None  # by peer: the shares of its seed and of its mask key
    receivers: list[str] | None = None  # whom it drew to hold its shares, where that is not everybody
    present: list[str] | None = None  # those of them who sent shares too, when it masked
    model: str = ""  # the digest of the model that its masked update is for

    def __repr__(self) -> str:
        return f"Secrets({self.client}, round {self.round}, …)"

    @property
    def opened(self) -> Session:
        """The session that the client is in."""
        assert self.session is not None  # the book has the entry of `shares`
        fields = dict(self.session)
        for name in ("cipher_keys", "mask_keys"):
            fields[name] = {client: bytes.fromhex(key) for client, key in fields[name].items()}
        return Session(**{**fields, "clients": tuple(fields["clients"])})


@dataclass(frozen=True)
class Member:
    """A client at work on one of its files."""

    name: str
    key_path: Path
    key: Key

    @classmethod
    def writing(cls, out: Path, *, key: Path | None, client: str | None) -> Member:
        prepare(out, "outbound")
        name, path = client_of(out, client), key_of(out, key)
        return cls(name, path, keys.read(path))

    @property
    def identity(self) -> bytes:
        return signing_key(self.key)

    @property
    def book(self) -> Path:
        return self.key_path.with_name(_BOOK)

    def secrets_path(self, round: int) -> Path:
        return self.key_path.with_name(f"secagg-{round:04}.json")

    def about(self, kind: str, step: Step, round: int, *inputs: InputRef, **fields: Any) -> Metadata:
        """The metadata of a file that leaves."""
        return Metadata(
            kind=kind, stage="secagg", method=step, custody="outbound", client=self.name, round=round, inputs=inputs,
            simulation=self.key.simulation, versions=versions("cryptography"), **fields,
        )  # fmt: skip

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """While something is drawn that must be kept and sent as one: the same step in another process waits."""
        return locks.held(self.key_path.parent, "fedsynth secagg", wait=True, name="secagg")

    def keep(self, secrets: Secrets) -> None:
        fields = {"schema": _SCHEMA, **vars(secrets)}
        text = canonical_json({**fields, "mac": self._mac(fields)})
        atomic.write(self.secrets_path(secrets.round), [text.encode() + b"\n"], force=True, custody="private")

    def _mac(self, fields: dict[str, Any]) -> str:
        """By which a file that another hand changed is known, whatever was changed in it."""
        return keys.hmac_sha256(self.key.derive("secagg secrets"), canonical_json(fields).encode()).hex()

    def secrets(self, round: int | None) -> Secrets:
        """What the client keeps of this round."""
        path = self.secrets_path(round or 0)
        try:
            refuse_shared(path.stat(), path, "the file of secrets")
            fields = read_json(path)
            if fields.pop("mac") != self._mac(fields) or fields.pop("schema") != _SCHEMA:
                raise ValueError
            secrets = Secrets(**fields)
            if secrets.session is not None:
                _ = secrets.opened
        except FileNotFoundError:
            raise InputError(f"{self.name!r} has no secrets of round {round} at {path}. Begin: secagg keys.") from None
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}.") from error
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InputError(f"{path} is damaged: this client cannot go on in round {round}.") from None
        if (secrets.client, secrets.round) != (self.name, round):
            raise InputError(f"{path} is of client {secrets.client!r}, round {secrets.round}, not of {self.name!r}.")
        return secrets

    def once(self, step: Step, round: int, session: str, output: str) -> None:
        """Enter a step, before its file is written. The same again is free; another one is refused."""
        if step != "keys" and not self.book.exists():
            self._check_order(step, round, session, [])  # refuses, and leaves no empty book
        with chain.locked(self.book, _is_entry) as log:
            mine = [entry for entry in log.read().entries if entry["round"] == round]
            if step == "keys":
                if [entry["output"] for entry in mine if entry["entry"] == "keys"][-1:] == [output]:
                    return
                if any(entry["entry"] == "mask" for entry in mine):
                    raise VerificationError(_refusal(self.book, "masked its update", round))
            else:
                begun = max((i for i, entry in enumerate(mine) if entry["entry"] == "keys"), default=len(mine))
                mine = mine[begun:]
                self._check_order(step, round, session, mine)
                before = [entry["output"] for entry in mine if entry["entry"] == step]
                if output in before:
                    return
                if before:
                    raise VerificationError(_refusal(self.book, _DONE[step], round))
            log.append({"entry": step, "round": round, "session": session, "output": output})

    def forget_answered(self) -> None:
        """Of the round that the client answered last nothing is kept, even if it was killed before it could forget."""
        answered = [entry["round"] for entry in chain.read(self.book, _is_entry).entries if entry["entry"] == "unmask"]
        if answered:
            self.keep(Secrets(self.name, answered[-1]))

    def did(self, step: Step, round: int) -> str | None:
        """What the client entered for this step, if it did."""
        entries = chain.read(self.book, _is_entry).entries
        found = [entry["output"] for entry in entries if (entry["entry"], entry["round"]) == (step, round)]
        return found[-1] if found else None

    def _check_order(self, step: Step, round: int, session: str, mine: list[dict[str, Any]]) -> None:
        needed = _ORDER[_ORDER.index(step) - 1]
        done = [entry for entry in mine if entry["entry"] == needed]
        if not done:
            raise InputError(
                f"{self.book} has no entry of `secagg {needed}` by {self.name!r} in round {round}, which comes before "
                f"`secagg {step}`."
            )
        if needed != "keys" and done[-1]["session"] != session:
            raise VerificationError(_refusal(self.book, "answered another list of keys", round))


_DONE = {
    "shares": "answered another list of keys",
    "mask": "masked another update",
    "confirm": "signed another survivor list",
    "unmask": "answered another request to unmask",
}


def _refusal(book: Path, done: str, round: int) -> str:
    return (
        f"refused: by {book} this client {done} in round {round} already, and does so once, --force notwithstanding. "
        "Two answers together could uncover its update; go on with the next round."
    )


def _is_entry(fields: dict[str, Any]) -> bool:
    if fields.keys() != {"seq", "previous", "entry", "round", "session", "output"}:
        return False
    digests = is_sha256(fields["session"]) and is_sha256(fields["output"])
    return fields["entry"] in _ORDER and type(fields["round"]) is int and digests


NO_SESSION = ZEROS
