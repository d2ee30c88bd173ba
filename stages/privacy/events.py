"""Privacy events: what a mechanism did, in the words that are in an artifact's metadata (rules 2 to 4 and 19).

An event says what was done; what it costs is the accountant's to say. Anything unknown is an error, never zero.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stages.privacy.adaptive_clip import joint_noise, update_noise
from stages.privacy.streams import context_digest, key_for_digest

# The smaller before the larger: a person has records, a client has people.
Unit = Literal["record", "person", "client"]
UNITS: tuple[Unit, ...] = get_args(Unit)
Adjacency = Literal["add-or-remove", "replace-one"]
Mechanism = Literal["gaussian", "sampled-gaussian"]
Sampling = Literal["none", "poisson"]
# Who must be trusted for the ε to hold. nobody: the file carries all of its noise. server: it sees what was not noised,
# or who took part, and keeps it. aggregate: only the sum of the clients' noise shares is ever seen.
Trust = Literal["nobody", "server", "aggregate"]

_WORDS = {"unit": Unit, "adjacency": Adjacency, "mechanism": Mechanism, "sampling": Sampling, "trust": Trust}
_OPTIONAL = {"draw", "update_noise", "count_noise", "federation"}
_ID = re.compile(r"[0-9a-f]{64}")
_FEDERATION = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})?")
PLANNED_ID = "0" * 64  # of an event that has not happened
MAX_STEPS = 10**9
LEAST_NOISE, MOST_NOISE = 1e-3, 1e6
LEAST_RATE = 1e-12


@dataclass(frozen=True, kw_only=True)
class PrivacyEvent:
    """`steps` releases, each a sum of contributions clipped to `clip_norm` plus N(0, (noise_multiplier·clip_norm)²).

    Before each, every unit was drawn with `sampling_rate` by a secret Poisson sample, or all were taken. `steps` is the
    cap, even if a loop ended early (rule 2). `shares` is the number of files over which the noise is spread (rule 23):
    each alone carries noise_multiplier/√shares, and only their sum the whole. `draw` names the secret sample of clients
    behind an amplified event, the same whatever key made the noise: its coins amplify one release (rules 4 and 29).
    `count_noise` is σ_b of a count that was released along with the sum for an adaptive clip, `update_noise` the noise
    multiplier of the sum itself; `noise_multiplier` is that of both together (`adaptive_clip`). `federation` is the id
    of the one in which it was released: in another it counts for nothing. It is empty where nobody had a roster yet.
    """

    id: str
    unit: Unit
    adjacency: Adjacency
    mechanism: Mechanism
    sampling: Sampling
    sampling_rate: float
    noise_multiplier: float
    clip_norm: float
    steps: int
    trust: Trust
    shares: int = 1
    draw: str = ""
    update_noise: float = 0.0
    count_noise: float = 0.0
    federation: str = ""

    def __post_init__(self) -> None:
        for name, words in _WORDS.items():
            if getattr(self, name) not in get_args(words):
                self._refuse(name, f"one of {', '.join(get_args(words))}")
        for name in ("sampling_rate", "noise_multiplier", "clip_norm", "update_noise", "count_noise"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not math.isfinite(value):
                self._refuse(name, "a finite number")
            object.__setattr__(self, name, float(value))
        if not (isinstance(self.id, str) and _ID.fullmatch(self.id)):
            self._refuse("id", "64 hexadecimal digits")
        if type(self.steps) is not int or not 1 <= self.steps <= MAX_STEPS:
            self._refuse("steps", f"a whole number from 1 to {MAX_STEPS}")
        if not LEAST_NOISE <= self.noise_multiplier <= MOST_NOISE:
            self._refuse("noise_multiplier", f"from {LEAST_NOISE} to {MOST_NOISE:.0f}")
        if not self.clip_norm > 0:
            self._refuse("clip_norm", "greater than 0")
        if not LEAST_RATE <= self.sampling_rate <= 1:
            self._refuse("sampling_rate", f"from {LEAST_RATE} to 1")
        if type(self.shares) is not int or not 1 <= self.shares <= MAX_STEPS:
            self._refuse("shares", f"a whole number from 1 to {MAX_STEPS}")
        if (self.shares > 1) != (self.trust == "aggregate"):
            self._refuse("trust", "'aggregate' where the noise comes in shares, and only there")
        if not (isinstance(self.federation, str) and _FEDERATION.fullmatch(self.federation)):
            self._refuse("federation", "the id of one, or nothing")
        self._check_sampling()
        self._check_count()

    def _check_sampling(self) -> None:
        sampled = self.mechanism == "sampled-gaussian"
        if sampled != (self.sampling == "poisson"):
            self._refuse("sampling", f"'{'poisson' if sampled else 'none'}' for the mechanism {self.mechanism}")
        if not sampled and self.sampling_rate != 1:
            self._refuse("sampling_rate", "1 where nothing is sampled")
        # Rule 4: a file in an outbox shows that its client took part; only a trusted server can hide that.
        if self.unit == "client" and sampled and self.trust != "server":
            self._refuse("trust", "'server' where amplification by sampling clients is claimed")
        if self.draw and not (sampled and isinstance(self.draw, str) and _ID.fullmatch(self.draw)):
            self._refuse("draw", "64 hexadecimal digits, where a sample was drawn")

    def _check_count(self) -> None:
        """Sum and count together hide at least what the event claims; what it claims for a smaller unit is less."""
        if self.update_noise == self.count_noise == 0:
            return
        if not (
            LEAST_NOISE <= self.update_noise <= 2 * MOST_NOISE and LEAST_NOISE <= self.count_noise <= MOST_NOISE**2
        ):
            self._refuse("count_noise", "in range, beside an update_noise that is")
        if self.noise_multiplier > joint_noise(self.update_noise, self.count_noise) * (1 + 1e-9):
            self._refuse("noise_multiplier", "at most what update_noise and count_noise give together")

    def _refuse(self, name: str, rule: str) -> None:
        raise ValueError(f"{name} of a privacy event must be {rule}; found {getattr(self, name)!r}")

    def to_json(self) -> dict[str, Any]:
        """As it is in the metadata: every field, and the draw and the noise of a count where there are some."""
        fields = dataclasses.asdict(self)
        return {name: value for name, value in fields.items() if value or name not in _OPTIONAL}

    @classmethod
    def planned(
        cls,
        *,
        unit: Unit,
        sampling_rate: float,
        noise_multiplier: float,
        clip_norm: float,
        steps: int,
        trust: Trust,
        adjacency: Adjacency = "add-or-remove",
        shares: int = 1,
        draw: str = "",
        count_noise: float = 0.0,
    ) -> PrivacyEvent:
        """An event that has not happened; a Poisson sample is drawn unless the rate is 1."""
        sampled = sampling_rate != 1
        return cls(
            id=PLANNED_ID,
            unit=unit,
            adjacency=adjacency,
            mechanism="sampled-gaussian" if sampled else "gaussian",
            sampling="poisson" if sampled else "none",
            sampling_rate=sampling_rate,
            noise_multiplier=noise_multiplier,
            clip_norm=clip_norm,
            steps=steps,
            trust=trust,
            shares=shares,
            draw=draw,
            update_noise=update_noise(noise_multiplier, count_noise) if count_noise else 0.0,
            count_noise=count_noise,
        )

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> PrivacyEvent:
        """Read an event. A field that is unknown or missing raises `ValueError`."""
        if not isinstance(fields, Mapping):
            raise ValueError(f"a privacy event is a mapping of names to values, found {fields!r}")
        known = cls.__dataclass_fields__.keys()
        unknown, missing = sorted(fields.keys() - known), sorted(known - fields.keys() - _OPTIONAL)
        if unknown or missing:
            raise ValueError(
                f"a privacy event has the unknown field {unknown[0]!r}"
                if unknown
                else f"a privacy event lacks {missing[0]!r}"
            )
        return cls(**fields)


def in_words(event: PrivacyEvent) -> str:
    """One line for a person."""
    sampled = f", each {event.unit} in a step with q = {event.sampling_rate:g}" if event.sampling == "poisson" else ""
    trust = {"nobody": "", "server": "; the server is trusted", "aggregate": "; nobody may see this file alone"}
    people = {"person": "people"}.get(event.unit, f"{event.unit}s")
    spread = f", spread over {event.shares} files" if event.shares > 1 else ""
    steps = f"{event.steps:,} step{'s' if event.steps > 1 else ''}"
    parts = f" ({event.update_noise:.4g} of the sum, {event.count_noise:g} of a count)" if event.count_noise else ""
    return f"{people}: {steps} with noise σ = {event.noise_multiplier:g}{parts}{spread}{sampled}{trust[event.trust]}"


def for_unit(event: PrivacyEvent, unit: Unit) -> PrivacyEvent | None:
    """The event as one about this unit; None where it says nothing about it.

    What protects a larger unit protects what is in it, with half the noise: a record that comes or goes does not take
    its person or its client away, it changes what they contribute, from one vector of length C to any other. The
    other way there is nothing: anyone who has several records moves the sum by more than one of them.
    """
    if event.unit == unit:
        return event
    if UNITS.index(event.unit) < UNITS.index(unit) or event.noise_multiplier < 2 * LEAST_NOISE:
        return None
    return dataclasses.replace(event, unit=unit, noise_multiplier=event.noise_multiplier / 2)


def for_unit_in_all(event: PrivacyEvent, unit: Unit, clients: int) -> PrivacyEvent | None:
    """The same for a unit that may be in the data of all of so many clients.

    Noise that covers a sum over clients meets what it changes in each of them: up to 2C times their number. Where each
    client answers for a share of that noise, all of their events together have to say so.
    """
    found = for_unit(event, unit)
    if found is None or event.unit != "client" or unit == "client" or event.trust == "nobody":
        return found
    factor = clients if event.trust == "server" else math.sqrt(clients)
    if not clients or found.noise_multiplier / factor < LEAST_NOISE:
        return None
    return dataclasses.replace(unsampled(found), noise_multiplier=found.noise_multiplier / factor)


def alone(event: PrivacyEvent) -> PrivacyEvent:
    """What a file with a share of the noise is worth to someone who sees it alone (rule 23)."""
    return dataclasses.replace(
        event, noise_multiplier=event.noise_multiplier / math.sqrt(event.shares), shares=1, trust="nobody"
    )


def unsampled(event: PrivacyEvent) -> PrivacyEvent:
    """The event without amplification: a bound for anyone who knows who took part."""
    return dataclasses.replace(event, mechanism="gaussian", sampling="none", sampling_rate=1.0, draw="")


def once_per_draw(events: Iterable[PrivacyEvent]) -> list[PrivacyEvent]:
    """The events with one draw of clients amplifying one of them: who was in that release is in the others too."""
    used: set[str] = set()
    found = []
    for event in events:
        found.append(unsampled(event) if event.draw in used else event)
        used |= {event.draw} - {""}
    return found


def merged(files: Sequence[Sequence[PrivacyEvent]]) -> list[PrivacyEvent]:
    """What an aggregate of several clients' files costs one unit, which is in one client's data (rule 30).

    Events that say the same of several clients become one, whose id is made from theirs: the k-th of a kind of one
    client with the k-th of the others. Where clients differ, all kinds stay, as if one client had made them all.
    """
    if len(files) == 1:
        return list(files[0])
    same: dict[tuple[PrivacyEvent, int], list[str]] = {}
    for events in files:
        count: dict[PrivacyEvent, int] = {}
        for event in distinct(events):
            kind = dataclasses.replace(event, id=PLANNED_ID)
            same.setdefault((kind, count.get(kind, 0)), []).append(event.id)
            count[kind] = count.get(kind, 0) + 1
    return [dataclasses.replace(kind, id=_together(ids) if len(ids) > 1 else ids[0]) for (kind, _), ids in same.items()]


def merged_json(files: Iterable[Sequence[Mapping[str, Any]]]) -> tuple[dict[str, Any], ...]:
    """`merged`, from metadata to metadata. An event that is not understood raises `ValueError`."""
    events = merged([[PrivacyEvent.from_json(fields) for fields in each] for each in files])
    return tuple(event.to_json() for event in events)


def _together(ids: Sequence[str]) -> str:
    text = "\n".join(sorted(set(ids)))
    return hashlib.sha256(f"fedsynth/1 events of an aggregate\n{text}".encode()).hexdigest()


def output_digest(tensors: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over names, types, shapes and bytes of what a mechanism gave out."""
    state = hashlib.sha256()
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        state.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        state.update(array.reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def event_id(key: bytes, context: Mapping[str, Any], output_digest: str) -> str:
    """HMAC-SHA256 over the context and the digest of the mechanism's output, under a key of its own (rule 19).

    Two artifacts made from one noised output carry one id, and are charged once; another output has another id. Without
    the key it tells nothing about either.
    """
    return event_id_for_digest(key, context_digest(context), output_digest)


def event_id_for_digest(key: bytes, context: bytes, output_digest: str) -> str:
    """The same from the digest of a context, as the spend ledger has it: by this an audit finds whose an event is."""
    if not _ID.fullmatch(output_digest):
        raise ValueError(f"the output's digest must be 64 hexadecimal digits, found {output_digest!r}")
    message = context + bytes.fromhex(output_digest)
    return hmac.digest(key_for_digest(key, "event id", context), message, "sha256").hex()


def distinct(events: Iterable[PrivacyEvent]) -> list[PrivacyEvent]:
    """Each id once, in the order in which they came. Conflicting fields under one id raise `ValueError` (rule 19)."""
    found: dict[str, PrivacyEvent] = {}
    for event in events:
        first = found.setdefault(event.id, event)
        if first != event:
            wrong = next(n for n, v in dataclasses.asdict(first).items() if getattr(event, n) != v)
            values = f"{getattr(first, wrong)!r} and {getattr(event, wrong)!r}"
            raise ValueError(f"two privacy events have the id {event.id[:12]}…, but {wrong} is {values}")
    return list(found.values())
