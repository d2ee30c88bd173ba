"""`audit --neighbours`: a recipe on data that differ in one record, or in one client, and whether anybody could tell.

Under differential privacy all that leaves sees private data through the Gaussian mechanism and nothing else. Here the
mechanism computes its sums and drops them: what it releases is noise of a fixed stream. Then everything that leaves
with an ε must be the same for both data sets, to the last byte of a tensor: names, sizes, metadata, events, ledger
entries, errors. What differs depends on the data by a way that no noise covers (privacy contract, rules 11 and 28).
Digests and commitments under a key, and ids of events, differ and tell nothing; they are left out.

The recipe is shrunk (`run --shrink`), and one client's data are changed. What the other clients do cannot differ, so it
is copied. After each step the file of the first run takes the place of an equal one of the second: the next step begins
from the same public past in both.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifacts.errors import VerificationError
from artifacts.formats import describe, format_named
from artifacts.places import RunFolder
from artifacts.writing import scratch
from stages.execution.progress import Report, silent
from stages.recipes.recipe import Recipe
from stages.recipes.step import Step
from stages.trials.neighbour_data import Change, Edit, changes_for
from stages.trials.neighbour_files import ledger_of, seen_file, unlike
from stages.trials.runs import Outcome, World, prepared


@dataclass(frozen=True)
class Difference:
    """What somebody could see that depends on one record or client; `neighbour` says how the data differed."""

    neighbour: str
    where: str
    what: str


@dataclass
class NeighbourReport:
    """`files` is how many files were compared byte by byte, `form_only` the kinds that left without an ε."""

    recipe: str
    units: list[str]
    neighbours: list[str] = field(default_factory=list)
    files: int = 0
    form_only: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        found = [{"neighbour": d.neighbour, "where": d.where, "what": d.what} for d in self.differences]
        return {
            "recipe": self.recipe, "units": self.units, "neighbours": self.neighbours, "files": self.files,
            "form_only": self.form_only, "differences": found, "passed": not found,
        }  # fmt: skip

    @property
    def error(self) -> VerificationError | None:
        if not self.differences:
            return None
        count = len(self.differences)
        return VerificationError(f"{self.recipe}: {count} things that others can see depend on one record or client.")


def compare_neighbours(recipe: Recipe, folder: Path, *, seed: int = 0, report: Report = silent) -> NeighbourReport:
    """Run the shrunk recipe on a data set and on its neighbours, below `folder`, and compare what leaves."""
    trial = prepared(recipe, folder, seed)
    result = NeighbourReport(recipe.name, trial.units)
    neighbours = changes_for(trial.units, hides_who=trial.hides_who)
    runs: dict[tuple[Edit, bool], _Finished] = {}
    for number, change in enumerate(neighbours, start=1):
        before = change.before, change.crafted == "both"
        if before not in runs:
            first = trial.world(f"one-{len(runs)}")
            change.before(first.data)
            first.crafted = change.crafted == "both"
            runs[before] = _finished(first)
        second = trial.world("other", without_subject=change.leaves_out)
        change.after(second.data)
        second.crafted = change.crafted is not None
        result.differences += _compared(runs[before], second, change, result)
        result.neighbours.append(change.name)
        report(number, len(neighbours), change.name)
    return result


@dataclass(frozen=True)
class _Finished:
    """A run to compare others with, and how each of its steps ended."""

    world: World
    outcomes: dict[str, Outcome]


def _finished(world: World) -> _Finished:
    outcomes: dict[str, Outcome] = {}
    for step in world.steps:
        outcomes[step.out] = world.take(step)
        if outcomes[step.out].code:
            break
    return _Finished(world, outcomes)


def _compared(run: _Finished, second: World, change: Change, result: NeighbourReport) -> Iterator[Difference]:
    """Run the other, step by step."""
    first, values = run.world, change.crafted != "second"
    for step in second.steps:
        if step.out not in run.outcomes:
            break
        if _is_copied(step, second):
            for name in step.outputs:
                _copy(first.root / name, second.root / name)
            continue
        mine, theirs = run.outcomes[step.out], second.take(step)
        if mine != theirs:
            ended = f"{step.command} ended with {_words(mine)} for one, and with {_words(theirs)} for the other"
            yield Difference(change.name, step.out, ended)
            return
        if mine.code:
            break
        for name in step.outputs:
            yield from _same(first.root / name, second.root / name, name, change, result, values=values)
    if not change.leaves_out:
        yield from _ledgers(first, second, change, values=values)


def _is_copied(step: Step, world: World) -> bool:
    """What another client does by itself, from its own data and the same public files, is the same in both."""
    alone = step.owner not in (world.subject, "server")
    return alone and not world.crafted and not any("secagg" in step.command for step in world.steps)


def _same(
    mine: Path, theirs: Path, name: str, change: Change, result: NeighbourReport, *, values: bool
) -> Iterator[Difference]:
    """Compare a file that leaves; one that may, take for the other's, so that both go on from the same."""
    if mine.exists() != theirs.exists():
        yield Difference(change.name, name, "it is there for one of them alone")
    if format_named(name) is None or not (mine.exists() and theirs.exists()):
        return
    about = describe(mine).metadata
    covered = bool(about.privacy) and not about.disclosures
    masked = about.kind.startswith("secagg")  # with keys and masks that are new in every run
    leaves = "/outbox/" in name
    whole = values and covered and not masked
    digests = values and leaves and not masked
    one, other = (seen_file(path, values=whole, digests=digests) for path in (mine, theirs))
    found = unlike(one, other)
    if leaves and found is not None:
        yield Difference(change.name, name, found)
    if leaves and whole:
        result.files += 1
    elif leaves and values:
        result.form_only = sorted({*result.form_only, about.kind})
    if found is None and whole:
        _copy(mine, theirs)


def _ledgers(first: World, second: World, change: Change, *, values: bool) -> Iterator[Difference]:
    mine, theirs = (RunFolder(world.root).client(world.subject) for world in (first, second))
    found = unlike(ledger_of(mine, sizes=values), ledger_of(theirs, sizes=values))
    if found is not None:
        yield Difference(change.name, str(mine.ledger.relative_to(first.root)), found)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _words(outcome: Outcome) -> str:
    return f"exit code {outcome.code}{f': {outcome.said.strip()}' if outcome.said.strip() else ''}"


def audit_neighbours(recipe: Recipe, *, seed: int = 0, report: Report = silent) -> NeighbourReport:
    """`compare_neighbours` in a folder of its own, which is gone afterwards."""
    with scratch.scratch(scratch.cache_folder(), "neighbours") as folder:
        return compare_neighbours(recipe, folder, seed=seed, report=report)
