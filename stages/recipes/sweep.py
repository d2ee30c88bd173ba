"""A sweep: one recipe with several values for some of its parameters, a run for each point of their product.

    sweep:
      synthetic: [none, own, shuffled]
      train-client.algorithm: [fedavg, {value: fedprox, train-client.mu: 0.1}]
      seed: [0, 1, 2]

Each point is an ordinary run in a folder of its own, named after the values; whatever stops the sweep, finished points
are kept. A value may set further targets with it, as `fedprox` does above, and `target`, the accuracy asked for.
"""

from __future__ import annotations

import filecmp
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from artifacts.errors import FedsynthError, UsageError
from artifacts.formats.plain_data import dump_yaml, parse_yaml
from artifacts.writing import atomic, locks
from stages.execution.progress import Report, Summary, silent
from stages.execution.workers import Workers
from stages.recipes.declared import parameters
from stages.recipes.plan import check
from stages.recipes.recipe import Recipe, assigned, canonical
from stages.recipes.runner import begin, finish
from stages.recipes.step import Step
from stages.recipes.table import layout_of, write_table

_LONGEST_LABEL = 200  # a file system's limit is 255 bytes


@dataclass(frozen=True, kw_only=True)
class SweepPoint:
    """One run of a sweep; its label is the name of its folder."""

    label: str
    recipe: Recipe
    seed: int
    values: Mapping[str, Any]

    def generator_key(self) -> tuple[Any, ...]:
        """What decides about the clients' generators: points that agree in it train the same ones."""
        return self.seed, self.recipe.section("partition"), self.recipe.section("train-generator")


def with_sweep(recipe: Recipe, sweeps: Sequence[str], target: float | None) -> Recipe:
    """Apply `--sweep key=v1,v2` (over the recipe's own values for that key) and `--target`."""
    added: dict[str, list[Any]] = {}
    for text in sweeps:
        key, equals, values = text.partition("=")
        if not equals:
            raise UsageError(f"--sweep {text}: write key=value,value,…, the key as in --set, or seed.")
        try:
            added[key] = parse_yaml(f"[{values}]")
        except ValueError as error:
            raise UsageError(f"--sweep {text}: {' '.join(str(error).split())}.") from error
    swept = replace(recipe, sweep=added).sweep  # spelt alike, so that they meet the recipe's own
    return replace(recipe, sweep={**recipe.sweep, **swept}, target=recipe.target if target is None else target)


def points(recipe: Recipe, seed: int) -> list[SweepPoint]:
    """Every point of the sweep in order, the last axis fastest, each of them checked."""
    if "seed" in recipe.sweep and seed:
        raise UsageError(f"--seed {seed}, but the recipe sweeps over the seed. Give --sweep seed={seed} instead.")
    axes = [[_setting(recipe, target, value) for value in values] for target, values in recipe.sweep.items()]
    short = _short_names(list(recipe.sweep))
    found: dict[str, SweepPoint] = {}
    for chosen in product(*axes):
        label = ",".join(f"{short[t]}={_safe(setting[t])}" for t, setting in zip(recipe.sweep, chosen, strict=True))
        if label in found:
            raise UsageError(f"recipe {recipe.name}: two points of the sweep are called {label}. Give each value once.")
        if len(label) > _LONGEST_LABEL:
            raise UsageError(f"recipe {recipe.name}: {label} is too long for the name of a folder.")
        values = {target: value for setting in chosen for target, value in setting.items()}
        axes_of = {target: values[target] for target in recipe.sweep}
        found[label] = _point(recipe, label, values, seed, axes_of)
    return list(found.values())


def run_sweep(
    recipe: Recipe, out: Path, *, seed: int, workers: int, devices: Sequence[str] = (), report: Report = silent
) -> Summary:
    """Run every point into a folder under `out`, going on where an earlier call stopped, and compare them there."""
    if (out / "simulation").exists():
        raise UsageError(f"{out} holds a single run; a sweep makes a folder for each of its own. Choose another --out.")
    everything = points(recipe, seed)
    with locks.held(out, "fedsynth run"), Workers(workers, devices) as pool:
        return finish_sweep(recipe, out, everything, pool, report)


