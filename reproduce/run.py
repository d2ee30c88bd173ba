"""Run what shows the papers' claims at our scale, keep the figures, and write docs/results.md from them.

All runs are in one folder. What was interrupted goes on; what was measured with the same parameters is not run again.
Figures are kept in reproduce/measured, in the repository, so that the page can be written anew without the runs.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import results_page
from claims import Entry, Paper, Task, papers

ROOT = Path(__file__).parent.parent
MEASURED = Path(__file__).parent / "measured"
_SHARED = ROOT.parent / "shared" / "data"


def main(words: list[str] | None = None) -> int:
    options = _options(words)
    everything = papers()
    failed = []
    for paper in everything:
        for entry in paper.entries:
            name = f"{paper.key}/{entry.id}"
            if options.page_only or (options.only and not any(_is_meant(name, only) for only in options.only)):
                continue
            try:
                _entry(paper, entry, options)
            except KeyboardInterrupt:
                print(f"{name}: interrupted. Run it again: it goes on where it stopped.", file=sys.stderr)
                return 130
            except (subprocess.CalledProcessError, LookupError, ValueError) as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                failed.append(name)
    write_page(everything, options.measured, options.page)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def write_page(everything: Sequence[Paper], measured: Path, target: Path) -> None:
    found = {(paper.key, entry.id): kept(measured, paper, entry) for paper in everything for entry in paper.entries}
    target.write_text(results_page.page(everything, found))
    print(f"written: {target}")


def kept(measured: Path, paper: Paper, entry: Entry) -> dict[str, Any]:
    """What was measured of an entry, by run: only with the command and the metrics that the entry has now."""
    file = measured / paper.key / f"{entry.id}.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    return {
        name: found[name]
        for name, task in entry.runs.items()
        if name in found
        and found[name]["command"] == task.command()
        and all(metric in row["figures"] for row in found[name]["rows"] for metric in entry.metrics(name))
    }


def _is_meant(name: str, only: str) -> bool:
    return name == only or name.startswith(f"{only}/")


def _entry(paper: Paper, entry: Entry, options: argparse.Namespace) -> None:
    found = kept(options.measured, paper, entry)
    places: dict[str, Path] = {}
    for name, task in entry.runs.items():
        digest = _digest(task, options.data) if not task.needs_data() or options.data else ""
        places[name] = options.out / paper.key / entry.id / f"{name}-{digest}"
        if task.needs_data() and options.data is None:
            print(f"{paper.key}/{entry.id}, {name}: not run, it needs --data", flush=True)
        elif name in found and found[name]["digest"] == digest and not options.again:
            print(f"{paper.key}/{entry.id}, {name}: measured before", flush=True)
        else:
            print(f"{paper.key}/{entry.id}, {name}: {task.command()}", flush=True)
            start, load = time.perf_counter(), os.getloadavg()[0]
            rows = _recipe_rows(entry, task, places, options) if task.is_recipe else _command_rows(
                entry, task, places, options
            )  # fmt: skip
            found[name] = {
                "command": task.command(),
                "digest": digest,
                "seconds": round(time.perf_counter() - start),
                "load": round(max(load, os.getloadavg()[0]), 1),
                "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                "versions": {"fedsynth": version("fedsynth"), "torch": version("torch")},
                "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
                "rows": rows,
            }
            file = options.measured / paper.key / f"{entry.id}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            new = file.with_suffix(".part")
            new.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
            new.replace(file)


def _digest(task: Task, data: Path | None) -> str:
    """Of all that the runs are made by: a recipe that changed since is run anew, in another folder."""
    if not task.is_recipe:
        return hashlib.sha256(json.dumps(task.values, sort_keys=True).encode()).hexdigest()[:12]
    from stages.recipes.recipe import change, load_recipe
    from stages.recipes.sweep import points, with_sweep

    values = task.values
    settings = [text.replace("DATA", str(data)) for text in task.settings]
    found = with_sweep(load_recipe(values["recipe"], values.get("preset"), settings), task.sweeps, values.get("target"))
    chosen = change(found, settings, values.get("rounds"))
    texts = [f"{point.label} {point.seed} {point.recipe.to_yaml()}" for point in points(chosen, 0)]
    text = "\n".join([*texts, str(chosen.target)])
    return hashlib.sha256(text.replace(str(data), "DATA").encode()).hexdigest()[:12]


def _recipe_rows(
    entry: Entry, task: Task, places: Mapping[str, Path], options: argparse.Namespace
) -> list[dict[str, Any]]:
    out = places[task.name]
    words = [word.replace("DATA", str(options.data)) for word in task.words()]
    _fedsynth([*words, "--workers", str(options.workers), "--quiet", "-o", str(out)])
    runs = json.loads((out / "comparison.json").read_text())["runs"]
    rows = []
    for label, run in runs.items():
        group = ",".join(part for part in label.split(",") if not part.startswith("seed="))
        figures = {metric: run[metric] for metric in entry.metrics(task.name)}
        rows.append({"group": group, "seed": run["seed"], "figures": figures})
    return rows


def _command_rows(
    entry: Entry, task: Task, places: Mapping[str, Path], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Figures from the JSON that a command prints: `rows` of it if it has them, each with a group, else itself."""
    rows: list[dict[str, Any]] = []
    for seed in task.values.get("seeds", [None]):
        out = places[task.name] / ("all" if seed is None else str(seed))
        out.mkdir(parents=True, exist_ok=True)
        named = {"DATA": str(options.data), "{out}": str(out), "{seed}": str(seed)}
        named |= {f"{{run:{name}}}": str(place) for name, place in places.items()}
        words = task.words()
        for place, value in named.items():
            words = [word.replace(place, value) for word in words]
        printed = json.loads(_python(words[1:]) if words[0] == "python" else _fedsynth([*words, "--json"]))
        found = printed[task.values["rows"]] if "rows" in task.values else [{"group": "", **printed}]
        for row in found:
            figures = {metric: _deep(row, metric) for metric in entry.metrics(task.name)}
            rows.append({"group": row.get("group", ""), "seed": row.get("seed", seed), "figures": figures})
    return rows


def _deep(value: Any, metric: str) -> Any:
    """`privacy.epsilon`: a key within a key."""
    for key in metric.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def _fedsynth(words: Sequence[str]) -> str:
    return _run([str(Path(sys.executable).with_name("fedsynth")), *words])


def _python(words: Sequence[str]) -> str:
    return _run([sys.executable, *words])


def _run(words: Sequence[str]) -> str:
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout


def _options(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", metavar="PAPER[/ENTRY]", help="these alone; the page has all")
    parser.add_argument("--again", action="store_true", help="measure anew what has been measured")
    parser.add_argument("--page-only", action="store_true", help="run nothing, write the page")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "reproduce", help="the folder of all runs")
    parser.add_argument("--data", type=Path, default=_SHARED if _SHARED.is_dir() else None, help="datasets: DATA")
    parser.add_argument("--measured", type=Path, default=MEASURED, help="where figures are kept")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results.md", help="the page to write")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes of `fedsynth run`")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
