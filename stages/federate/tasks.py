"""Who does what: the server's plan, a client's own, and which steps a file takes to make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from artifacts.formats import Format
from artifacts.identity import keys
from artifacts.places import RunFolder
from stages.federate.parcels import Task, round_in
from stages.federate.terms import Terms
from stages.recipes.phases import resolved, waits
from stages.recipes.plan import Draw, participants, plan
from stages.recipes.proxy_steps import sends_proxies
from stages.recipes.recipe import Recipe
from stages.recipes.round_steps import is_noised
from stages.recipes.runner import is_done
from stages.recipes.step import Step
from stages.run_folder.files import surrogate_file, update_file
from stages.sample_clients import drawn

Switches = tuple[int | None, int | None]


def server_plan(terms: Terms, recipe: Recipe, home: Path) -> list[Step]:
    """All steps, the clients' as well. Who takes part under client-level DP is drawn with the server's own key."""
    draw: Draw | None = None
    if is_noised(recipe):
        key = keys.read(RunFolder(home).server.key)

        def draw(clients: Sequence[str], round: int) -> list[str]:
            return drawn(clients, recipe.participation, round, key)

    return plan(recipe, terms.clients, terms.seed, draw)


def own_steps(terms: Terms, client: str, task: Task, home: Path) -> dict[str, Step]:
    """The client's own steps up to the round of a task, by every file that they write.

    It knows the rounds in which it took part by its own files. A round that it missed, or that went on without it, has
    left no state to go on from: what the server keeps of the clients' states does not have it either. In a round for
    which the terms do not draw it there is nothing that it would do; only a secret draw is the server's word.
    """
    recipe, round = _switched(terms.recipe, task.switches), task.round

    def draw(everybody: Sequence[str], number: int) -> list[str]:
        if sends_proxies(recipe):
            return list(everybody)
        made = (update_file(client, number), surrogate_file(client, number))
        before = number < round and number not in task.left_out
        asked = number == round and (is_noised(recipe) or client in participants(recipe, everybody, number, terms.seed))
        takes_part = asked or (before and any((home / name).exists() for name in made))
        return [client] if takes_part and client in everybody else []

    steps = plan(recipe, terms.clients, terms.seed, draw)
    return {name: s for s in steps if s.owner == client and s.round <= round for name in s.outputs}


def of_other_phases(steps: Mapping[str, Step], client: str, round: int, home: Path) -> str | None:
    """A file that the client made to send by this round, and would not have with the steps as they are now.

    Where the server finds the rounds of change, it could find others later, and get a round's update in two ways.
    """
    place = RunFolder(home).client(client)
    made = sorted(path.name for folder in (place.outbox, place.pending) if folder.exists() for path in folder.iterdir())
    for name in (f"clients/{client}/outbox/{file}" for file in made):
        if (round_in(name) or 0) <= round and name not in steps and name.removesuffix(Format.ENVELOPES) not in steps:
            return name
    return None


def _switched(recipe: Recipe, switches: Switches) -> Recipe:
    """The rounds that the server found, only where the recipe leaves them open."""
    if not waits(recipe):
        return recipe
    return replace(resolved(recipe, {}), switch1=switches[0], switch2=switches[1])


def leading_to(targets: Iterable[str], steps: Mapping[str, Step], home: Path) -> tuple[list[Step], list[str]]:
    """The undone steps that make the targets, in order, and the files of others that they read."""
    ordered: dict[str, Step] = {}
    foreign: dict[str, None] = {}

    def visit(name: str) -> None:
        step = steps.get(name)
        if step is None:
            foreign[name] = None
        elif step.out not in ordered and not is_done(step, home):
            for earlier in (*step.inputs, *step.needs):
                visit(earlier)
            ordered[step.out] = step

    for target in targets:
        visit(target)
    return list(ordered.values()), list(foreign)


def leaves(name: str, client: str) -> bool:
    return name.startswith(f"clients/{client}/outbox/")


def is_from_server(name: str) -> bool:
    """What a server may send: its outbox, and the first model. A roster is carried by people, never by the server."""
    return name.startswith(("server/outbox/", "public/model-"))
