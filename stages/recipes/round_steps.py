"""One round of a federated algorithm: what each client does, and what the server makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from artifacts.errors import UsageError
from artifacts.kinds import KINDS
from stages.methods.params.aggregation import Rule
from stages.methods.params.local_training import LocalTraining
from stages.recipes.declared import declaration
from stages.recipes.recipe import Recipe
from stages.recipes.secagg_steps import secure_mean
from stages.recipes.step import Step
from stages.registry import ALGORITHMS
from stages.run_folder.files import (
    aggregated_update,
    kept_state,
    message_file,
    model_file,
    sent_state,
    server_state,
    unsent_message,
    update_file,
)


def _is_covered_later(recipe: Recipe) -> bool:
    """Whether noise for whole clients, or masks, cover what an update tells: a refusal to train would tell it."""
    if any(recipe.section("train-client").get(name) is not None for name in ("noise_multiplier", "target_epsilon")):
        return False
    in_shares = recipe.section("encode").get("noise_multiplier") is not None
    return recipe.secure or in_shares or recipe.section("aggregate").get("rule") == "dp-mean"


def client_steps(
    recipe: Recipe, client: str, round: int, last: int | None, data: Sequence[str], seed: int
) -> list[Step]:
    """What a client does in a round; `last` is the round in which it took part before."""
    algorithm = _algorithm(recipe)
    model, update = model_file(round - 1), update_file(client, round)
    states = {}
    if algorithm.keeps_state and last is not None:
        states["state"] = kept_state(client, last)
    if algorithm.sends_state and round > 1:
        states["server_state"] = server_state(round - 1, sent=True)
    new_state = {"state_out": kept_state(client, round)} if algorithm.keeps_state else {}
    encoding = recipe.section("encode") | dict.fromkeys(algorithm.states_counts, True)
    earlier = _before(encoding, round)
    steps = [
        Step(
            command="train-client",
            owner=client,
            round=round,
            inputs=(model, *data),
            needs=tuple(states.values()),
            out=update,
            also_writes=tuple(new_state.values()),
            params=recipe.section("train-client") | ({"covered_as": "client"} if _is_covered_later(recipe) else {}),
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
    if algorithm.sends_state:
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
    changed |= KINDS[declaration("encode", encoding).kind].encoded
    return (unsent_message if changed else update_file)(client, round)


def server_steps(recipe: Recipe, chosen: Sequence[str], round: int, num_clients: int) -> list[Step]:
    """The next model and, where the algorithm has one, the server's next state."""
    algorithm, rule = _algorithm(recipe), _rule(recipe)
    if rule.noised and not algorithm.client_noise:
        # Their states, step counts or server rules would leave beside the noise (privacy contract, rule 15).
        allowed = " and ".join(ALGORITHMS.having("client_noise"))
        raise UsageError(
            f"recipe {recipe.name}: aggregate.rule {recipe.section('aggregate')['rule']} goes with the algorithms "
            f"{allowed}; found {_name(recipe)}."
        )
    params = {"rule": algorithm.rule} | recipe.section("aggregate") | rule.agreed(recipe.stages)
    if not rule.noised and params["rule"] != algorithm.rule:
        raise UsageError(
            f"recipe {recipe.name}: the algorithm {_name(recipe)} goes with aggregate.rule {algorithm.rule}; found "
            f"{params['rule']}."
        )
    public = {"clients": num_clients, "sampling_rate": recipe.participation}
    params |= {name: value for name, value in public.items() if name in rule.names()}
    model = model_file(round - 1)
    options = _before(params, round) if "before" in rule.takes else {}
    if "state_out" in rule.takes:
        options = {"state": server_state(round - 1, sent=False)} if round > 1 else {}
        options["state_out"] = server_state(round, sent=False)
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
    if algorithm.sends_state:
        before = {"state": server_state(round - 1, sent=True)} if round > 1 else {}
        steps.append(
            Step(
                command="aggregate",
                owner="server",
                round=round,
                inputs=(model, *(sent_state(client, round) for client in chosen)),
                needs=(model_file(round), *before.values()),  # one after the other, as above
                out=server_state(round, sent=True),
                params={"rule": "variates", "clients": num_clients},
                options=before,
            )
        )
    return steps


def is_noised(recipe: Recipe) -> bool:
    """Whether the server adds noise for whole clients; it then clips and masks as `encode` does."""
    return _rule(recipe).noised


def _before(params: Mapping[str, Any], round: int) -> dict[str, str]:
    """The model of the round before, for a mask of what moved; in the first round there is none."""
    return {"before": model_file(round - 2)} if params.get("sparsify") == "moved-k" and round > 1 else {}


def _algorithm(recipe: Recipe) -> type[LocalTraining]:
    algorithm: type[LocalTraining] = declaration("train-client", recipe.section("train-client"))
    return algorithm


def _rule(recipe: Recipe) -> type[Rule]:
    """The rule that the recipe says; else the algorithm's own."""
    rule: type[Rule] = declaration("aggregate", {"rule": _algorithm(recipe).rule} | recipe.section("aggregate"))
    return rule


def _name(recipe: Recipe) -> str:
    return str(recipe.section("train-client").get("algorithm", ALGORITHMS.default))
