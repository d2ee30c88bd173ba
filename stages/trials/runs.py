"""Small runs of a recipe, step by step in this process, for audits that look at what one client's data change."""

from __future__ import annotations

import contextlib
import io
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.errors import FedsynthError, UsageError
from artifacts.formats import describe, format_named
from artifacts.metadata import Metadata
from stages.privacy.mechanism import noise_alone
from stages.privacy.streams import CONTEXT, KEY_SIZE, SecretStream
from stages.recipes.perform import perform
from stages.recipes.phases import resolved
from stages.recipes.plan import partition_step, plan
from stages.recipes.recipe import Recipe
from stages.recipes.runner import clients_of
from stages.recipes.shrink import shrunk
from stages.recipes.step import Step
from stages.run_folder.files import data_file, model_file
from stages.trials.neighbour_data import craft_model


@dataclass(frozen=True)
class Outcome:
    """Exit code, and what was printed as an error, without the folder's name."""

    code: int
    said: str


@dataclass(frozen=True)
class Trial:
    """A shrunk recipe whose data are divided. `units`: what its ε is for. `covered`: the files that lead to one.

    The subject is the client whose data are changed.
    """

    recipe: Recipe
    folder: Path
    clients: list[str]
    seed: int
    units: list[str]
    covered: frozenset[str] | None = None
    hides_who: bool = False  # the server adds the noise, and shows nobody who took part

    @property
    def subject(self) -> str:
        return self.clients[0]

    def world(self, name: str, *, without_subject: bool = False) -> World:
        """A run from the divided data on; `without_subject`: in no round the subject is drawn."""
        root = self.folder / name
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.folder / _DIVIDED, root)
        here = {client for client in self.clients if not (without_subject and client == self.subject)}
        every = plan(self.recipe, self.clients, self.seed, draw=lambda names, _round: [n for n in names if n in here])
        steps = [s for s in every if s.command != "evaluate" and (self.covered is None or self.covered & {*s.outputs})]
        return World(root, self.subject, steps)


_DIVIDED = "divided"


@dataclass
class World:
    """One run. `crafted`: its first model has huge weights."""

    root: Path
    subject: str
    steps: list[Step]
    crafted: bool = False

    @property
    def data(self) -> Path:
        """The subject's."""
        return self.root / data_file(self.subject)

    def take(self, step: Step) -> Outcome:
        """Perform a step; its mechanism releases noise of a fixed stream alone."""
        said, code = io.StringIO(), 0
        with contextlib.redirect_stderr(said), _noted(said), noise_alone(_stream(step.out)):
            try:
                perform(step, self.root)
                if self.crafted and step.out == model_file(0):
                    craft_model(self.root / step.out)
            except FedsynthError as error:
                code = error.exit_code
                said.write(str(error))
        return Outcome(code, said.getvalue().replace(str(self.root), ""))


@contextlib.contextmanager
def _noted(said: io.StringIO) -> Iterator[None]:
    """What stages log goes there: the command line's own handler writes to a terminal that it found before."""
    log, handler = logging.getLogger("fedsynth"), logging.StreamHandler(said)
    before, log.handlers, log.propagate = (log.handlers, log.propagate), [handler], False
    try:
        yield
    finally:
        log.handlers, log.propagate = before


def prepared(recipe: Recipe, folder: Path, seed: int) -> Trial:
    """The recipe shrunk, of a sweep its first run; divided, and run once to see what has an ε."""
    if recipe.sweep:
        from stages.recipes.sweep import points

        recipe = points(recipe, 0)[0].recipe
    small = resolved(shrunk(recipe, folder), {})
    perform(partition_step(small, seed), folder / _DIVIDED)
    trial = Trial(small, folder, clients_of(folder / _DIVIDED), seed, [])
    world = trial.world("whole")
    leaving: dict[str, Metadata] = {}
    for step in world.steps:
        outcome = world.take(step)
        if outcome.code:
            raise UsageError(f"the shrunk recipe does not run: {step.command}: {outcome.said}")
        names = [name for name in step.outputs if "/outbox/" in name and format_named(name)]
        leaving |= {name: describe(world.root / name).metadata for name in names}
    covered = {name: about for name, about in leaving.items() if about.privacy and not about.disclosures}
    if not covered:
        raise UsageError(f"recipe {recipe.name} promises no ε for anything that leaves: there is nothing to compare.")
    units = sorted({str(event["unit"]) for about in covered.values() for event in about.privacy})
    trusted = {str(event["trust"]) for about in covered.values() for event in about.privacy}
    return Trial(small, folder, trial.clients, seed, units, _ancestors(world.steps, covered), "server" in trusted)


def _ancestors(steps: Sequence[Step], files: Mapping[str, Any]) -> frozenset[str]:
    """The outputs of all steps without which these files would not be."""
    wanted = set(files)
    for step in reversed(steps):
        if wanted & set(step.outputs):
            wanted |= {*step.outputs, *step.inputs, *step.needs}
    return frozenset(wanted)


def _stream(name: str) -> SecretStream:
    """The noise of the step that writes this file, the same in every run."""
    return SecretStream(bytes(KEY_SIZE), dict.fromkeys(CONTEXT, name), "noise")
