"""One round of a method that sends synthetic sets (FedLAP, FedDM): a surrogate from each client, a model back."""

from __future__ import annotations

from collections.abc import Sequence

from artifacts.errors import UsageError
from stages.recipes.files import descent_file, matching_file, model_file, surrogate_file
from stages.recipes.recipe import Recipe
from stages.recipes.step import Step

_METHODS = ("fedlap", "feddm")


def sends_surrogates(recipe: Recipe) -> bool:
    return recipe.section("encode").get("method") in _METHODS


def surrogate_step(recipe: Recipe, client: str, round: int, last: int | None, data: Sequence[str]) -> Step:
    """What a client does in a round; `last` is the round in which it took part before."""
    if len(data) != 1:
        raise UsageError(f"recipe {recipe.name}: a surrogate is made of the client's own data: synthetic must be none.")
    params = recipe.section("encode")
    kept = params.get("init") == "previous" and last is not None
    previous = {"previous": surrogate_file(client, last)} if kept and last is not None else {}
    metrics = matching_file(client, round)
    return Step(
        command="encode",
        owner=client,
        round=round,
        inputs=(model_file(round - 1), *data),
        needs=tuple(previous.values()),
        out=surrogate_file(client, round),
        also_writes=(metrics,),
        params=params,
        options={**previous, "metrics": metrics},
    )


def descent_step(recipe: Recipe, chosen: Sequence[str], round: int, seed: int) -> Step:
    """What the server makes of the sets. The size that was agreed on, and what method it is, the clients' part says."""
    encoding = recipe.section("encode")
    params = {"rule": encoding["method"], **recipe.section("aggregate")}
    if "images_per_class" in encoding:
        params.setdefault("images_per_class", encoding["images_per_class"])
    seeded = {"seed": seed} if params["rule"] == "feddm" else {}
    metrics = descent_file(round)
    return Step(
        command="aggregate",
        owner="server",
        round=round,
        inputs=(model_file(round - 1), *(surrogate_file(client, round) for client in chosen)),
        out=model_file(round),
        also_writes=(metrics,),
        params=params,
        options={**seeded, "metrics": metrics},
    )
