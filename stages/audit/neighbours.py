"""`audit --neighbours`: a recipe on data that differ in one record, or in one client, and whether anybody could tell.

Under differential privacy all that leaves sees private data through the Gaussian mechanism and nothing else. Here the
mechanism computes its sums and drops them: what it releases is noise of a fixed stream. Then everything that leaves with
an ε must be the same for both data sets, to the last byte of a tensor: names, sizes, metadata, events, ledger entries,
errors. What differs depends on the data by a way that no noise covers (privacy contract, rules 11 and 28). Digests and
commitments under a key, and ids of events, differ and tell nothing; they are left out.

The recipe is shrunk (`run --shrink`), and one client's data are changed. What the other clients do cannot differ, so it
is copied. After each step the file of the first run takes the place of an equal one of the second: the next step begins
from the same public past in both.
"""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from artifacts.errors import FedsynthError, UsageError, VerificationError
from artifacts.formats import describe, format_named
from artifacts.metadata import Metadata
from artifacts.places import RunFolder
from artifacts.writing import scratch
from stages.audit.neighbour_data import Change, changes_for, craft_model
from stages.audit.neighbour_files import ledger_of, seen_file, unlike
from stages.execution.progress import Report, silent
from stages.recipes.files import model_file
from stages.recipes.perform import perform
from stages.recipes.phases import resolved
from stages.recipes.plan import partition_step, plan
from stages.recipes.recipe import Recipe
from stages.recipes.runner import clients_of
from stages.recipes.shrink import shrunk
from stages.recipes.step import Step


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
        return VerificationError(f"{self.recipe}: {len(self.differences)} things that anybody can see depend on one record.")


def compare_neighbours(recipe: Recipe, folder: Path, *, seed: int = 0, report: Report = silent) -> NeighbourReport:
    """Run the shrunk recipe on a data set and on its neighbours, below `folder`, and compare what leaves."""
    small = _small(recipe, folder)
    divided = folder / "divided"
    perform(partition_step(small, seed), divided)
    clients = clients_of(divided)
    subject = clients[0]
    units, covered = _units(small, clients, seed, folder, divided, subject)
    result = NeighbourReport(recipe.name, units)
    neighbours = changes_for(units, secure=small.secure)
    for number, change in enumerate(neighbours, start=1):
        first = _World(folder / "one", small, clients, seed, subject, covered)
        second = _World(folder / "other", small, clients, seed, subject, covered, without=change.leaves_out)
        for world, changed in ((first, change.before), (second, change.after)):
            world.begin(divided)
            changed(world.root / "clients" / subject / "private/data.parquet", world.root / "public/test.parquet")
        if change.crafted:
            for world in (first, second) if change.crafted == "both" else (second,):
                world.crafted = True
        result.differences += _compared(first, second, change, result)
        result.neighbours.append(change.name)
        report(number, len(neighbours), change.name)
    return result


def _small(recipe: Recipe, folder: Path) -> Recipe:
    """Shrunk, of three clients at most and without phases that wait for an accuracy; of a sweep the first run."""
    if recipe.sweep:
        from stages.recipes.sweep import points

        recipe = points(recipe, 0)[0].recipe
    return resolved(shrunk(recipe, folder), {})


def _units(
    recipe: Recipe, clients: Sequence[str], seed: int, folder: Path, divided: Path, subject: str
) -> tuple[list[str], frozenset[str]]:
    """What the recipe's ε is for, and which steps lead to files that have one; by a run of all of it."""
    world = _World(folder / "one", recipe, clients, seed, subject, None)
    world.begin(divided)
    leaving: dict[str, Metadata] = {}
    for step in world.steps:
        outcome = world.take(step)
        if outcome.code:
            raise UsageError(f"the shrunk recipe does not run: {step.command}: {outcome.said}")
        leaving |= {name: describe(world.root / name).metadata for name in _leaving(step) if format_named(name)}
    covered = {name: about for name, about in leaving.items() if about.privacy and not about.disclosures}
    if not covered:
        raise UsageError(f"recipe {recipe.name} promises no ε for anything that leaves: there is nothing to compare.")
    units = sorted({str(event["unit"]) for about in covered.values() for event in about.privacy})
    return units, _ancestors(world.steps, covered)


def _leaving(step: Step) -> list[str]:
    return [name for name in step.outputs if "/outbox/" in name]


def _ancestors(steps: Sequence[Step], files: Mapping[str, Any]) -> frozenset[str]:
    """The outputs of all steps without which these files would not be."""
    wanted = set(files)
    for step in reversed(steps):
        if wanted & set(step.outputs):
            wanted |= {*step.outputs, *step.inputs, *step.needs}
    return frozenset(wanted)


