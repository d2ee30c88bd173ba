"""What the progress bar and the final table of a run say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from artifacts.formats.plain_data import read_json
from stages.execution.progress import Report, Summary
from stages.recipes.recipe import Recipe
from stages.recipes.step import Step
from stages.words import human_time


class Tally:
    """Counts steps. Those of one command take about as long as each other, those of two commands do not.

    So the time that is left is the mean time of each command, times how often it still comes. Before a command was seen
    once, nobody knows its time: then it is at least what is known of the others.
    """

    def __init__(self, recipe: Recipe, root: Path, report: Report, *, workers: int) -> None:
        self._recipe, self._root, self._report, self._workers = recipe, root, report, workers
        self._total, self._done, self._new = 0, 0, 0
        self._left: Counter[str] = Counter()
        self._seconds: dict[str, list[float]] = {}
        self._sent = 0
        self._curve: dict[int, dict[str, Any]] = {}

    def expect(self, steps: Sequence[Step], done: Sequence[Step]) -> None:
        """These come next, of which some are done."""
        self._total += len(steps)
        self._left.update(step.command for step in steps)
        for step in done:
            self._count(step)
        self._report(self._done, self._total, f"round {max(step.round for step in steps)}/{self._recipe.rounds}")

    def add(self, step: Step, seconds: float) -> None:
        """One was performed, in so many seconds."""
        self._new += 1
        self._seconds.setdefault(step.command, []).append(seconds)
        self._count(step)
        latest = self._curve[max(self._curve)] if self._curve else None
        accuracy = f", accuracy {latest['accuracy']:.1%}" if latest else ""
        text = f"round {step.round}/{self._recipe.rounds}{accuracy}, {self._sent / 1e6:,.1f} MB sent{self.time_left()}"
        self._report(self._done, self._total, text)

    def time_left(self) -> str:
        left = {command: count for command, count in self._left.items() if count}
        mean = {command: sum(some) / len(some) for command, some in self._seconds.items()}
        seconds = sum(count * mean.get(command, 0.0) for command, count in left.items()) / self._workers
        if not left or not seconds:
            return ""
        return f", {'' if left.keys() <= mean.keys() else 'at least '}{human_time(seconds)} left"

    def _count(self, step: Step) -> None:
        self._done += 1
        self._left[step.command] -= 1
        if step.out.startswith("clients/") and "/outbox/" in step.out:
            self._sent += (self._root / step.out).stat().st_size
        if step.command == "evaluate":
            self._curve[step.round] = read_json(self._root / step.out)

    def summary(self) -> Summary:
        rounds = [
            {"round": number, "accuracy": metrics["accuracy"], "loss": metrics["loss"]}
            for number, metrics in sorted(self._curve.items())
        ]
        return {
            "out": str(self._root),
            "recipe": self._recipe.name,
            "rounds": rounds[-1]["round"],
            "steps_run": self._new,
            "steps_kept": self._total - self._new,
            "bytes_sent_by_clients": self._sent,
            "accuracy": rounds[-1]["accuracy"],
            "loss": rounds[-1]["loss"],
            "curve": rounds,
        }
