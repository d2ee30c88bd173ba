"""A sweep as a table of the paper: `matrix` says which axes are its rows and columns, and what is compared in a cell.

    matrix:
      rows: train-client.algorithm
      columns: [partition.alpha]
      against: synthetic

Seeds become mean ± standard deviation. In each cell are the rounds to the target and the best accuracy for each value
of `against`, and how many times fewer rounds each takes than the first one.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.errors import UsageError
from artifacts.formats.plain_data import read_json
from artifacts.writing import atomic
from stages.run_folder.files import metrics_file

if TYPE_CHECKING:
    from stages.recipes.recipe import Recipe
    from stages.recipes.sweep import SweepPoint

_KEYS = ("rows", "columns", "against")


@dataclass(frozen=True)
class Layout:
    """Axes of the sweep by their part in the table; `seed` has none, as it is what the mean is over."""

    rows: str
    columns: tuple[str, ...]
    against: str | None


@dataclass(frozen=True)
class Result:
    """What one run came to: the best public accuracy, and the first round that reached the target, if one did."""

    best: float
    reached: int | None
    rounds: int
    target: float | None


def layout_of(recipe: Recipe) -> Layout | None:
    """The table that the recipe asks for; each axis of the sweep must be a part of it, save those that --set fixed."""
    matrix = recipe.matrix
    if not matrix:
        return None

    def wrong(what: str) -> UsageError:
        return UsageError(f"recipe {recipe.name}: matrix: {what}.")

    unknown = sorted(matrix.keys() - set(_KEYS))
    if unknown or "rows" not in matrix:
        raise wrong(
            f"its keys are {', '.join(_KEYS)}, and rows is needed; found {', '.join(map(str, matrix)) or 'none'}"
        )
    columns = matrix.get("columns", [])
    columns = [columns] if isinstance(columns, str) else columns
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise wrong(f"columns must be axes of the sweep, found {columns!r}")
    rows, against = str(matrix["rows"]), matrix.get("against")
    fixed = {target for target, origin in recipe.origins.items() if origin.source == "--set"} - set(recipe.sweep)
    named = [axis for axis in (rows, *columns, against) if axis is not None and axis not in fixed]
    axes = set(recipe.sweep) - {"seed"}
    if sorted(named) != sorted(axes):
        raise wrong(f"name each axis of the sweep once ({', '.join(sorted(axes)) or 'there is none'}); found {named}")
    if rows in fixed:
        return None
    columns = [axis for axis in columns if axis not in fixed]
    return Layout(rows, tuple(columns), against if against not in fixed else None)


def result_of(run: Path, rounds: int, target: float | None) -> Result:
    accuracy = {number: float(read_json(run / metrics_file(number))["accuracy"]) for number in range(rounds + 1)}
    reached = None if target is None else next((n for n, value in accuracy.items() if n and value >= target), None)
    return Result(max(accuracy.values()), reached, rounds, target)


def write_table(recipe: Recipe, layout: Layout, points: Sequence[SweepPoint], out: Path) -> dict[str, str]:
    """`table.md` and `table.csv` in `out`, from the finished runs beneath it."""
    cells: dict[tuple[Any, ...], list[Result]] = {}
    for point in points:
        key = tuple(point.values[axis] for axis in (layout.rows, *layout.columns, layout.against) if axis)
        result = result_of(out / point.label, point.recipe.rounds, point.recipe.target)
        cells.setdefault(key, []).append(result)
    records = _records(layout, cells)
    texts = {"table.md": _markdown(recipe, layout, records), "table.csv": _csv(records)}
    for name, text in texts.items():
        atomic.write(out / name, [text.encode()], force=True)
    return {"table": str(out / "table.md"), "table_csv": str(out / "table.csv")}


def _records(layout: Layout, cells: Mapping[tuple[Any, ...], Sequence[Result]]) -> list[dict[str, Any]]:
    """One for each cell and value of `against`, in the order of the sweep."""
    records = []
    first: dict[tuple[Any, ...], Sequence[Result]] = {}
    for key, results in cells.items():
        place = key[: 1 + len(layout.columns)]
        first.setdefault(place, results)
        axes = [layout.rows, *layout.columns, *([layout.against] if layout.against else [])]
        rounds, spread = _over_seeds([r.reached for r in results])
        best, best_spread = _over_seeds([r.best for r in results])
        records.append(
            {
                **dict(zip(axes, key, strict=True)),
                "seeds": len(results),
                "target": results[0].target,
                "rounds_to_target": rounds,
                "rounds_sd": spread,
                "accuracy": best,
                "accuracy_sd": best_spread,
                "speed_up": _speed_up(first[place], results),
                "rounds": results[0].rounds,
            }
        )
    return records


def _over_seeds(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean and standard deviation (n − 1) over the seeds; none where one of them has no value."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None, None
    return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None


def _speed_up(first: Sequence[Result], others: Sequence[Result]) -> str | None:
    """The ratio of mean rounds; a lower bound, marked >, where the first did not get there in all its rounds."""
    rounds, _ = _over_seeds([result.reached for result in others])
    if first is others or rounds is None:
        return None
    spent = [result.reached if result.reached is not None else result.rounds for result in first]
    bound = any(result.reached is None for result in first)
    return f"{'> ' if bound else ''}{statistics.fmean(spent) / rounds:.1f}x"


def _markdown(recipe: Recipe, layout: Layout, records: Sequence[Mapping[str, Any]]) -> str:
    rows = list(dict.fromkeys(str(record[layout.rows]) for record in records))
    heads = [_head(layout, record) for record in records]
    columns = list(dict.fromkeys(heads))
    found = {(str(r[layout.rows]), head): _cell(r) for r, head in zip(records, heads, strict=True)}
    lines = [
        f"# {recipe.name}: {recipe.about}",
        "",
        "| " + " | ".join([layout.rows, *columns]) + " |",
        "|" + "---|" * (1 + len(columns)),
        *("| " + " | ".join([row, *(found.get((row, column), "") for column in columns)]) + " |" for row in rows),
        "",
        _caption(records),
        "",
    ]
    return "\n".join(lines)


def _head(layout: Layout, record: Mapping[str, Any]) -> str:
    words = [f"{axis.rpartition('.')[2]} {record[axis]}" for axis in layout.columns]
    words += [f"{layout.against.rpartition('.')[2]} {record[layout.against]}"] if layout.against else []
    words += [f"m = {record['target']:.0%}"] if record["target"] is not None else []
    return ", ".join(words) or "all"


def _cell(record: Mapping[str, Any]) -> str:
    accuracy = f"{record['accuracy']:.1%}"
    if record["accuracy_sd"] is not None:
        accuracy += f" ± {100 * record['accuracy_sd']:.1f}"
    if record["target"] is None:
        return accuracy
    if record["rounds_to_target"] is None:
        return f"> {record['rounds']} rounds; {accuracy}"
    rounds = f"{record['rounds_to_target']:.1f}"
    if record["rounds_sd"] is not None:
        rounds += f" ± {record['rounds_sd']:.1f}"
    return f"{rounds} rounds{f' ({speed})' if (speed := record['speed_up']) else ''}; {accuracy}"


def _caption(records: Sequence[Mapping[str, Any]]) -> str:
    seeds = sorted({record["seeds"] for record in records})
    over = f"{seeds[0]} seed{'s' if seeds[0] > 1 else ''}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    return (
        f"Rounds to the target accuracy m, and best accuracy on the public test set: mean ± standard deviation over "
        f"{over}. «> R rounds»: a seed did not reach it within R. In brackets: how many times fewer rounds than in the "
        "first column of the pair. Learning rates are the recipe's, not tuned for each cell, baselines included."
    )


def _csv(records: Sequence[Mapping[str, Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return buffer.getvalue()
