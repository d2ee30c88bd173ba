"""Secure aggregation in a recipe: the steps of a round, from fresh keys to the mean that the server learns.

For whatever adds up: `secure_mean` takes, of each client, the model that it began with and its private update (or the
private message that `encode` made of it), and ends with the mean in the server's private folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from artifacts.errors import UsageError
from stages.recipes.declared import declaration
from stages.recipes.recipe import Recipe
from stages.recipes.step import Step
from stages.run_folder.files import ROSTER, TEST, aggregated_update, data_file, identity_file, secagg_file
from stages.secagg.terms import default_threshold

_LISTS = {"shares": "shares", "masked": "survivors", "survivors": "confirmed"}

# A simulation's keys come from its seed, and so must its id: the same run has the same bytes.
_FEDERATION = {"federation": "simulation"}
_NOISED = ("train-client", "train-generator", "encode", "aggregate")


def check_additive(recipe: Recipe) -> None:
    """Refuse a secure recipe whose messages do not add up, or whose server must see them one by one."""
    encoding, aggregation = recipe.section("encode"), recipe.section("aggregate")
    training = recipe.section("train-client")
    encoder, rule, algorithm = (
        declaration("encode", encoding), declaration("aggregate", aggregation), declaration("train-client", training),
    )  # fmt: skip
    proxies = encoder.by_server
    reasons = {
        f"encode.method {encoding.get('method')} does not add up": not (encoder.additive or proxies),
        "proxies do not add up; set switch2, from which round on full updates are sent": proxies
        and recipe.switch2 is None,
        f"the algorithm {training.get('algorithm')} sends more than an update": not algorithm.additive,
        f"aggregate.rule {aggregation.get('rule')} needs the updates one by one": not rule.linear,
        "aggregate.weights examples would tell the server a number of each client": (
            aggregation.get("weights", "uniform") != "uniform"
        ),
        "encode.tell_examples and tell_steps tell numbers beside the sum": bool(
            encoding.get("tell_examples") or encoding.get("tell_steps")
        ),
        "with synthetic: pooled there is one party, whose update would be the sum": recipe.synthetic == "pooled",
        "with noise shares everybody takes part: participation must be 1": (
            encoding.get("noise_multiplier") is not None and recipe.participation != 1
        ),
    }
    found = next((reason for reason, holds in reasons.items() if holds), None)
    if found is not None:
        raise UsageError(f"recipe {recipe.name}: secure aggregation gives the uniform mean of updates, but {found}.")


def identity_steps(clients: Sequence[str]) -> list[Step]:
    """Once, before the first round: who is who."""
    identities = [
        Step(command="identity", owner=client, round=0, needs=(data_file(client),), out=identity_file(client))
        for client in clients
    ]
    identities.append(Step(command="identity", owner="server", round=0, needs=(TEST,), out=identity_file("server")))
    listed = tuple(step.out for step in identities)
    roster = Step(command="roster", owner="server", round=0, inputs=listed, out=ROSTER, options=_FEDERATION)
    return [*identities, roster]


def with_roster(steps: Sequence[Step]) -> list[Step]:
    """The same steps, with those that may add noise after the roster: its events name the federation that is in it."""
    return [replace(step, needs=(*step.needs, ROSTER)) if step.command in _NOISED else step for step in steps]


def secure_mean(recipe: Recipe, round: int, sources: Mapping[str, tuple[str, str]]) -> list[Step]:
    """The steps of a round by client: (the model that it began with, its private update or message).

    The last one writes `aggregated_update(round)`; `aggregate` or `decode --apply` go on from it.
    """
    clients = tuple(sources)
    # Keys depend on no file. They wait for the update, so that the order in a ledger does not depend on chance.
    steps = [
        Step(
            command="secagg keys",
            owner=client,
            round=round,
            needs=(update,),
            out=secagg_file(client, "keys", round),
            options={"round": round},
        )
        for client, (_, update) in sources.items()
    ]
    steps.append(_collect(clients, "keys", round, list_terms(recipe, len(clients))))
    listed = secagg_file("server", "keys", round)
    steps += [_answer("shares", client, round, (listed,), {"roster": ROSTER}) for client in clients]
    # Each client is sent what it can read, and no more.
    own = {client: secagg_file("server", "shares", round, reader=client) for client in clients}
    shared = _collect(clients, "shares", round)
    steps.append(replace(shared, also_writes=tuple(own.values()), options={**shared.options, "each": True}))
    steps += [_answer("masked", client, round, (own[client], *source)) for client, source in sources.items()]
    steps.append(_collect(clients, "masked", round))
    steps += [_answer("survivors", client, round, (secagg_file("server", "survivors", round),)) for client in clients]
    steps.append(_collect(clients, "survivors", round))
    confirmed = secagg_file("server", "confirmed", round)
    steps += [_answer("unmask", client, round, (confirmed,)) for client in clients]
    lists = {"roster": ROSTER, "keys": listed, "shares": shared.out, "survivors": confirmed}
    steps.append(
        Step(
            command="secagg sum",
            owner="server",
            round=round,
            inputs=tuple(secagg_file(client, kind, round) for kind in ("masked", "unmask") for client in clients),
            needs=tuple(lists.values()),
            out=aggregated_update(round),
            options=lists,
        )
    )
    return steps


def list_terms(recipe: Recipe, clients: int) -> dict[str, Any]:
    """What the list of keys declares. Noise shares have their own grid, and need the clients that they count on."""
    terms, encoding = recipe.section("secagg"), recipe.section("encode")
    if encoding.get("noise_multiplier") is not None:
        if terms.get("range") is not None:
            raise UsageError(f"recipe {recipe.name}: noise shares have their own grid: leave secagg.range out.")
        if terms.get("graph") == "sparse" and encoding.get("colluders") is not None:
            terms = {"colluders": encoding["colluders"], **terms}
        least = encoding.get("least_clients") or 0
        return {"threshold": max(default_threshold(clients, encoding.get("colluders") or 0), least), **terms}
    if terms.get("range") is None:
        if encoding.get("clip_norm") is None:
            raise UsageError(
                f"recipe {recipe.name}: state secagg.range, the largest value of an update, or encode.clip_norm."
            )
        terms["range"] = encoding["clip_norm"]
    return terms


def _answer(
    kind: str, client: str, round: int, inputs: tuple[str, ...], files: Mapping[str, str] | None = None
) -> Step:
    """What a client does with the server's list."""
    command = {"masked": "mask", "survivors": "confirm"}.get(kind, kind)
    return Step(
        command=f"secagg {command}",
        owner=client,
        round=round,
        inputs=inputs,
        needs=tuple((files or {}).values()),
        out=secagg_file(client, kind, round),
        options=files or {},
    )


def _collect(clients: Sequence[str], kind: str, round: int, terms: Mapping[str, Any] | None = None) -> Step:
    """The server's list of what the clients sent."""
    files = {"roster": ROSTER}
    if kind != "keys":
        files["keys"] = secagg_file("server", "keys", round)
    return Step(
        command="secagg collect",
        owner="server",
        round=round,
        inputs=tuple(secagg_file(client, kind, round) for client in clients),
        needs=tuple(files.values()),
        out=secagg_file("server", _LISTS.get(kind, kind), round),
        params=terms or {},
        options=files,
    )
