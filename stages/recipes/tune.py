"""`tune`: a small grid of a recipe's parameters, tried out; every private trial is charged like any other run.

All trials are runs in one folder, of the same clients with the same keys: so the spend ledgers there hold the sum of
all trials, composed, whichever is chosen. Choosing costs nothing more: it reads accuracies of noised models on public
test images. The chosen parameters with the same seed, run in that folder again, give the same bytes, and are free (rule
18). Under noise for whole clients all trials draw the same clients: only the first is amplified (rule
29). Or the trials run on a public proxy dataset, each in a folder of its own, and cost the private data nothing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from artifacts.digests import sha256_hex
from artifacts.errors import BudgetError, UsageError
from artifacts.formats.plain_data import read_json
from artifacts.ledgers import spend
from artifacts.places import Place, RunFolder
from artifacts.writing import atomic, locks
from stages.catalogue import COMMANDS
from stages.charging.planned import planned_event
from stages.charging.spending import BUDGET, read_budget, spent_of
from stages.execution.progress import Report, Summary, silent
from stages.execution.workers import Workers
from stages.privacy.accountant import epsilon
from stages.privacy.events import UNITS, PrivacyEvent, unsampled
from stages.recipes.declared import parameters
from stages.recipes.perform import perform
from stages.recipes.phases import waits
from stages.recipes.plan import partition_step, plan
from stages.recipes.recipe import Recipe, assigned
from stages.recipes.runner import clients_of, finish, run
from stages.recipes.step import Step
from stages.recipes.sweep import SweepPoint, points
from stages.run_folder.files import CURVE, PARTITION_RECORD, TUNED

_RECORD = "tuning.json"
_MEASURED = ("accuracy", "loss")


def tune(
    recipe: Recipe,
    out: Path,
    *,
    seed: int,
    workers: int,
    public: str | None = None,
    delta: float | None = None,
    report: Report = silent,
) -> Summary:
    """Try every point of the recipe's sweep in the run folder `out`, and write the best one there as a recipe.

    With `public`, the source of a dataset, the trials are of that data instead. `delta` adds what was spent, as ε.
    """
    unfit = [key for key in recipe.sweep if key == "seed" or key.startswith("partition.")]
    if not recipe.sweep or unfit:
        said = f"--grid {unfit[0]}: all trials are of the same clients" if unfit else "tune needs a grid"
        raise UsageError(f"{said}. Give --grid stage.key=value,value for parameters of training, noise or sending.")
    trials = points(recipe, seed)
    if public is not None:
        found = [_on_proxy(trial, out, public, workers, report) for trial in trials]
    else:
        found = _charged(replace(recipe, sweep={}), trials, out, workers, report)
    best = max(range(len(found)), key=lambda number: found[number]["accuracy"])  # of equals the first
    atomic.write(out / TUNED, [trials[best].recipe.to_yaml().encode()], force=True)
    return {
        "recipe": recipe.name,
        "trials": [{"values": dict(t.values), **row} for t, row in zip(trials, found, strict=True)],
        "chosen": dict(trials[best].values),
        "out": str(out / TUNED),
        "spent": _spent(RunFolder(out), delta) if public is None and delta is not None else None,
    }


def _on_proxy(trial: SweepPoint, out: Path, public: str, workers: int, report: Report) -> dict[str, float]:
    recipe = assigned(trial.recipe, {"partition.source": public}, source="--public")
    summary = run(recipe, out / trial.label, seed=trial.seed, workers=workers, report=report)
    return {name: summary[name] for name in _MEASURED}


def _charged(
    recipe: Recipe, trials: Sequence[SweepPoint], out: Path, workers: int, report: Report
) -> list[dict[str, float]]:
    """Every trial in one folder, after all of them were found to be within the budgets there."""
    folder, seed = RunFolder(out), trials[0].seed
    if recipe.secure or recipe.receipts or waits(recipe):
        raise UsageError(
            f"recipe {recipe.name}: with secure aggregation, receipts or a plateau a round is made once. Tune it on a "
            "public dataset (--public)."
        )
    if (folder.simulation / "recipe.yaml").exists():
        raise UsageError(f"{out} holds a run, whose rounds would be replaced. Tune first, in a folder of its own.")
    with locks.held(out, "fedsynth run"), Workers(workers) as pool:
        if not (out / PARTITION_RECORD).exists():
            perform(partition_step(recipe, seed), out)
        plans = [plan(trial.recipe, clients_of(out), seed) for trial in trials]
        names = [sha256_hex(f"{trial.seed} {trial.recipe.to_yaml()}".encode()) for trial in trials]
        record = folder.simulation / _RECORD
        results: dict[str, dict[str, float]] = read_json(record) if record.exists() else {}
        left = [number for number, name in enumerate(names) if name not in results]
        _refuse_over_budget(folder, {number: plans[number] for number in left}, again=bool(results))
        for number in left:
            with _cleared(plans[number], out):
                summary = finish(trials[number].recipe, out, plans[number], pool, report)
            results[names[number]] = {name: summary[name] for name in _MEASURED}
            # Interrupted, it goes on with the others.
            atomic.write(record, [json.dumps(results, indent=2).encode() + b"\n"], force=True)
    return [results[name] for name in names]


@contextlib.contextmanager
def _cleared(steps: Sequence[Step], out: Path) -> Iterator[None]:
    """Without files of another trial before, and of this one after; keys, data and ledgers stay."""
    files = [out / name for name in {CURVE, *(name for step in steps for name in step.outputs)}]
    for path in files:
        path.unlink(missing_ok=True)
    yield
    for path in files:
        path.unlink(missing_ok=True)


def _refuse_over_budget(folder: RunFolder, plans: dict[int, list[Step]], *, again: bool) -> None:
    """Before the first trial: what all of them will be charged for, against every budget.

    `again`: there were trials before, whose draws of clients these have too.
    """
    planned: dict[str, list[list[PrivacyEvent]]] = {}
    known: dict[str, PrivacyEvent | None] = {}
    for number, steps in enumerate(plans.values()):
        for step in steps:
            if not COMMANDS[step.command].may_charge:
                continue
            name = f"{step.section} {json.dumps(dict(step.params), sort_keys=True)}"
            if name not in known:
                known[name] = planned_event(parameters(step))
            event = known[name]
            if event is not None:
                drawn_before = step.owner == "server" and (again or number > 0)
                planned.setdefault(step.owner, []).append([unsampled(event) if drawn_before else event])
    if plans and not planned:
        raise UsageError("this recipe adds no noise: nothing that it sends has an ε. `run --sweep` compares its runs.")
    for owner, events in planned.items():
        _check_budget(folder.server if owner == "server" else folder.client(owner), events, len(plans))


def _check_budget(place: Place, events: Sequence[Sequence[PrivacyEvent]], trials: int) -> None:
    path = place.key.with_name(BUDGET)
    budget = read_budget(path)
    if budget is None:
        return
    before = _reserved(place)
    now, then = budget.spent(before), budget.spent([*before, *events])
    if then > budget.epsilon:
        raise BudgetError(
            f"{path}: the budget of ε {budget.epsilon:g} at δ {budget.delta:g} per {budget.unit} does not allow all "
            f"{trials} trials: {now:.3f} is spent, and it would become {then:.3f}. Try fewer values or rounds, more "
            "noise, or --public. No trial was started."
        )


def _reserved(place: Place) -> list[list[PrivacyEvent]]:
    ledger = spend.beside(place.key)
    return spent_of(spend.read_charged(ledger), ledger) if ledger.exists() else []


def _spent(folder: RunFolder, delta: float) -> list[dict[str, Any]]:
    """ε at δ of all that the ledgers were charged for: of the clients the one that spent most, and of the server."""
    places = {"a client": [folder.client(name) for name in folder.client_names()], "the server": [folder.server]}
    found = []
    for who, several in places.items():
        for unit in UNITS:
            each = [[e for release in _reserved(place) for e in release if e.unit == unit] for place in several]
            numbered = [[replace(e, id=f"{n:064x}") for n, e in enumerate(events)] for events in each]
            if any(numbered):
                most = max(epsilon(events, delta=delta).pld for events in numbered)
                found.append({"who": who, "unit": unit, "epsilon": most})
    return found
