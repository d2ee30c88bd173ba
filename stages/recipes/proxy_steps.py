"""Rounds of TOFU (Algorithm 3): proxies up, an aggregated one down, and everybody follows it; at last full updates.

With one client alone (Sec. 4, the single device) there is nothing to aggregate and nothing goes down: server and client
follow the client's own proxy. Full updates go under masks where the recipe is `secure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from artifacts.errors import UsageError
from stages.recipes.declared import declaration
from stages.recipes.recipe import Recipe
from stages.recipes.secagg_steps import secure_mean
from stages.recipes.step import Step
from stages.registry import ALGORITHMS
from stages.run_folder.files import (
    aggregated_update,
    followed_model,
    message_file,
    model_file,
    proxy_file,
    update_file,
)


def sends_proxies(recipe: Recipe) -> bool:
    return bool(declaration("encode", recipe.section("encode")).by_server)


def model_of(recipe: Recipe, owner: str, round: int) -> str:
    """Where `owner` has the model after a round: made by itself, or, first and last, sent by the server."""
    if sends_proxies(recipe) and round and not _is_full(recipe, round):
        return followed_model(owner, round)
    return model_file(round)


def proxy_steps(
    recipe: Recipe, clients: Sequence[str], round: int, data: dict[str, tuple[str, ...]], seed: int
) -> list[Step]:
    """All steps of a round. Everybody takes part in all of them: who missed one could not follow."""
    algorithm = declaration("train-client", recipe.section("train-client"))
    if recipe.participation != 1 or not algorithm.additive:
        allowed = ", ".join(ALGORITHMS.having("additive"))
        raise UsageError(f"recipe {recipe.name}: proxies need participation 1 and one of the algorithms {allowed}.")
    full = _is_full(recipe, round)
    steps = []
    for client in clients:
        steps.append(
            Step(
                command="train-client",
                owner=client,
                round=round,
                inputs=(model_of(recipe, client, round - 1), *data[client]),
                out=update_file(client, round),
                params=recipe.section("train-client"),
                options={"seed": seed},
            )
        )
        if full and not recipe.secure:
            out, params = message_file(client, round), {"method": "delta"}
            steps.append(_encode(recipe, client, round, update_file(client, round), out, params, {}))
        elif not full:
            steps.append(_proxy(recipe, client, round, update_file(client, round)))
    update = aggregated_update(round)
    if full:
        files = [message_file(client, round) for client in clients]
        if recipe.secure:
            begun = {c: (model_of(recipe, c, round - 1), update_file(c, round)) for c in clients}
            steps += secure_mean(recipe, round, begun)
            files = [update]
        return [*steps, _aggregate(recipe, round, files, model_file(round), {})]
    leader = clients[0]
    if len(clients) > 1:
        leader = "server"
        steps.append(_aggregate(recipe, round, [proxy_file(c, round) for c in clients], update, {"as": "update"}))
        steps.append(_proxy(recipe, leader, round, update))
    return [*steps, *(_follow(recipe, owner, leader, round) for owner in ("server", *clients))]


def _is_full(recipe: Recipe, round: int) -> bool:
    return _since(recipe.switch2, round)


def _since(switch: int | str | None, round: int) -> bool:
    """Whether a phase has begun; by now `plan` knows its round."""
    return isinstance(switch, int) and round >= switch


def _proxy(recipe: Recipe, owner: str, round: int, update: str) -> Step:
    params = recipe.section("encode")
    if _since(recipe.switch1, round):
        params["scale_by_cosine"] = True
    warm = params.get("init") == "previous" and round > 1
    previous = {"previous": proxy_file(owner, round - 1)} if warm else {}
    return _encode(recipe, owner, round, update, proxy_file(owner, round), params, previous)


def _encode(
    recipe: Recipe, owner: str, round: int, update: str, out: str, params: dict[str, Any], options: dict[str, str]
) -> Step:
    return Step(
        command="encode",
        owner=owner,
        round=round,
        inputs=(model_of(recipe, owner, round - 1), update),
        needs=tuple(options.values()),
        out=out,
        params=params,
        options=options,
    )


def _aggregate(recipe: Recipe, round: int, files: list[str], out: str, options: dict[str, str]) -> Step:
    return Step(
        command="aggregate",
        owner="server",
        round=round,
        inputs=(model_of(recipe, "server", round - 1), *files),
        out=out,
        params=recipe.section("aggregate"),
        options=options,
    )


def _follow(recipe: Recipe, owner: str, leader: str, round: int) -> Step:
    return Step(
        command="decode",
        owner=owner,
        round=round,
        inputs=(model_of(recipe, owner, round - 1), proxy_file(leader, round)),
        out=followed_model(owner, round),
        options={"apply": True},
    )
