"""Measure fedsynth against its peers, side by side, and write docs/benchmarks.md from what was measured.

Each benchmark runs in a process of its own. What has been measured on this machine is kept in benchmarks/measured, turn
by turn, and not measured again, so that a run that was stopped goes on where it was; the page is made of that alone.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import inspect
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import page
from measuring import ROOT, Row, Setting, Size

NAMES = (
    "rounds", "artifact_files", "audit_speed", "aggregate_memory", "streamed_memory", "command_start",
    "private_generator_step", "clipped_gradient", "plugin_layers", "sam_step", "surrogate_step", "secure_aggregation",
    "tofu_encoding", "tofu_files", "tofu_baselines", "federation", "many_clients", "fashion_accuracy",
    "fashion_fedssyn", "fashion_surrogates", "private_sets", "together", "dp_fedsam",
)  # fmt: skip
MEASURED = ROOT / "benchmarks" / "measured"
_PACKAGES = ("fedsynth", "torch", "numpy", "safetensors")
_WIDTHS = (62, 31, 18, 11, 7, 13, 12)


def main(words: list[str] | None = None) -> int:
    options = _options(words)
    machine = _machine()
    print(page.described(machine))
    failed: list[str] = []
    for name in options.only or NAMES:
        kept = options.results / f"{name}.json"
        if not options.again and _is_fresh(kept, machine, options.size):
            print(f"{name}: measured before, in {kept} (--again measures it anew)")
        elif not _in_new_process(name, options.size, kept, options.work, machine):
            failed.append(name)
    if options.size != "smoke":
        text, left = written(options.results)
        options.page.write_text(text)
        print(f"written: {options.page}{'; not run yet: ' if left else ''}{', '.join(left)}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    return 0


def written(kept: Path = MEASURED) -> tuple[str, list[str]]:
    """The page about all benchmarks, from what was measured, and which of them were not run yet."""
    files = {name: kept / f"{name}.json" for name in NAMES}
    measured = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    text = page.page([measured.get(name) or _described(name) for name in NAMES])
    return text, [name for name in NAMES if name not in measured]


def _described(name: str) -> dict[str, Any]:
    benchmark = importlib.import_module(name)
    return {"name": name, "title": benchmark.TITLE, "about": inspect.cleandoc(benchmark.__doc__ or "")}


def _options(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help=f"one of {', '.join(NAMES)}")
    parser.add_argument("--again", action="store_true", help="measure anew what has been measured")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_const", const="full", dest="size", help="larger sizes, more seeds: hours")
    size.add_argument("--smoke", action="store_const", const="smoke", dest="size", help="does it run; writes no page")
    parser.add_argument("--results", type=Path, help="where measurements are kept (benchmarks/measured)")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md", help="the page to write")
    scratch = Path(tempfile.gettempdir())
    parser.add_argument("--work", type=Path, default=scratch, help="scratch folder, on the disk to be measured (5 GB)")
    parser.set_defaults(size="usual")
    options = parser.parse_args(words)
    smoke = options.size == "smoke"
    options.results = options.results or (ROOT / "runs" / "bench-smoke" if smoke else MEASURED)
    return options


def _machine() -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": _processor(),
        "cores": cores,
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.system(),
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _is_fresh(kept: Path, machine: dict[str, Any], size: Size) -> bool:
    """Whether it was measured on this machine with these versions, and at least at this size."""
    if not kept.exists():
        return False
    found = json.loads(kept.read_text())
    return found["machine"] == machine and found["size"] in (size, "full")


def _in_new_process(name: str, size: Size, kept: Path, work: Path, machine: dict[str, Any]) -> bool:
    """What one benchmark imports, sets up or keeps in memory is not there for the next; nor does a failure end all."""
    # Not a daemon: benchmarks start processes themselves.
    process = multiprocessing.get_context("spawn").Process(target=measure, args=(name, size, kept, work, machine))
    process.start()
    process.join()
    return process.exitcode == 0


def measure(name: str, size: Size, kept: Path, work: Path, machine: dict[str, Any]) -> None:
    """Run one benchmark, print its rows and keep them."""
    benchmark = importlib.import_module(name)
    print(f"\n{name}: {benchmark.TITLE}", flush=True)
    _print_line("what", "against", "ours", "theirs", "ratio", "range", "goal")
    rows: list[dict[str, Any]] = []
    start, load = time.perf_counter(), os.getloadavg()[0]
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work, prefix="bench-") as folder:
        for row in benchmark.measure(Setting(folder=Path(folder), size=size)):
            _print_row(row)
            rows.append(row.to_json())
    taken = time.perf_counter() - start
    loads = (load, os.getloadavg()[0])
    print(f"  ({taken:.0f} s; load {loads[0]:.1f} before, {loads[1]:.1f} after)", flush=True)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    about = {"size": size, "machine": machine, "date": date, "seconds": taken, "load": loads}
    result = {**_described(name), **about, "rows": rows}
    kept.parent.mkdir(parents=True, exist_ok=True)
    new = kept.with_suffix(".part")
    new.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    new.replace(kept)


def _print_row(row: Row) -> None:
    cells = page.cells(row.to_json())
    _print_line(row.what, row.against, row.ours, row.theirs, *cells)


def _print_line(*cells: str) -> None:
    padded = (f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
    print("  " + " ".join(padded).rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