@dataclass(frozen=True)
class _Outcome:
    """Exit code, and what was printed as an error, without the folder's name."""

    code: int
    said: str


class _World:
    """One run. `covered` are the files that lead to an ε: nothing else is made. `without`: the subject was not drawn."""

    def __init__(
        self, root: Path, recipe: Recipe, clients: Sequence[str], seed: int, subject: str,
        covered: frozenset[str] | None, *, without: bool = False,
    ) -> None:  # fmt: skip
        self.root, self.subject, self.crafted = root, subject, False
        here = [name for name in clients if not (without and name == subject)]
        every = plan(replace(recipe), clients, seed, draw=lambda names, _round: [n for n in names if n in here])
        self.steps = [s for s in every if s.command != "evaluate" and (covered is None or covered & set(s.outputs))]

    def begin(self, divided: Path) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(divided, self.root)

    def take(self, step: Step) -> _Outcome:
        from stages.privacy.mechanism import noise_alone

        said = io.StringIO()
        code = 0
        with contextlib.redirect_stderr(said), noise_alone(_stream(step.out)):
            try:
                perform(step, self.root)
                if self.crafted and step.out == model_file(0):
                    craft_model(self.root / step.out)
            except FedsynthError as error:
                code = error.exit_code
                said.write(str(error))
        return _Outcome(code, said.getvalue().replace(str(self.root), ""))


def _stream(name: str) -> Any:
    """The noise of the step that writes this file, the same in every run."""
    from stages.privacy.streams import CONTEXT, KEY_SIZE, SecretStream

    return SecretStream(bytes(KEY_SIZE), dict.fromkeys(CONTEXT, name), "noise")


def _compared(first: _World, second: _World, change: Change, result: NeighbourReport) -> Iterator[Difference]:
    """Run both, step by step."""
    others = {step.out: step for step in second.steps}
    values = change.crafted != "second"
    for step in first.steps:
        mine = first.take(step)
        if step.out not in others:
            continue
        other = others[step.out]
        if _is_copied(step, second, first):
            for name in step.outputs:
                _copy(first.root / name, second.root / name)
            continue
        theirs = second.take(other)
        if mine != theirs:
            yield Difference(change.name, step.out, f"{step.command} ended with {_words(mine)}, and with {_words(theirs)}")
            return
        if mine.code:
            return
        for name in step.outputs:
            yield from _same(first.root / name, second.root / name, name, change, result, values=values)
    if not change.leaves_out:
        yield from _ledgers(first, second, change, values=values)


def _is_copied(step: Step, second: _World, first: _World) -> bool:
    """What another client does by itself, from its own data and the same public files, is the same in both."""
    alone = step.owner not in (second.subject, "server", "simulation")
    return alone and not second.crafted and not any("secagg" in s.command for s in first.steps)


def _same(
    mine: Path, theirs: Path, name: str, change: Change, result: NeighbourReport, *, values: bool
) -> Iterator[Difference]:
    """Compare a file that leaves; one that may, take for the other's, so that both go on from the same."""
    if format_named(name) is None or not theirs.exists():
        return
    about = describe(mine).metadata
    covered = bool(about.privacy) and not about.disclosures
    masked = about.kind.startswith("secagg")  # with keys and masks that are new in every run
    leaves = "/outbox/" in name
    whole = values and covered and not masked
    digests = values and leaves and not masked
    found = unlike(*(seen_file(path, values=whole, digests=digests) for path in (mine, theirs)))
    if leaves and found is not None:
        yield Difference(change.name, name, found)
    if leaves and whole:
        result.files += 1
    elif leaves and values:
        result.form_only = sorted({*result.form_only, about.kind})
    if found is None and whole:
        _copy(mine, theirs)


def _ledgers(first: _World, second: _World, change: Change, *, values: bool) -> Iterator[Difference]:
    mine, theirs = (RunFolder(world.root).client(world.subject) for world in (first, second))
    found = unlike(ledger_of(mine, sizes=values), ledger_of(theirs, sizes=values))
    if found is not None:
        yield Difference(change.name, str(mine.ledger.relative_to(first.root)), found)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _words(outcome: _Outcome) -> str:
    return f"exit code {outcome.code}{f': {outcome.said.strip()}' if outcome.said.strip() else ''}"


def audit_neighbours(recipe: Recipe, *, seed: int = 0, report: Report = silent) -> NeighbourReport:
    """`compare_neighbours` in a folder of its own, which is gone afterwards."""
    with scratch.scratch(scratch.cache_folder(), "neighbours") as folder:
        return compare_neighbours(recipe, folder, seed=seed, report=report)
