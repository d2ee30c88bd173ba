"""A recipe as a list of steps: commands with their input and output files. `run`, Make, DVC and the shell all read it.

The dependencies are the files: a step can run when its inputs exist, and is done when its outputs do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from artifacts.errors import UsageError
from artifacts.identity import keys
from artifacts.storage.fetched import without_options
from artifacts.storage.url import is_url
from stages.catalogue import DECLARED
from stages.execution.randomness import numpy_stream
from stages.recipes.declared import parameters
from stages.recipes.phases import PLATEAU, resolved, waits
from stages.recipes.proxy_steps import model_of, proxy_steps, sends_proxies
from stages.recipes.receipt_steps import check_open, with_receipts
from stages.recipes.recipe import Recipe
from stages.recipes.round_steps import client_steps, is_noised, server_steps
from stages.recipes.secagg_steps import check_additive, identity_steps, with_roster
from stages.recipes.step import Step
from stages.recipes.surrogate_steps import descent_step, sends_surrogates, surrogate_step
from stages.recipes.synthetic_steps import synthetic_steps, training_data
from stages.run_folder.files import (
    CONFUSION_PICTURE,
    CURVE,
    CURVE_PICTURE,
    PARTITION_RECORD,
    TEST,
    data_file,
    metrics_file,
    model_file,
    numbered_clients,
)
from stages.sample_clients import drawn


def planned_clients(recipe: Recipe) -> list[str]:
    """The clients' names as `partition` will give them, without running it."""
    count = recipe.section("partition").get("clients")
    if not isinstance(count, int):
        raise UsageError(f"recipe {recipe.name}: state partition.clients to lay the pipeline out in advance.")
    return numbered_clients(count)


def partition_step(recipe: Recipe, seed: int, clients: Sequence[str] = ()) -> Step:
    """The first step. Where the clients are known in advance, it says all the files that it is sure to make.

    A client with few rows holds none of them out, so `held-out.parquet` is not among those.
    """
    params = recipe.section("partition")
    if "source" not in params:
        raise UsageError(f"recipe {recipe.name}: partition.source is missing.")
    options: dict[str, Any] = {key: params.pop(key) for key in ("root", "download") if key in params}
    source = str(params.pop("source"))
    if is_url(source) and source != without_options(source):
        raise UsageError(
            f"recipe {recipe.name}: partition.source {without_options(source)}: in a recipe, which is written down, a "
            "URL has no options after a ?, and no slash at its end. Set AWS_ENDPOINT_URL and AWS_REGION instead."
        )
    if recipe.synthetic == "pooled":
        params["central"] = True
    return Step(
        command="partition",
        owner="simulation",
        round=0,
        inputs=(source,),
        out=PARTITION_RECORD,
        out_folder=".",
        also_writes=(TEST, *(data_file(client) for client in clients)) if clients else (),
        params=params,
        options={"seed": seed, **options},
    )


def check(recipe: Recipe, *, divides: bool = True) -> dict[str, Any]:
    """Refuse a recipe whose parameters are wrong in any of its rounds: those of one client are those of all.

    It takes part in each: a draw could leave its steps out.

    Returns the parameters of each stage, as they will be; of one that has others later, those that it begins with.

    Where the clients have data of their own there is nothing to divide.
    """
    steps = [partition_step(recipe, 0)] if divides else []
    steps += [step for one in _decided(recipe) for step in plan(one, ["00"], 0, lambda clients, _: list(clients))]
    made: dict[str, Any] = {}
    seen: set[tuple[str, str]] = set()
    for step in steps:
        given = (step.section, repr(sorted(step.params.items())))  # rounds mostly say the same
        if step.section in DECLARED and given not in seen:
            seen.add(given)
            found = parameters(step, _facts(step, made))
            made.setdefault(step.section, found)
    return made


def _decided(recipe: Recipe) -> list[Recipe]:
    """The recipe as it is if no switch at a plateau ever comes, and as it is if each comes; of each phase one round."""
    found = [resolved(recipe, {})]
    if waits(recipe):
        first, second = (1 if recipe.switch1 == PLATEAU else recipe.switch1), recipe.switch2
        found.append(replace(recipe, switch1=first, switch2=recipe.rounds if second == PLATEAU else second))
    return [_one_round_a_phase(one) for one in found]


