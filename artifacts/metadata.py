"""The metadata of an artifact: one JSON object under the one key `fedsynth`, and the rules that it obeys.

One key only: with two or more, safetensors writes them in a different order each time and digests break. The set
of fields is closed, so nothing can ride along; whatever an outbound file says about private data is declared.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from artifacts.digests import canonical_json, is_sha256
from artifacts.disclosures import DISCLOSURES
from artifacts.fields import CLIENT
from artifacts.formats.plain_data import parse_json
from artifacts.kinds import CUSTODIES, KINDS, TRAVEL, Custody

KEY = "fedsynth"
SCHEMA = "fedsynth.artifact/1"
MAX_ROUND = 10**9
_MOST_REMEMBERED = 1 << 14  # characters: whatever the file, little is kept of it
_MOST_FORMS = 512
# What differs from file to file of a run: values that are digests or salts, and the round. No keys: these are sorted.
_DIFFERS = re.compile(r'"(?:([0-9a-f]{64})"(?=[,}\]])|([0-9a-f]{32})"(?=[,}\]])|round":(?:0|[1-9][0-9]{0,8})(?=[,}]))')
_MARKS = {1: "\0", 2: "\1", None: "\2"}  # by the group that was found
_good_forms: set[str] = set()
# What an input may be to a file that was made from it: a kind, or one of these.
ROLES = frozenset(KINDS) | {
    "data", "previous", "server-state", "weights", "schema", "file", "keys", "masked", "unmask",
}  # fmt: skip
_WORD = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_HEX32 = re.compile(r"[0-9a-f]{32}")
_ARITHMETIC = re.compile(r"(cpu: float32, one thread, [A-Z0-9_]{1,16}|(cuda|mps): float32), [A-Za-z0-9 ._-]{1,48}")
_FIELDS = {
    "schema", "kind", "stage", "method", "custody", "client", "round", "params", "counts", "inputs", "privacy",
    "disclosures", "seed", "simulation", "versions", "arithmetic", "payload_sha256", "seal_sha256",
}  # fmt: skip
_REQUIRED = _FIELDS - {"method", "client", "round", "counts", "seed", "simulation", "arithmetic"}
_TYPES: dict[str, type] = {
    "params": dict, "counts": dict, "versions": dict, "inputs": list, "privacy": list, "disclosures": list,
    "simulation": bool, "kind": str, "stage": str, "custody": str, "method": str, "client": str, "arithmetic": str,
    "seed": int, "round": int,
}  # fmt: skip
_NOT_STATED = {"schema", "payload_sha256", "seal_sha256"}
_ABSENT: dict[str, Any] = {
    "method": None, "client": None, "round": None, "counts": {}, "seed": None, "simulation": False, "arithmetic": None,
}  # fmt: skip
_EVENT_FIELDS = {
    "id", "unit", "adjacency", "mechanism", "sampling", "sampling_rate", "noise_multiplier", "clip_norm", "steps",
    "trust", "shares", "draw", "update_noise", "count_noise", "federation",
}  # fmt: skip


class MetadataError(ValueError):
    """The metadata breaks a rule. The reader adds the file's name and what to do."""


def check_client_name(name: str) -> str:
    """Client names become folder names: letters, digits, dot, dash and underscore only, never a path."""
    if name == "server":
        raise MetadataError("client name 'server' is not allowed: a folder of that name is the server's")
    if not CLIENT.fullmatch(name):
        raise MetadataError(
            f"client name {name!r} is not allowed: use 1 to 64 letters, digits, '.', '-' or '_', "
            "beginning with a letter or digit"
        )
    return name


