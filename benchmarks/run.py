"""Measure fedsynth against its peers, side by side: `python benchmarks/run.py [NAME …] [--quick] [--out FILE]`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measuring import Row, Setting

NAMES = (
    "rounds", "artifact_files", "audit_speed", "aggregate_memory", "command_start", "private_generator_step",
    "clipped_gradient", "sam_step", "surrogate_step", "secure_aggregation", "tofu_encoding", "tofu_files",
    "federation", "many_clients", "fashion_accuracy", "fashion_fedssyn", "fashion_surrogates",
)  # fmt: skip
_WIDTHS = (54, 31, 18, 11, 7, 13, 12)


def main() -> int:
    options = _options()
    machine = _machine()
    print(", ".join(f"{name} {machine[name]}" for name in ("fedsynth", "torch", "python", "cores")))
    print(
        "Ratios are ours by theirs, the median over turns that both sides took one after the other; below 1 is faster"
    )
    print("or smaller than the peer. The range holds the middle half of the turns.\n")
    results: dict[str, Any] = {"machine": machine, "quick": options.quick, "benchmarks": {}}
    options.work.mkdir(parents=True, exist_ok=True)
    for name in options.names or NAMES:
        benchmark = importlib.import_module(name)
        print(f"{name}: {benchmark.ABOUT}", flush=True)
        _print_line("what", "against", "ours", "theirs", "ratio", "range", "goal")
        start, load = time.perf_counter(), os.getloadavg()[0]
        rows: list[dict[str, Any]] = []
        with tempfile.TemporaryDirectory(dir=options.work, prefix="bench-") as folder:
            for row in benchmark.measure(Setting(folder=Path(folder), quick=options.quick)):
                _print_row(row)
                rows.append(row.to_json())
        if not rows:
            print("  nothing to measure here")
        taken = time.perf_counter() - start
        print(f"  ({taken:.0f} s; the machine's load was {load:.1f} before)\n", flush=True)
        results["benchmarks"][name] = {"about": benchmark.ABOUT, "load_before": load, "seconds": taken, "rows": rows}
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
        print(f"written: {options.out}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run, all if none: {', '.join(NAMES)}")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run of less than a minute; its numbers mean little"
    )
    parser.add_argument("--out", type=Path, help="write all numbers to this JSON file")
    parser.add_argument(
        "--work",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="scratch folder, on the disk to be measured (5 GB)",
    )
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; known: {', '.join(NAMES)}")
    return options


def _machine() -> dict[str, Any]:
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("fedsynth", "torch", "numpy", "safetensors")},
    }


def _print_row(row: Row) -> None:
    ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
    spread = f"{row.low:.2f} … {row.high:.2f}" if row.low is not None and row.high is not None else ""
    goal = "" if row.goal is None else f"≤ {row.goal:g} {'met' if row.met else 'MISSED'}"
    _print_line(row.what, row.against, row.ours, row.theirs, ratio, spread, goal)


def _print_line(*cells: str) -> None:
    padded = (f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
    print("  " + " ".join(padded).rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