def _one_round_a_phase(recipe: Recipe) -> Recipe:
    switches = [s for s in (recipe.switch1, recipe.switch2) if isinstance(s, int) and 1 <= s <= recipe.rounds]
    begins = {round: number for number, round in enumerate(sorted({1, *switches}), start=1)}

    def moved(switch: int | Literal["plateau"] | None) -> int | Literal["plateau"] | None:
        if not isinstance(switch, int) or switch < 1:
            return switch
        return begins.get(switch, len(begins) + 1)  # beyond the end: it never comes

    return replace(recipe, rounds=len(begins), switch1=moved(recipe.switch1), switch2=moved(recipe.switch2))


def _facts(step: Step, made: Mapping[str, Any]) -> dict[str, Any]:
    """What the step's inputs will say, by the parameters of the steps before it."""
    if step.command != "synthesize":
        return {}
    training = made["train-generator"]
    return {"family": training.family, "private": training.is_private}


# Who takes part in a round, among all who could.
Draw = Callable[[Sequence[str], int], list[str]]


def plan(recipe: Recipe, clients: Sequence[str], seed: int, draw: Draw | None = None) -> list[Step]:
    """All steps after `partition`, in an order in which they can be typed.

    `draw` stands in for the simulation's way of choosing who takes part.
    """
    if waits(recipe):
        raise UsageError(
            f"recipe {recipe.name}: with switch1 or switch2 at a plateau its phases are found while it runs, and only "
            "`fedsynth run` can do that. Give the rounds: --set switch1=… --set switch2=…"
        )
    network = recipe.section("init-model")
    weights = {"weights": network.pop("weights")} if network.get("weights") is not None else {}
    steps = [
        Step(
            command="init-model",
            owner="server",
            round=0,
            needs=(TEST,),
            out=model_file(0),
            params=network,
            options={"like": TEST, "seed": seed, **weights},
        )
    ]
    steps.append(_evaluate(recipe, 0))
    if recipe.secure:
        check_additive(recipe)
    if recipe.receipts:
        check_open(recipe)
    if recipe.secure or recipe.receipts:
        steps += identity_steps(clients)
    steps += synthetic_steps(recipe, clients, seed)
    data = training_data(recipe, clients)
    last_round: dict[str, int] = {}
    for round in range(1, recipe.rounds + 1):
        chosen = draw(list(data), round) if draw else participants(recipe, list(data), round, seed)
        if sends_proxies(recipe):
            steps += proxy_steps(recipe, chosen, round, data, seed)
            steps.append(_evaluate(recipe, round))
            continue
        for client in chosen:
            last = last_round.get(client)
            if sends_surrogates(recipe):
                steps.append(surrogate_step(recipe, client, round, last, data[client]))
            else:
                steps += client_steps(recipe, client, round, last, data[client], seed)
            last_round[client] = round
        if sends_surrogates(recipe):
            steps.append(descent_step(recipe, chosen, round, seed))
        else:
            steps += server_steps(recipe, chosen, round, len(data))
        steps.append(_evaluate(recipe, round))
    if recipe.secure or recipe.receipts:
        steps = with_roster(steps)
    return with_receipts(steps) if recipe.receipts else steps


def participants(recipe: Recipe, clients: Sequence[str], round: int, seed: int) -> list[str]:
    """The clients of a round: a uniform draw without replacement from the server's stream, at least one.

    Under client-level DP a secret Poisson sample, as `sample-clients` draws it from the simulation's server key.
    """
    if is_noised(recipe):
        return drawn(clients, recipe.participation, round, keys.simulated(seed, "server"))
    count = max(1, round_half_up(recipe.participation * len(clients)))
    if count == len(clients):
        return list(clients)
    rows = numpy_stream(seed, stage="run", round=round, of="participants").choice(len(clients), count, replace=False)
    return [clients[index] for index in sorted(rows)]


def round_half_up(value: float) -> int:
    return int(value + 0.5)


def _evaluate(recipe: Recipe, round: int) -> Step:
    """The last evaluation draws the curve, so it waits for all the others."""
    last = round == recipe.rounds
    pictures = {"picture": CURVE_PICTURE, "confusion": CONFUSION_PICTURE} if last else {}
    return Step(
        command="evaluate",
        owner="server",
        round=round,
        inputs=(model_of(recipe, "server", round), TEST),
        needs=tuple(metrics_file(earlier) for earlier in range(round)) if last else (),
        out=metrics_file(round),
        also_writes=tuple(pictures.values()),
        params=recipe.section("evaluate"),
        options={"curve": CURVE, **pictures},
    )