@dataclass(frozen=True, kw_only=True)
class InputRef:
    """What a file was made from. A private input is named by a salted commitment, never by its digest."""

    role: str
    kind: str
    sha256: str | None = None
    commitment: str | None = None
    salt: str | None = None

    def to_json(self) -> dict[str, str]:
        fields = {"role": self.role, "kind": self.kind}
        if self.sha256 is not None:
            return fields | {"sha256": self.sha256}
        return fields | {"commitment": str(self.commitment), "salt": str(self.salt)}

    def check(self) -> None:
        if self.role not in ROLES:
            raise MetadataError(f"input role {self.role!r} is not one of {', '.join(sorted(ROLES))}")
        if self.kind not in KINDS:
            raise MetadataError(f"input kind {self.kind!r} is unknown")
        if self.sha256 is not None:
            if not is_sha256(self.sha256):
                raise MetadataError(f"input {self.role!r} has a malformed sha256")
            if self.commitment is not None or self.salt is not None:
                raise MetadataError(f"input {self.role!r} is named twice")
        elif not is_sha256(self.commitment):
            raise MetadataError(f"input {self.role!r} has neither digest nor commitment")
        elif not _HEX32.fullmatch(self.salt or ""):
            raise MetadataError(f"input {self.role!r} has a malformed salt")


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """What a file says about itself; the two digests are added when it is written."""

    kind: str
    stage: str
    custody: Custody
    versions: Mapping[str, str]
    method: str | None = None
    client: str | None = None
    round: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    inputs: tuple[InputRef, ...] = ()
    privacy: tuple[Mapping[str, Any], ...] = ()
    disclosures: tuple[str, ...] = ()
    seed: int | None = None
    simulation: bool = False
    # What besides the versions decided the last bits: the kind of processor, and how it computed.
    arithmetic: str | None = None

    @property
    def travels(self) -> bool:
        """Whether it goes from a client to the server or back."""
        return self.custody in TRAVEL

    def inputs_as(self, role: str) -> list[InputRef]:
        """The inputs of one role, in order."""
        return [reference for reference in self.inputs if reference.role == role]

    def digests_of(self, role: str) -> list[str]:
        """The digests of the inputs of one role, in order; one that is named by a commitment has none."""
        return [reference.sha256 for reference in self.inputs_as(role) if reference.sha256 is not None]

    def __post_init__(self) -> None:
        _require(self.kind in KINDS, f"unknown kind {self.kind!r}")
        _require(self.custody in CUSTODIES, f"unknown custody {self.custody!r}")
        allowed = KINDS[self.kind].custodies
        _require(self.custody in allowed, f"a {self.kind} is never {self.custody} (only {', '.join(allowed)})")
        _require(bool(_WORD.fullmatch(self.stage)), f"stage {self.stage!r} is not a word")
        _require(self.method is None or bool(_WORD.fullmatch(self.method)), f"method {self.method!r} is not a word")
        if self.client is not None:
            check_client_name(self.client)
        if self.round is not None:
            ok = isinstance(self.round, int) and not isinstance(self.round, bool) and 0 <= self.round <= MAX_ROUND
            _require(ok, f"round {self.round!r} is not a number from 0 to {MAX_ROUND}")
        known = self.arithmetic is None or bool(_ARITHMETIC.fullmatch(self.arithmetic))
        _require(known, f"arithmetic {self.arithmetic!r} is none that fedsynth computes with")
        for reference in self.inputs:
            reference.check()
        for event in self.privacy:
            _require(isinstance(event, Mapping), "a privacy event is not an object")
            extra = sorted(set(event) - _EVENT_FIELDS)
            _require(not extra, f"a privacy event has the unknown field {extra[0] if extra else ''!r}")
        for name in self.disclosures:
            _require(name in DISCLOSURES, f"unknown disclosure {name!r}")
        _require(list(self.disclosures) == sorted(set(self.disclosures)), "disclosures are not sorted and unique")
        plain = not (self.privacy or self.disclosures)
        _require(plain or KINDS[self.kind].from_data, f"a {self.kind} is made from no data: no events, no disclosures")
        for name, value in self.counts.items():
            _require(name in DISCLOSURES, f"unknown count {name!r}")
            _require(type(value) is int and value >= 0, f"the count {name!r} is not a whole number")
            facts = self.custody == "private" or name in self.disclosures
            _require(facts, f"{name!r} is stated but not among the disclosures")
        if self.travels:
            _require(self.seed is None and "seed" not in self.params, f"a seed is in {self.custody} metadata")
        if self.custody == "outbound":
            _require(self.client is not None, "an outbound file names no client")

    def to_json(self, *, payload_sha256: str, seal_sha256: str) -> dict[str, Any]:
        """The JSON object; fields that say nothing are left out."""
        fields: dict[str, Any] = {
            "schema": SCHEMA,
            "kind": self.kind,
            "stage": self.stage,
            "custody": self.custody,
            "params": dict(self.params),
            "inputs": [reference.to_json() for reference in self.inputs],
            "privacy": [dict(event) for event in self.privacy],
            "disclosures": list(self.disclosures),
            "versions": dict(self.versions),
            "payload_sha256": payload_sha256,
            "seal_sha256": seal_sha256,
        }
        optional = {"method": self.method, "client": self.client, "round": self.round, "seed": self.seed}
        optional["arithmetic"] = self.arithmetic
        fields |= {name: value for name, value in optional.items() if value is not None}
        if self.counts:
            fields["counts"] = dict(self.counts)
        if self.simulation:
            fields["simulation"] = True
        return fields


