"""One round of a method that sends synthetic sets (FedLAP, FedDM): a surrogate from each client, a model back."""

from __future__ import annotations

from collections.abc import Sequence

from artifacts.errors import UsageError
from stages.recipes.files import descent_file, matching_file, model_file, surrogate_file
from stages.recipes.recipe import Recipe
from stages.recipes.step import Step

_METHODS = ("fedlap", "feddm")
# What clients and server must agree on: said once, for the clients, it holds for the server too.
_SHARED = {
    "fedlap": ("images_per_class", "radius", "learning_rate", "lr_schedule", "lr_decay", "schedule_rounds"),
    "feddm": ("images_per_class", "rho"),
}


def sends_surrogates(recipe: Recipe) -> bool:
    return recipe.section("encode").get("method") in _METHODS


def surrogate_step(recipe: Recipe, client: str, round: int, last: int | None, data: Sequence[str]) -> Step:
    """What a client does in a round; `last` is the round in which it took part before."""
    if len(data) != 1:
        raise UsageError(f"recipe {recipe.name}: a surrogate is made of the client's own data: synthetic must be none.")
    params = recipe.section("encode")
    if recipe.section("aggregate").get("weights") == "examples":
        params["tell_examples"] = True
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
    """What the server makes of the sets."""
    encoding, own = recipe.section("encode"), recipe.section("aggregate")
    method = str(encoding["method"])
    shared = {key: encoding[key] for key in _SHARED[method] if encoding.get(key) is not None}
    if own.get("strategy") == "fixed":
        shared.pop("radius", None)
    if encoding.get("calibrate"):
        shared["calibrated"] = True
    params = {"rule": method, **shared, **own}
    seeded = {"seed": seed} if method == "feddm" else {}
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