def finish_sweep(
    recipe: Recipe, out: Path, everything: list[SweepPoint], pool: Workers, report: Report = silent
) -> Summary:
    """Run those of the points that are not done yet, on the processes of `pool`, and compare all of them."""
    from stages.evaluate.runs import evaluate_runs

    layout = layout_of(recipe)
    for number, point in enumerate(everything, start=1):
        place, root = f"{number}/{len(everything)} {point.label}", out / point.label
        try:
            with locks.held(root, "fedsynth run"):
                steps = begin(point.recipe, root, point.seed)
                for donor in everything:
                    if donor is not point and donor.generator_key() == point.generator_key():
                        reuse_generators(steps, out / donor.label, root)
                finish(point.recipe, root, steps, pool, _placed(report, place))
        except FedsynthError as error:
            raise type(error)(f"{point.label}: {error}") from error
    compared = evaluate_runs(
        [out / point.label for point in everything],
        out / "comparison.json",
        names=[point.label for point in everything],
        target=recipe.target,
        csv=out / "comparison.csv",
        picture=out / "comparison.png",
        force=True,
    )
    table = write_table(recipe, layout, everything, out) if layout is not None else {}
    return {"recipe": recipe.name, **table, **compared, "out": str(out), "comparison": str(out / "comparison.json")}


def _placed(report: Report, place: str) -> Report:
    return lambda done, total, text: report(done, total, f"{place}: {text}")


def reuse_generators(steps: Sequence[Step], donor: Path, root: Path) -> None:
    """Take over what another run trained from the very same data, parameters and seed: it would be the same bytes.

    Not with differential privacy: the training also is in the client's spend ledger, and must be in each.
    """
    for step in steps:
        if step.command != "train-generator" or any((root / name).exists() for name in step.outputs):
            continue
        if parameters(step).is_private:
            continue
        there = all((donor / name).exists() for name in (*step.inputs, *step.outputs))
        if there and all(filecmp.cmp(donor / name, root / name, shallow=False) for name in step.inputs):
            for name in step.outputs:
                _link(donor / name, root / name)


def _link(source: Path, target: Path) -> None:
    """A second name for the same bytes, where the file system has those. Files are replaced, never written into."""
    try:
        os.link(source, target)
    except OSError:
        atomic.write(target, [source.read_bytes()], force=False)


def _setting(recipe: Recipe, target: str, value: Any) -> dict[str, Any]:
    """What one value of an axis sets: its own target first, and what the value brings with it."""
    if not isinstance(value, Mapping):
        if isinstance(value, list):
            raise UsageError(
                f"recipe {recipe.name}: sweep over {target}: a value is one thing, found the list {value}."
            )
        return {target: value}
    if "value" not in value:
        raise UsageError(f"recipe {recipe.name}: sweep over {target}: {dict(value)} needs the key `value`.")
    try:
        spelt = {key if key == "target" else canonical(key): v for key, v in value.items() if key != "value"}
        return {target: value["value"], **spelt}
    except ValueError as error:
        raise UsageError(f"recipe {recipe.name}: sweep over {target}: {error}.") from error


def _point(recipe: Recipe, label: str, values: dict[str, Any], seed: int, axes: Mapping[str, Any]) -> SweepPoint:
    chosen = values.pop("seed", seed)
    if not isinstance(chosen, int) or isinstance(chosen, bool):
        raise UsageError(f"recipe {recipe.name}: sweep over seed: a seed is a whole number, found {chosen!r}.")
    target = values.pop("target", recipe.target)
    made = assigned(replace(recipe, sweep={}, target=target), values, source="sweep")
    try:
        check(made)
    except UsageError as error:
        raise UsageError(f"{label}: {error}") from error
    return SweepPoint(label=label, recipe=made, seed=chosen, values=axes)


def _short_names(targets: Sequence[str]) -> dict[str, str]:
    """Targets without their stages, where that still tells them apart."""
    short = {target: target.rpartition(".")[2] for target in targets}
    return {target: name if list(short.values()).count(name) == 1 else target for target, name in short.items()}


def _safe(value: Any) -> str:
    """A value as part of a folder's name: as YAML writes it, with a dash for whatever a shell or a path would mind."""
    text = dump_yaml(value, width=1000).partition("\n")[0].strip("'\"")
    return re.sub(r"[^A-Za-z0-9._+-]", "-", text)
