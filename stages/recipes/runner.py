"""`run`: a recipe from end to end on one machine, over the same stage functions that the commands call."""

from __future__ import annotations

import bisect
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from artifacts.errors import InputError, UsageError
from artifacts.formats.plain_data import dump_yaml, parse_yaml, read_json, read_mapping
from artifacts.places import RunFolder
from artifacts.writing import atomic, locks, scratch
from stages.catalogue import COMMANDS
from stages.execution.progress import Report, Summary, silent
from stages.execution.workers import Workers
from stages.recipes.fit import check_fit
from stages.recipes.perform import perform, perform_several
from stages.recipes.phases import plateau_of, resolved, waits
from stages.recipes.plan import check, partition_step, plan
from stages.recipes.recipe import Recipe, load_recipe
from stages.recipes.step import Step
from stages.recipes.tally import Tally
from stages.run_folder.files import PARTITION_RECORD, TUNED, metrics_file


def run(
    recipe: Recipe, out: Path, *, seed: int, workers: int, devices: Sequence[str] = (), report: Report = silent
) -> Summary:
    """Run the recipe in the folder `out`, going on where an earlier run stopped."""
    with locks.held(out, "fedsynth run"), Workers(workers, devices) as pool:
        return finish(recipe, out, begin(recipe, out, seed), pool, report)


def finish(recipe: Recipe, out: Path, steps: list[Step], pool: Workers, report: Report = silent) -> Summary:
    """Perform those of the run's steps that are not done yet; of a recipe with a plateau, then those that follow."""
    tally = Tally(recipe, out, report, workers=pool.count)
    while steps:
        tally.expect(steps, [step for step in steps if is_done(step, out)])
        _execute(steps, out, pool, tally.add)
        steps = _next_round(recipe, out, max(step.round for step in steps)) if waits(recipe) else []
    return tally.summary()


def begin(recipe: Recipe, out: Path, seed: int) -> list[Step]:
    """Claim the folder, divide the data unless that is done, and return the steps that follow, done or not."""
    if recipe.sweep:
        raise UsageError(f"recipe {recipe.name} is a sweep: several runs, each in its own folder.")
    check(recipe)
    _claim(RunFolder(out), recipe, seed)
    scratch.sweep_below(out)
    if not (out / PARTITION_RECORD).exists():
        check_fit(recipe)
        perform(partition_step(recipe, seed), out)
    if waits(recipe):
        return [step for step in plan(resolved(recipe, {}), clients_of(out), seed) if step.round <= 1]
    return plan(recipe, clients_of(out), seed)


def _next_round(recipe: Recipe, out: Path, done: int) -> list[Step]:
    """The steps of the round after `done`; none after the last."""
    known = known_after(recipe, out, done)
    if done >= known.rounds:
        return []
    seed = read_mapping(RunFolder(out).simulation / "recipe.yaml")["seed"]
    return [step for step in plan(known, clients_of(out), seed) if step.round == done + 1]


def known_after(recipe: Recipe, out: Path, done: int) -> Recipe:
    """The recipe with its rounds of change, as far as the public accuracy until round `done` decides them."""
    folder = RunFolder(out)
    accuracy = {r: read_json(out / metrics_file(r))["accuracy"] for r in range(done + 1)}
    known = resolved(recipe, accuracy)
    switches = {"switch1": known.switch1, "switch2": known.switch2}
    record = {name: round if isinstance(round, int) and round <= done else None for name, round in switches.items()}
    text = json.dumps({"rounds": done, **record, "plateau": plateau_of(recipe).to_json()}, indent=2) + "\n"
    atomic.write(folder.simulation / "phases.json", [text.encode()], force=True)
    return known


