"""The terms of a federation, `federation.yaml`: what everybody who takes part has read and agreed to.

The server and each client have their own copy. Every message names its digest, so that nobody works by other terms
without knowing it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from artifacts.digests import sha256_hex
from artifacts.errors import InputError, UsageError
from artifacts.formats.plain_data import dump_yaml, parse_yaml, read_mapping
from artifacts.metadata import MetadataError, check_client_name
from artifacts.places import TERMS
from stages.execution.versions import versions
from stages.partition import CENTRAL
from stages.recipes.recipe import Recipe, recipe_of
from stages.words import counted

FILE = TERMS
_MOST_BYTES = 2**31
_FIELDS = ("seed", "clients", "least_clients", "wait", "most_bytes", "signed", "versions")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """`least_clients`: fewer answers than this end the run, to be gone on with later. `wait`: seconds that a round
    waits for an answer. `most_bytes`: of one file. `signed`: the server takes only what a client of the roster has
    signed. `versions` are those by which all make the same bytes.
    """

    recipe: Recipe
    seed: int
    clients: tuple[str, ...]
    least_clients: int
    wait: float
    most_bytes: int
    signed: bool
    versions: Mapping[str, str]

    def __post_init__(self) -> None:
        if self.recipe.sweep:
            raise UsageError(f"recipe {self.recipe.name} is a sweep: several runs. Fix each key of it by --set.")
        if not self.clients or len(set(self.clients)) != len(self.clients):
            raise UsageError(f"{FILE}: clients must be one name or more, each once; found {list(self.clients)}.")
        for name in self.clients:
            try:
                check_client_name(name)
            except MetadataError as error:
                raise UsageError(f"{FILE}: {error}.") from error
        if not 1 <= self.least_clients <= len(self.clients):
            raise UsageError(
                f"{FILE}: least_clients must be from 1 to the number of clients, {len(self.clients)}; found "
                f"{self.least_clients}."
            )
        if self.wait <= 0:
            raise UsageError(f"{FILE}: wait must be more than 0 seconds, found {self.wait}.")
        if not 1 <= self.most_bytes <= _MOST_BYTES:
            raise UsageError(f"{FILE}: most_bytes must be from 1 to {_MOST_BYTES:,}, found {self.most_bytes:,}.")

    @property
    def participants(self) -> tuple[str, ...]:
        """All who answer to the server: the clients, and the central party where the recipe has one."""
        return (*self.clients, CENTRAL) if self.recipe.synthetic == "pooled" else self.clients

    @cached_property
    def digest(self) -> str:
        return sha256_hex(self.to_yaml().encode())

    def to_yaml(self) -> str:
        said: dict[str, Any] = {
            "seed": self.seed,
            "clients": list(self.clients),
            "least_clients": self.least_clients,
            "wait": self.wait,
            "most_bytes": self.most_bytes,
            "signed": self.signed,
            "versions": dict(self.versions),
        }
        recipe = parse_yaml(self.recipe.to_yaml())
        return dump_yaml({"federation": said, "recipe": recipe}, allow_unicode=True)


def our_versions() -> dict[str, str]:
    """What determines the bytes of a file here."""
    return versions("torch")


def agreed(
    recipe: Recipe,
    clients: tuple[str, ...],
    *,
    seed: int,
    least_clients: int | None = None,
    wait: float,
    most_bytes: int,
    signed: bool = False,
) -> Terms:
    """Terms for a recipe, as they are first written down. All who are drawn must answer, unless it is said otherwise.

    How a simulation divides its data is no matter of a federation, and may name a path: it is left out, and so are the
    words of a recipe about its data.
    """
    stages = {name: values for name, values in recipe.stages.items() if name != "partition"}
    share = "all of them" if recipe.participation == 1 else f"{recipe.participation:.0%} of them"
    about = f"{recipe.name} between {len(clients)} clients: {counted(recipe.rounds, 'round')}, {share} in each."
    recipe = replace(recipe, about=about, stages={name: _given(values) for name, values in stages.items()})
    least = least_clients if least_clients is not None else max(1, round(recipe.participation * len(clients)))
    return Terms(
        recipe=recipe, seed=seed, clients=clients, least_clients=least, wait=wait, most_bytes=most_bytes,
        signed=signed, versions=our_versions(),
    )  # fmt: skip


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without the parameters that were set to nothing: a file that is read again has none of them."""
    return {name: value for name, value in values.items() if value is not None}


def read_terms(path: Path) -> Terms:
    """The terms in a file. Read as data; nothing in it is run."""
    if not path.is_file():
        raise InputError(f"no terms at {path}. Put the federation's {FILE} there, once you have read it.")
    values = read_mapping(path)
    said, recipe = values.get("federation"), values.get("recipe")
    if set(values) != {"federation", "recipe"} or not isinstance(said, dict) or not isinstance(recipe, dict):
        raise InputError(f"{path} is no {FILE}: the keys federation and recipe are needed, found {sorted(values)}.")
    if sorted(said) != sorted(_FIELDS):
        raise InputError(f"{path}: federation must have the keys {', '.join(_FIELDS)}; found {', '.join(said)}.")
    wanted: dict[str, type | tuple[type, ...]] = {
        "seed": int, "clients": list, "least_clients": int, "wait": (int, float), "most_bytes": int, "signed": bool,
        "versions": dict,
    }  # fmt: skip
    for name, kind in wanted.items():
        if not isinstance(said[name], kind) or (kind is int and isinstance(said[name], bool)):
            raise InputError(f"{path}: federation.{name} has a wrong value: {said[name]!r}.")
    return Terms(recipe=recipe_of(recipe, path), **{**said, "clients": tuple(map(str, said["clients"]))})