@dataclass(frozen=True)
class SealedMetadata:
    """Metadata as found in a file, with its two digests."""

    metadata: Metadata
    payload_sha256: str
    seal_sha256: str


def parse(text: str) -> SealedMetadata:
    """Read the JSON object. Anything unknown, missing, repeated or not in canonical form is refused.

    A stage looks at its files' headers before it reads them, and a run's stages read the same model: what was parsed
    lately is not parsed again.
    """
    return _parse_once(text) if len(text) <= _MOST_REMEMBERED else _parse(text)


@functools.lru_cache(maxsize=256)
def _parse_once(text: str) -> SealedMetadata:
    """Of a text that differs from one that was found good in digests and the round alone, nothing else is checked.

    An audit reads ten thousand such. No digest and no round that the patterns below take can break a rule, and the
    marks cannot be in JSON, so that no other text has the same form.
    """
    form = _DIFFERS.sub(lambda found: _MARKS[found.lastindex], text)
    if form in _good_forms:
        with contextlib.suppress(ValueError):
            return _sealed(json.loads(text), checked=True)
    sealed = _parse(text)
    if len(_good_forms) >= _MOST_FORMS:
        _good_forms.clear()
    _good_forms.add(form)
    return sealed


def _parse(text: str) -> SealedMetadata:
    try:
        fields = parse_json(text, canonical=True)
    except ValueError as error:
        raise MetadataError(f"the metadata is not JSON ({error})") from error
    _require(isinstance(fields, dict), "the metadata is not a JSON object")
    found = fields.get("schema")
    _require(found == SCHEMA, f"schema is {found!r}; this version reads {SCHEMA!r}")
    if not _REQUIRED <= fields.keys() <= _FIELDS:
        unknown, missing = sorted(fields.keys() - _FIELDS), sorted(_REQUIRED - fields.keys())
        _require(not unknown, f"the metadata has the unknown field {unknown[0] if unknown else ''!r}")
        raise MetadataError(f"the metadata lacks {missing[0]!r}")
    for name, value in fields.items():
        if not isinstance(value, _TYPES.get(name, str)):
            raise MetadataError(f"the metadata field {name!r} has the wrong type")
    _require(is_sha256(fields["payload_sha256"]) and is_sha256(fields["seal_sha256"]), "a digest is malformed")
    _require(all(isinstance(v, str) for v in fields["versions"].values()), "a version is not a string")
    _require(all(isinstance(v, str) for v in fields["disclosures"]), "a disclosure is not a string")
    for entry in fields["inputs"]:
        named = isinstance(entry, dict) and entry.keys() <= InputRef.__dataclass_fields__.keys()
        _require(named and all(isinstance(v, str) for v in entry.values()), "an input is malformed")
        _require("role" in entry and "kind" in entry, "an input lacks role or kind")
    sealed = _sealed(fields)
    metadata = sealed.metadata
    # Key order and spacing could carry bits: only the one canonical text is read.
    again = metadata.to_json(payload_sha256=sealed.payload_sha256, seal_sha256=sealed.seal_sha256)
    try:
        canonical = canonical_json(again) == text
        if not canonical:
            # A repeated key is not in canonical form either; to look for one in every file takes as long as to read it.
            parse_json(text)
    except ValueError as error:
        raise MetadataError(f"the metadata is not JSON as fedsynth writes it ({error})") from error
    _require(canonical, "the metadata is not in canonical form")
    return sealed


def _sealed(fields: dict[str, Any], *, checked: bool = False) -> SealedMetadata:
    """The metadata from their JSON; those that are known to obey the rules (`checked`) are not held to them again."""
    values = {name: value for name, value in fields.items() if name not in _NOT_STATED}
    values["inputs"] = tuple(InputRef(**entry) for entry in fields["inputs"])
    values["privacy"], values["disclosures"] = tuple(fields["privacy"]), tuple(fields["disclosures"])
    if checked:
        metadata = object.__new__(Metadata)
        metadata.__dict__.update(_ABSENT | values)
    else:
        metadata = Metadata(**values)
    return SealedMetadata(metadata, fields["payload_sha256"], fields["seal_sha256"])


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise MetadataError(message)
