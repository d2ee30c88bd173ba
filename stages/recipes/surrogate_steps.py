"""One round of a method that sends synthetic sets (FedLAP, FedDM): a surrogate from each client, a model back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from artifacts.errors import UsageError
from stages.recipes.declared import declaration
from stages.recipes.recipe import Recipe
from stages.recipes.step import Step
from stages.run_folder.files import descent_file, matching_file, model_file, surrogate_file


def sends_surrogates(recipe: Recipe) -> bool:
    return bool(declaration("encode", recipe.section("encode")).kind == "surrogate")


def surrogate_step(recipe: Recipe, client: str, round: int, last: int | None, data: Sequence[str]) -> Step:
    """What a client does in a round; `last` is the round in which it took part before."""
    if len(data) != 1:
        raise UsageError(f"recipe {recipe.name}: a surrogate is made of the client's own data: synthetic must be none.")
    params = recipe.section("encode")
    for name in ("classes", "network"):
        if isinstance(params.get(name), Mapping):
            params[name] = _of_client(recipe, client, name, params[name])
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


def _of_client(recipe: Recipe, client: str, name: str, values: Mapping[Any, Any]) -> str:
    """A client's public list of classes, or its network, where the recipe gives each its own: `{"00": "3,7", …}`."""
    by_name = {str(key): value for key, value in values.items()}
    if client not in by_name:
        raise UsageError(
            f"recipe {recipe.name}: encode.{name} names {', '.join(by_name) or 'nobody'}, but not client {client!r}."
        )
    found = by_name[client]
    return ",".join(map(str, found)) if isinstance(found, list) else str(found)


def descent_step(recipe: Recipe, chosen: Sequence[str], round: int, seed: int) -> Step:
    """What the server makes of the sets."""
    own = {"rule": declaration("encode", recipe.section("encode")).rule} | recipe.section("aggregate")
    rule = declaration("aggregate", own)
    params = {**rule.agreed(recipe.stages), **own}
    seeded = {"seed": seed} if "seed" in rule.takes else {}
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
