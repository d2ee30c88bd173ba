"""One round of a federated algorithm: what each client does, and what the server makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from artifacts.errors import UsageError
from stages.methods.params.local_training import KEEPS_STATE, SENDS_STATE, LocalTraining
from stages.recipes.files import (
    aggregated_update,
    kept_state,
    message_file,
    model_file,
    sent_state,
    server_state,
    unsent_message,
    update_file,
)
from stages.recipes.recipe import Recipe
from stages.recipes.secagg_steps import secure_mean
from stages.recipes.step import Step

# What `encode` and `aggregate` must agree on beside the clip.
_MASK = ("sparsify", "keep", "mask_seed")
_NOISED = ("fedavg", "fedprox")


def client_steps(
    recipe: Recipe, client: str, round: int, last: int | None, data: Sequence[str], seed: int
) -> list[Step]:
    """What a client does in a round; `last` is the round in which it took part before."""
    algorithm = _algorithm(recipe)
    keeps, sends = algorithm in KEEPS_STATE, algorithm in SENDS_STATE
    model, update = model_file(round - 1), update_file(client, round)
    states = {}
    if keeps and last is not None:
        states["state"] = kept_state(client, last)
    if sends and round > 1:
        states["server_state"] = server_state(algorithm, round - 1)
    new_state = {"state_out": kept_state(client, round)} if keeps else {}
    encoding = recipe.section("encode")
    earlier = _before(encoding, round)
    if algorithm == "fednova":
        encoding["tell_steps"] = True
    steps = [
        Step(
            command="train-client",
            owner=client,
            round=round,
            inputs=(model, *data),
            needs=tuple(states.values()),
            out=update,
            also_writes=tuple(new_state.values()),
            params=recipe.section("train-client"),
            options={"seed": seed, **states, **new_state},
        ),
    ]
    if source(recipe, client, round) != update:
        steps.append(
            Step(
                command="encode",
                owner=client,
                round=round,
                inputs=(model, update),
                needs=tuple(earlier.values()),
                out=source(recipe, client, round),
                params=encoding,
                options=earlier,
            )
        )
    if sends:
        before = {"previous": states["state"]} if "state" in states else {}
        steps.append(
            Step(
                command="encode",
                owner=client,
                round=round,
                inputs=(model, kept_state(client, round)),
                # After the message, not beside it: the order of a ledger's entries must not depend on chance.
                needs=(message_file(client, round), *before.values()),
                out=sent_state(client, round),
                params={"method": "state"},
                options=before,
            )
        )
    return steps


def source(recipe: Recipe, client: str, round: int) -> str:
    """What the server's mean is of: messages; or, under masks, the private updates, encoded if they are changed."""
    if not recipe.secure:
        return message_file(client, round)
    encoding = recipe.section("encode")
    changed = any(encoding.get(key) is not None for key in ("clip_norm", "sparsify"))
    return (unsent_message if changed else update_file)(client, round)


def server_steps(recipe: Recipe, chosen: Sequence[str], round: int, num_clients: int) -> list[Step]:
    """The next model and, where the algorithm has one, the server's next state."""
    algorithm = _algorithm(recipe)
    params = recipe.section("aggregate")
    model = model_file(round - 1)
    before = {"state": server_state(algorithm, round - 1)} if round > 1 else {}
    options: dict[str, str] = {}
    if is_noised(recipe):
        if algorithm not in _NOISED:
            # Their states, step counts or server rules would leave beside the noise (privacy contract, rule 15).
            raise UsageError(
                f"recipe {recipe.name}: aggregate.rule dp-mean goes with the algorithms {' and '.join(_NOISED)}; found "
                f"{algorithm}."
            )
        encoding = recipe.section("encode")
        shared = ("clip_norm", *(_MASK if encoding.get("sparsify") in ("rand-k", "top-k") else ()))
        params |= {key: encoding[key] for key in shared if key in encoding}
        params |= {"clients": num_clients, "sampling_rate": recipe.participation}
        options = _before(params, round)
    if algorithm == "fednova":
        params |= {"rule": "fednova", "momentum": recipe.section("train-client").get("momentum", 0.0)}
    if algorithm == "feddyn":
        alpha = recipe.section("train-client").get("alpha")
        params |= {"rule": "feddyn", "clients": num_clients} | ({"alpha": alpha} if alpha is not None else {})
        options = {**before, "state_out": server_state(algorithm, round)}
    steps: list[Step] = []
    files = [source(recipe, client, round) for client in chosen]
    if recipe.secure:
        steps += secure_mean(recipe, round, {c: (model, f) for c, f in zip(chosen, files, strict=True)})
        files = [aggregated_update(round)]
    steps.append(
        Step(
            command="aggregate",
            owner="server",
            round=round,
            inputs=(model, *files),
            needs=tuple(path for key, path in options.items() if key in ("state", "before")),
            out=model_file(round),
            also_writes=tuple(path for key, path in options.items() if key == "state_out"),
            params=params,
            options=options,
        )
    )
    if algorithm in SENDS_STATE:
        steps.append(
            Step(
                command="aggregate",
                owner="server",
                round=round,
                inputs=(model, *(sent_state(client, round) for client in chosen)),
                needs=(model_file(round), *before.values()),  # one after the other, as above
                out=server_state(algorithm, round),
                params={"clients": num_clients},
                options={"as": "state", **before},
            )
        )
    return steps


def is_noised(recipe: Recipe) -> bool:
    """Whether the server adds noise for whole clients; it then clips and masks as `encode` is told to."""
    return recipe.section("aggregate").get("rule") == "dp-mean"


def _before(params: Mapping[str, Any], round: int) -> dict[str, str]:
    """The model of the round before, for a mask of what moved; in the first round there is none."""
    return {"before": model_file(round - 2)} if params.get("sparsify") == "top-k" and round > 1 else {}


def _algorithm(recipe: Recipe) -> str:
    return str(recipe.section("train-client").get("algorithm", LocalTraining.algorithm))
