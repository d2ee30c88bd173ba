"""`evaluate RUN…`: runs side by side: accuracy, rounds to a target, what was sent, ε; means over seeds. Never torch."""

from __future__ import annotations

import csv as csv_format
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.errors import InputError, UsageError
from artifacts.kinds import Custody
from artifacts.places import RunFolder
from artifacts.publish import prepare
from artifacts.writing import atomic
from stages.account import check_delta
from stages.evaluate.communication import Communication, read_communication
from stages.evaluate.comparable import differences
from stages.evaluate.efficiency import with_efficiency
from stages.evaluate.seeds import groups_of, means_of, meant
from stages.execution.progress import Summary
from stages.pictures.comparison import GroupCurve, comparison_picture
from stages.run_folder.epsilon import RunEpsilon, run_epsilon
from stages.run_folder.metrics import read_metrics, read_recipe, samples_secretly
from stages.run_folder.totals import epsilon_json

# What is in the CSV, in this order: all of a run but its curve.
_COLUMNS = (
    "label", "group", "recipe", "seed", "clients", "rounds", "planned_rounds", "accuracy", "best", "target",
    "rounds_to_target", "best_round", "parameters_to_best", "bytes_to_best", "model_parameters",
    "state_parameters", "synthetic_numbers", "parameters",
    "parameters_to_target", "stored_bytes", "stored_bytes_to_target",
    "bytes", "bytes_up", "bytes_down", "bytes_states", "bytes_synthetic", "bytes_to_target",
    "delta", "epsilon_basis", "epsilon_at_end", "epsilon_at_end_rdp",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """What one run folder shows. `recipe` is empty where the folder was not made by `fedsynth run`."""

    label: str
    folder: RunFolder
    recipe: dict[str, Any]
    custody: Custody
    accuracy: dict[int, float]
    sent: Communication
    epsilon: RunEpsilon | None = None

    @property
    def seed(self) -> int | None:
        return self.recipe.get("seed")

    @property
    def last(self) -> int:
        return max(self.accuracy)

    @property
    def best_round(self) -> int:
        """The first of the rounds whose model is the most accurate."""
        return max(sorted(self.accuracy), key=lambda r: self.accuracy[r])

    def rounds_to(self, target: float | None) -> int | None:
        """The first round whose model is at least that accurate; None where there is none."""
        reached = [r for r, value in sorted(self.accuracy.items()) if target is not None and value >= target]
        return reached[0] if reached else None

    def finite_epsilon(self) -> dict[int, float]:
        """By privacy loss distributions, after each round; nothing where the run's is ∞, or was not asked for."""
        found = self.epsilon
        if found is None or math.isinf(found.at_end.pld):
            return {}
        return {r: value.pld for r, value in found.after.items()}

    def to_json(self, group: str, target: float | None, delta: float | None) -> dict[str, Any]:
        reached, sent = self.rounds_to(target), self.sent
        best = self.best_round
        return {
            "label": self.label,
            "group": group,
            "recipe": self.recipe.get("name"),
            "seed": self.seed,
            "clients": len(self.folder.client_names()),
            "rounds": self.last,
            "planned_rounds": self.recipe.get("rounds", self.last),
            "accuracy": self.accuracy[self.last],
            "best": max(self.accuracy.values()),
            "target": target,
            "rounds_to_target": reached,
            "best_round": best,
            "parameters_to_best": sent.parameters(best),
            "parameters_up_to_best": sent.parameters(best, up_only=True),
            "one_way": sent.one_way,
            "bytes_to_best": sent.bytes(best),
            "model_parameters": sent.model,
            "state_parameters": sent.states,
            "synthetic_numbers": sent.synthetic,
            "parameters": sent.parameters(self.last),
            "parameters_to_target": None if reached is None else sent.parameters(reached),
            "stored_bytes": sent.stored_bytes(self.last),
            "stored_bytes_to_target": None if reached is None else sent.stored_bytes(reached),
            "parameters_up_to_target": None if reached is None else sent.parameters(reached, up_only=True),
            "bytes": sent.bytes(self.last),
            "bytes_up": sent.bytes(self.last, lambda file: file.up),
            "bytes_down": sent.bytes(self.last, lambda file: not file.up),
            "bytes_states": sent.bytes(self.last, lambda file: file.kind == "state"),
            "bytes_synthetic": sent.bytes(self.last, lambda file: file.kind == "dataset"),
            "bytes_to_target": None if reached is None else sent.bytes(reached),
            "curve": [[r, value] for r, value in sorted(self.accuracy.items())],
            "bytes_by_round": [[r, sent.bytes(r)] for r in sorted(self.accuracy)],
            "delta": delta,
            **_cost(self.epsilon),
        }


def evaluate_runs(
    runs: Sequence[Path],
    out: Path,
    *,
    names: Sequence[str] = (),
    target: float | None = None,
    delta: float | None = None,
    against_bytes: bool = False,
    baseline: str | None = None,
    csv: Path | None = None,
    picture: Path | None = None,
    force: bool = False,
) -> Summary:
    """Compare runs. Those whose recipes differ by the seed alone are one group, with mean, smallest and largest.

    With `delta` also what each cost in ε after each round. `against_bytes`: the picture has that, too.

    The summary holds "runs" and "groups", lists of what the file holds by label.
    """
    if against_bytes and picture is None:
        raise UsageError("--against-bytes needs --picture, which it adds to.")
    if target is not None and not 0 < target <= 1:
        raise UsageError(f"--target is an accuracy above 0 and at most 1 (0.9 for 90%), found {target:g}.")
    check_delta(delta)
    found = [_read(RunFolder(path), label, delta) for path, label in zip(runs, _labels(runs, names), strict=True)]
    # Accuracies measured on private data make the comparison private.
    custody: Custody = "private" if any(run.custody == "private" for run in found) else "public"
    for path in (out, csv, picture):
        if path is not None:
            prepare(path, custody)
    grouped = groups_of(found)
    label_of = {run.label: label for label, members in grouped.items() for run in members}
    rows = [run.to_json(label_of[run.label], target, delta) for run in found]
    groups = [means_of(label, [row for row in rows if row["group"] == label], target) for label in grouped]
    if baseline is not None:
        groups = with_efficiency(groups, meant(baseline, grouped))
    if csv is not None:
        atomic.write(csv, [_as_csv(rows)], force=force, custody=custody)
    if picture is not None:
        curves = [
            GroupCurve(
                label,
                [run.accuracy for run in members],
                [run.rounds_to(target) for run in members],
                [run.finite_epsilon() for run in members],
                (members[0].epsilon.basis if members[0].epsilon else None) or "",
                [{r: run.sent.bytes(r) for r in run.accuracy} for run in members] if against_bytes else (),
            )
            for label, members in grouped.items()
        ]
        atomic.write(picture, [comparison_picture(curves, target, delta)], force=force, custody=custody)
    apart = differences({run.label: run.recipe for run in found}, {run.label: run.last for run in found})
    about = {"custody": custody, "target": target, "delta": delta, "differences": apart}
    shown = {"groups": _by_label(groups), "runs": _by_label(rows)}
    atomic.write_json(out, {**about, **shown}, force=force)
    return {"out": str(out), **about, "runs": rows, "groups": groups}


def _cost(found: RunEpsilon | None) -> dict[str, Any]:
    """ε in all rows, null where it was not asked for; «inf» where it is ∞."""
    end = None if found is None else epsilon_json(found.at_end)
    return {
        "epsilon_basis": None if found is None else found.basis,
        "epsilon_at_end": None if end is None else end["pld"],
        "epsilon_at_end_rdp": None if end is None else end["rdp"],
        "epsilon": None
        if found is None
        else [[r, *epsilon_json(value).values()] for r, value in sorted(found.after.items())],
    }


def _read(folder: RunFolder, label: str, delta: float | None) -> Run:
    if not folder.clients.is_dir():
        problem = "has no clients/" if folder.root.is_dir() else "is no folder"
        raise InputError(f"{folder.root} {problem}: a run folder, as `fedsynth run` makes it, is needed.")
    recipe, metrics = read_recipe(folder), read_metrics(folder)
    accuracy = metrics.accuracy
    # Under secret sampling of clients the bytes tell how many took part, which no public report may (contract, 4).
    custody: Custody = "private" if samples_secretly(folder, recipe) else metrics.custody
    if not accuracy:
        raise InputError(f"{folder.root} has no metrics/round-….json: nothing was evaluated. Run it to the end first.")
    cost = None if delta is None else run_epsilon(folder.root, sorted(accuracy), delta=delta)
    return Run(label, folder, recipe, custody, accuracy, read_communication(folder), cost)


def _labels(runs: Sequence[Path], names: Sequence[str]) -> list[str]:
    """The names as given, or the folders' names with as much of their paths as tells them apart."""
    if not runs:
        raise UsageError("no run was given.")
    if names and len(names) != len(runs):
        raise UsageError(f"--name was given {len(names)} times for {len(runs)} runs: name each of them, or none.")
    paths = [path.resolve() for path in runs]
    labels = list(names)
    if not names:
        depth = max(len(path.parts) for path in paths)
        tries = (["/".join(path.parts[-length:]) for path in paths] for length in range(1, depth + 1))
        labels = next((found for found in tries if len(set(found)) == len(found)), [str(path) for path in runs])
    for number, label in enumerate(labels):
        if label in labels[:number]:
            raise UsageError(f"two runs are called {label!r}. Give each folder once, and each its own --name.")
    return labels


def _by_label(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["label"]: {key: value for key, value in row.items() if key != "label"} for row in rows}


def _as_csv(rows: Sequence[dict[str, Any]]) -> bytes:
    """One row a run; an empty cell where a target was never reached."""
    sink = io.StringIO()
    writer = csv_format.DictWriter(sink, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return sink.getvalue().encode()
