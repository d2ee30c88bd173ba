"""What the server sends, held against the terms before a client works with it.

A file that is whole and signed may still be another one than was agreed: a network that remembers more, a sum over
fewer clients. Terms that only the server keeps would be none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from artifacts.errors import UsageError
from artifacts.formats import tensors_file
from stages.federate.parcels import ParcelError, kind_of
from stages.federate.tasks import is_from_server
from stages.federate.terms import Terms
from stages.models.file import network_of
from stages.recipes.plan import participants
from stages.recipes.secagg_steps import list_terms
from stages.recipes.step import Step
from stages.registry import NETWORKS
from stages.secagg.collect import declared
from stages.secagg.terms import SecaggTerms

_SURVIVORS = ("secagg confirm", "secagg unmask")


def check_agreed(step: Step, home: Path, terms: Terms) -> None:
    """Refuse with `ParcelError` what a client's step would read that is not by the terms."""
    for name in step.inputs:
        if is_from_server(name) and kind_of(name) == "model":
            _check_network(home / name, terms)
    if step.command == "secagg shares":
        _check_keys(home / step.inputs[0], step.round, terms)
    elif step.command in _SURVIVORS:
        path = home / step.inputs[0]
        _check_number(_params(path).get("survivors"), path, _asked(terms, step.round), terms)


def _check_network(path: Path, terms: Terms) -> None:
    found, _ = network_of(tensors_file.read_header(path)[0], path)
    said = terms.recipe.section("init-model")
    said.pop("weights", None)  # a file of the server's
    wanted = NETWORKS.from_mapping(said)
    if found.to_json() != wanted.to_json():
        raise ParcelError(f"{path} is a network {found.to_json()}, by the terms it is {wanted.to_json()}.")


def _check_keys(path: Path, round: int, terms: Terms) -> None:
    asked, said = _asked(terms, round), _params(path)
    count = _check_number(said.pop("clients", None), path, asked, terms)
    try:
        wanted = declared(SecaggTerms.from_mapping(list_terms(terms.recipe, len(asked))), count)
    except UsageError as error:
        raise ParcelError(f"{path}: {error}") from error
    odd = next((name for name in sorted(wanted | said) if wanted.get(name) != said.get(name)), None)
    if odd is not None:
        raise ParcelError(f"{path} has {odd} {said.get(odd)}, by the terms it is {wanted.get(odd)}.")


def _check_number(names: Any, path: Path, asked: Sequence[str], terms: Terms) -> int:
    """How many clients a list has: those who were asked, and not fewer than the terms want."""
    if not isinstance(names, list) or not set(names) <= set(asked):
        raise ParcelError(f"{path} names others than those who take part in this round by the terms.")
    least = min(terms.least_clients, len(asked))
    if len(names) < least:
        raise ParcelError(f"{path} has {len(names)} clients, fewer than the {least} that the terms want.")
    return len(names)


def _asked(terms: Terms, round: int) -> list[str]:
    """Under masks the draw is public: everybody knows whom the server may ask."""
    return participants(terms.recipe, terms.clients, round, terms.seed)


def _params(path: Path) -> dict[str, Any]:
    return dict(tensors_file.read_header(path)[0].params)