def clients_of(out: Path) -> list[str]:
    """Those who were given data; a central party that has none is not among them."""
    path = out / PARTITION_RECORD
    try:
        return sorted(read_json(path)["clients"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no record that partition wrote ({error}). Choose another --out.") from error


def _claim(folder: RunFolder, recipe: Recipe, seed: int) -> None:
    """Write the resolved recipe down; a folder that holds another one is refused. More rounds may be added.

    A run that ended before its data was divided has left nothing, and its folder may be used for another.
    """
    record = folder.simulation / "recipe.yaml"
    resolved = _stated(recipe, seed)
    if (folder.root / PARTITION_RECORD).exists():
        tuned = folder.root / TUNED
        if not record.exists() and not tuned.exists():
            raise UsageError(
                f"{folder.root} holds data that `partition` divided by itself or for another tool (make, DVC, "
                "Snakemake), and no recipe says of which parameters its files are. Choose another --out."
            )
        before = read_mapping(record) if record.exists() else _stated(load_recipe(str(tuned)), seed)
        changed = _first_change(before, resolved)
        if changed is not None:
            raise UsageError(f"{folder.root} holds a run with other parameters: {changed}. Choose another --out.")
    text = dump_yaml(resolved, allow_unicode=True)
    atomic.write(record, [text.encode()], force=True)


def _stated(recipe: Recipe, seed: int) -> dict[str, Any]:
    stated: dict[str, Any] = parse_yaml(recipe.to_yaml()) | {"seed": seed}
    return stated


def _first_change(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The first key with another value, in words: `init-model.arch was convnet, now lenet5`."""
    for key in ("name", *sorted((before.keys() | now.keys()) - {"name", "rounds", "about"})):
        was, is_now = before.get(key), now.get(key)
        if was == is_now:
            continue
        if isinstance(was, dict) and isinstance(is_now, dict):
            inner = next(name for name in sorted(was.keys() | is_now.keys()) if was.get(name) != is_now.get(name))
            key, was, is_now = f"{key}.{inner}", was.get(inner), is_now.get(inner)
        return f"{key} was {_said(was)}, now {_said(is_now)}"
    return None


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_said(one)}" for name, one in value.items())
    return "not given" if value is None else str(value)


def _execute(steps: list[Step], root: Path, pool: Workers, finished: Callable[[Step, float], None]) -> None:
    """Perform what is not done yet, each step as soon as its inputs exist, on the processes of `pool`."""
    queue = _Queue([step for step in steps if not is_done(step, root)])
    began: dict[int, float] = {}
    while queue.left:
        for worker in pool.idle(queue.left):
            some = queue.take(worker.known)
            if some:
                worker.known |= {step.owner for step in some}
                began[id(some[0])] = time.monotonic()
                worker.start(some, (perform_several, (some, root)))
        worker = pool.next_finished()
        done: list[Step] = worker.task
        worker.finish()
        seconds = time.monotonic() - began[id(done[0])]
        for step in done:
            finished(step, seconds / len(done))
            queue.finished(step)


def is_done(step: Step, root: Path) -> bool:
    """Files are written whole or not at all: a step whose outputs exist is done."""
    return all((root / name).exists() for name in step.outputs)


def _go_together(one: Step, other: Step) -> bool:
    """Whether they differ in their owners' files alone."""
    return (one.command, one.inputs[:1], one.params) == (other.command, other.inputs[:1], other.params)


class _Queue:
    """Steps in the plan's order, each ready when the files it reads have been made."""

    def __init__(self, steps: list[Step]) -> None:
        self._steps = steps
        maker = {name: number for number, step in enumerate(steps) for name in step.outputs}
        self._waits_for = [{maker[n] for n in (*s.inputs, *s.needs) if n in maker} for s in steps]
        self._awaited_by: dict[int, list[int]] = {}
        for number, earlier in enumerate(self._waits_for):
            for other in earlier:
                self._awaited_by.setdefault(other, []).append(number)
        self._ready = [number for number, earlier in enumerate(self._waits_for) if not earlier]
        self._number = {id(step): number for number, step in enumerate(steps)}
        self.left = len(steps)

    def take(self, known: set[str]) -> list[Step]:
        """The first ready step, or one of the first few whose owner's data the worker has decoded already; and with it
        those that its command does at once. None where nothing is ready."""
        if not self._ready:
            return []
        position = next((i for i, n in enumerate(self._ready[:32]) if self._steps[n].owner in known), 0)
        first = self._steps[self._ready.pop(position)]
        most = first.params.get(COMMANDS[first.command].several or "") or 1
        alike = [n for n in self._ready if most > 1 and _go_together(first, self._steps[n])]
        own = [n for n in alike if self._steps[n].owner in known]
        chosen = [*own, *(n for n in alike if n not in own)][: most - 1]
        for number in chosen:
            self._ready.remove(number)
        return [first, *(self._steps[n] for n in sorted(chosen))]

    def finished(self, step: Step) -> None:
        self.left -= 1
        number = self._number[id(step)]
        for other in self._awaited_by.pop(number, []):
            self._waits_for[other].discard(number)
            if not self._waits_for[other]:
                bisect.insort(self._ready, other)
