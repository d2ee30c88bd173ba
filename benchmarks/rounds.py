"""A round by `fedsynth run` (files, digests, ledgers, evaluation) against a bare torch loop in memory.

The same gradient steps, aggregation and evaluation on both sides. After each round of the run its workers are frozen,
the bare loop does a round, and the run goes on: the two sides take turns of a second or so. The first round (imports,
decoding) and the last (pictures) of a run are not counted.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from measuring import SHARED_DATA, TINY_NET, Row, Setting, compared

from stages.recipes.plan import plan, planned_clients
from stages.recipes.recipe import Recipe, change, load_recipe
from stages.recipes.runner import run
from stages.run_folder.files import model_file

if TYPE_CHECKING:
    from bare_loop import BareLoop

TITLE = "A round of FedAvg against a bare torch loop"
_SEED = 0
GOAL_ONE_WORKER, GOAL_TWO_WORKERS = 1.05, 1.0
_FASHION_MNIST = (
    "partition.source=fashion-mnist",
    f"partition.root={SHARED_DATA}",
    "partition.clients=10",
    "init-model.arch=convnet",
    "init-model.width=32",
    "train-client.local_epochs=null",
    "train-client.local_steps=10",
    "train-client.batch_size=32",
    "train-client.learning_rate=0.05",
)


def fashion_mnist() -> Recipe:
    """FashionMNIST on ten clients with the 32-wide ConvNet and ten local steps a round."""
    return replace(change(load_recipe("fedavg"), _FASHION_MNIST, None), name="fashion-mnist")


def measure(setting: Setting) -> Iterator[Row]:
    digits = load_recipe("fedavg")
    if setting.smoke:
        yield from _measure(change(digits, TINY_NET, None), "digits", setting, turns=2)
        return
    yield from _measure(digits, "digits", setting, turns=20)
    if SHARED_DATA.is_dir():
        # Two threads gain nothing on digits, whose tensors are small; there the row would only be slow to measure.
        yield from _measure(fashion_mnist(), "FashionMNIST", setting, turns=5 if setting.full else 3, two_threads=True)


def _measure(recipe: Recipe, data: str, setting: Setting, *, turns: int, two_threads: bool = False) -> Iterator[Row]:
    """One folder: first with one worker, then on from there with two."""
    folder = setting.folder / f"rounds-{recipe.name}"
    alone = Turns(recipe, folder, workers=1, turns=turns, threads=(1,))
    bare = "a bare torch loop, one thread"
    what = f"a round on {data}, 1 worker"
    yield compared(what, bare, alone.wall.ours, alone.wall.bare[1], goal=GOAL_ONE_WORKER)
    yield compared(f"{what}: processor time", bare, alone.processor.ours, alone.processor.bare[1])
    if (os.cpu_count() or 1) < 2 or setting.smoke:
        return
    both = Turns(recipe, folder, workers=2, turns=turns, threads=(1, 2) if two_threads else (1,))
    what = f"a round on {data}, 2 workers"
    yield compared(what, bare, both.wall.ours, both.wall.bare[1], goal=GOAL_TWO_WORKERS)
    if two_threads:
        yield compared(what, "a bare torch loop, two threads", both.wall.ours, both.wall.bare[2])


class Clock:
    """Seconds of each counted round by one clock: ours, and the bare loop's by its number of threads."""

    def __init__(self, now: Callable[[], float], threads: tuple[int, ...]) -> None:
        self._now, self._since = now, now()
        self.ours: list[float] = []
        self.bare: dict[int, list[float]] = {number: [] for number in threads}

    def start(self) -> None:
        self._since = self._now()

    def stop(self, taken: list[float]) -> None:
        taken.append(self._now() - self._since)


class Turns:
    """A run whose rounds alternate with the bare loop's. Processor time hardly sees other programs, nor the disk."""

    def __init__(self, recipe: Recipe, folder: Path, *, workers: int, turns: int, threads: tuple[int, ...]) -> None:
        self.wall, self.processor = Clock(time.perf_counter, threads), Clock(_processor_seconds, threads)
        self._clocks = (self.wall, self.processor)
        before = _rounds_done(folder)
        recipe = replace(recipe, rounds=before + turns + 2)
        # A round has ended when as many steps are done as the plan has up to its end.
        rounds_of_steps = [step.round for step in plan(recipe, planned_clients(recipe), _SEED)]
        first, *ends = (sum(r <= before + 1 + turn for r in rounds_of_steps) for turn in range(turns + 1))
        loop: BareLoop | None = None

        def report(done: int, _total: int, _text: str) -> None:
            nonlocal loop
            if done != first and done not in ends:
                return
            if done in ends:
                for clock in self._clocks:
                    clock.stop(clock.ours)
            with _frozen_workers():
                if loop is None:
                    loop = _bare_loop(recipe, folder)
                self._bare_rounds(loop, threads, counted=done in ends)
            for clock in self._clocks:
                clock.start()

        run(recipe, folder, seed=_SEED, workers=workers, report=report)
        assert len(self.wall.ours) == turns, "the runner reports its steps otherwise than this expects"

    def _bare_rounds(self, loop: BareLoop, threads: tuple[int, ...], *, counted: bool) -> None:
        for number in threads:
            for clock in self._clocks:
                clock.start()
            loop.round(number)
            for clock in self._clocks if counted else ():
                clock.stop(clock.bare[number])


def _bare_loop(recipe: Recipe, folder: Path) -> BareLoop:
    from bare_loop import BareLoop  # torch; imported here so that the workers do not import it through this file

    return BareLoop(recipe, folder)


@contextlib.contextmanager
def _frozen_workers() -> Iterator[None]:
    """Stop the processes of the run, which are children of this one, and let them go on afterwards."""
    workers = _workers()
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGCONT)


def _processor_seconds() -> float:
    """What this process and the run's workers have used so far; theirs is known on Linux only, to 10 ms."""
    total = time.process_time()
    for pid in _workers():
        status = Path(f"/proc/{pid}/stat")
        if status.exists():
            fields = status.read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _workers() -> list[int]:
    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


def _rounds_done(folder: Path) -> int:
    done = 0
    while (folder / model_file(done + 1)).exists():
        done += 1
    return done
