"""`make test-anywhere`: the suite as other machines would run it, and a table of what came of it.

The whole suite runs with two workers, which notes the tests that draw under a key or compute with torch, with one and
with four, and in another order. Those that were noted run again under each instruction set that torch can be held to on
this processor, and with ten other values for every key of a simulation: under the same code another machine draws
other noise. Every result is kept, so that an interrupted command goes on where it was; --fresh begins anew.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CAPABILITIES = ("default", "avx2", "avx512")
SHIFTS = range(1, 11)
WORKERS = (1, 2, 4)
SHIFT = "FEDSYNTH_TEST_KEY_SHIFT"
RECORDING = "workers 2"
# torch takes our word for it and dies of an illegal instruction.
PROBE = "import torch; torch.nn.GroupNorm(2, 4)(torch.rand(2, 4, 8, 8)).softmax(1).sum()"


@dataclass(frozen=True)
class Condition:
    """A way to run the suite. `of` are the kinds of draws whose tests it is about; none stands for all tests."""

    name: str
    workers: int = 2
    environment: dict[str, str] = field(default_factory=dict)
    of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    condition: str
    passed: int
    failed: list[str]
    skipped: int
    seconds: float
    commit: str


def conditions() -> list[Condition]:
    return [
        *(Condition(f"workers {n}", workers=n) for n in sorted(WORKERS, key=lambda n: n != 2)),
        Condition("shuffled", environment={"FEDSYNTH_TEST_ORDER": "1"}),
        *(
            Condition(f"capability {c}", environment={"ATEN_CPU_CAPABILITY": c}, of=("torch", "stream"))
            for c in CAPABILITIES
        ),
        # Once all that a key is used for, commitments among it; then what draws.
        *(
            Condition(f"key shift {n}", environment={SHIFT: str(n)}, of=("key", "stream") if n == 1 else ("stream",))
            for n in SHIFTS
        ),
    ]


def noted_tests(record: Path, kinds: tuple[str, ...]) -> list[str]:
    """The tests that draw so, or use a fixture that does, or share a file with one that keeps what it drew."""
    drew: set[str] = set()
    uses: dict[str, set[str]] = {}
    sharing: set[str] = set()
    for line in record.read_text().splitlines():
        kind, name, *fixture = line.split("\t")
        if kind == "uses":
            uses.setdefault(name, set()).update(fixture)
        elif kind == "shares":
            sharing.add(name)
        elif kind in kinds:
            drew.add(name)
    found = {test for test in uses if test in drew or uses[test] & drew} | (drew & uses.keys())
    files = {test.partition("::")[0] for test in found & sharing}
    return sorted(found | {test for test in sharing if test.partition("::")[0] in files})


def is_named(name: str, only: str) -> bool:
    """«key shift» names all ten of them, «key shift 1» one."""
    return f"{name} ".startswith(f"{only} ")


def can_run(condition: Condition) -> bool:
    wanted = condition.environment.get("ATEN_CPU_CAPABILITY")
    if wanted is None:
        return True
    done = subprocess.run([sys.executable, "-c", PROBE], env=os.environ | condition.environment, capture_output=True)
    return done.returncode == 0


def run(condition: Condition, folder: Path, arguments: list[str]) -> Result:
    """One pytest. Its output goes to a file beside the result."""
    plain = condition.name.replace(" ", "-")
    record, xml, log = folder / "record.txt", folder / f"{plain}.xml", folder / f"{plain}.log"
    environment = os.environ | condition.environment
    if condition.name == RECORDING:
        record.unlink(missing_ok=True)
        environment["FEDSYNTH_TEST_RECORD"] = str(record.absolute())
    if condition.of:
        selected = folder / f"{plain}.txt"
        selected.write_text("".join(f"{test}\n" for test in noted_tests(record, condition.of)))
        environment["FEDSYNTH_TEST_SELECT"] = str(selected.absolute())
    words = [sys.executable, "-m", "pytest", "-n", str(condition.workers), "--dist", "loadfile", f"--junitxml={xml}"]
    began = time.monotonic()
    with log.open("w") as out:
        done = subprocess.run(
            [*words, "--timeout=900", "-rfE", *arguments], cwd=ROOT, env=environment, stdout=out, stderr=out
        )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{condition.name}: pytest ended with {done.returncode}; see {log}")
    return result_of(condition.name, xml, time.monotonic() - began)


def result_of(condition: str, xml: Path, seconds: float) -> Result:
    suite = ElementTree.parse(xml).getroot().find("testsuite")
    assert suite is not None
    bad = [
        case for case in suite.iter("testcase") if case.find("failure") is not None or case.find("error") is not None
    ]
    names = sorted({f"{case.get('classname')}::{case.get('name')}" for case in bad})
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    head = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return Result(condition, total - skipped - len(bad), names, skipped, seconds, head.stdout.strip() or "?")


def rows(results: dict[str, Result], left_out: set[str]) -> Iterator[str]:
    yield "| condition | passed | failed | skipped | minutes | at |"
    yield "|---|---:|---:|---:|---:|---|"
    for condition in conditions():
        name = condition.name
        if name in results:
            r = results[name]
            yield f"| {name} | {r.passed} | {len(r.failed)} | {r.skipped} | {r.seconds / 60:.1f} | {r.commit} |"
        elif name in left_out:
            yield f"| {name} | | | | | left out: this processor has no such instructions |"
    for r in results.values():
        for test in r.failed:
            yield f"{r.condition}: {test}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", metavar="CONDITION", help="a condition, or the beginning of its name"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "runs/anywhere", help="where results are kept")
    parser.add_argument("--fresh", action="store_true", help="forget the results that are kept")
    parser.add_argument("tests", nargs="*", help="test files or folders; all if none is named")
    asked = parser.parse_args()
    folder: Path = asked.out.absolute()
    if asked.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "results.json"
    results = {r["condition"]: Result(**r) for r in json.loads(kept.read_text())} if kept.exists() else {}
    left_out: set[str] = set()
    known = [c.name for c in conditions()]
    for only in asked.only or []:
        if not any(is_named(name, only) for name in known):
            parser.error(f"--only {only}: there is {', '.join(known)}")
    for condition in conditions():
        wanted = asked.only is None or any(is_named(condition.name, only) for only in asked.only)
        if not wanted or (condition.name in results and asked.only is None):
            continue
        if condition.of and not (folder / "record.txt").exists():
            parser.error(f"run --only {RECORDING!r} before: it notes which tests draw")
        if not can_run(condition):
            left_out.add(condition.name)
            continue
        print(f"{condition.name} …", file=sys.stderr, flush=True)
        results[condition.name] = run(condition, folder, asked.tests)
        kept.write_text(json.dumps([asdict(r) for r in results.values()], indent=1))
    print("\n".join(rows(results, left_out)))
    return int(any(r.failed for r in results.values()))


if __name__ == "__main__":
    sys.exit(main())
