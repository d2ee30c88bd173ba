"""`make test-anywhere`: the suite as other machines would run it, and a table of what came of it.

The whole suite runs three times: with two workers as it is, which notes the tests that draw under a key; with one and
with four workers, each in another order, with other keys and under other instructions. A test that depends on one of
these fails in the run that changes it, whatever else the run changes. The tests that were noted run again with eight
more values for every key of a simulation: under the same code another machine draws other noise, and what never touches
a key cannot depend on it. Every result is kept, so that an interrupted command goes on where it was; --fresh begins
anew.
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
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ASKED = "import torch; print(torch.backends.cpu.get_cpu_capability())"
ROOT = Path(__file__).parent.parent.parent
CAPABILITY, SHIFT, ORDER = "ATEN_CPU_CAPABILITY", "FEDSYNTH_TEST_KEY_SHIFT", "FEDSYNTH_TEST_ORDER"
SHIFTS = range(1, 11)
RECORDING = "as here"
# torch takes our word for it and dies of an illegal instruction.
PROBE = "import torch; torch.nn.GroupNorm(2, 4)(torch.rand(2, 4, 8, 8)).softmax(1).sum()"


@dataclass(frozen=True)
class Condition:
    """A way to run the suite. `of` are the kinds of draws whose tests it is about; none stands for all tests."""

    name: str
    workers: int = 2
    capability: str = ""
    shift: int = 0
    order: int = 0
    of: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        return {
            name: str(value)
            for name, value in ((CAPABILITY, self.capability), (SHIFT, self.shift), (ORDER, self.order))
            if value
        }

    def cells(self, instructions: str) -> str:
        """What it changes, for the table."""
        keys = f"shift {self.shift}" if self.shift else "as they are"
        order = f"shuffled {self.order}" if self.order else "as it is"
        tests = "those that draw" if self.of else "all"
        return f"{tests} | {instructions or 'its own'} | {keys} | {self.workers} | {order}"

    def possible(self) -> Condition:
        """This one, or without the instructions that the processor does not have."""
        environment = os.environ | {CAPABILITY: self.capability}
        if (
            self.capability
            and subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True).returncode
        ):
            return replace(self, capability="")
        return self


@dataclass(frozen=True)
class Result:
    condition: str
    passed: int
    failed: list[str]
    skipped: int
    seconds: float
    commit: str
    capability: str


def conditions() -> list[Condition]:
    """All of them once: the three instruction sets, ten shifts, three numbers of workers, other orders."""
    whole = [
        Condition(RECORDING),
        Condition("whole 1", workers=1, capability="default", shift=1, order=1),
        Condition("whole 2", workers=4, capability="avx2", shift=2, order=2),
    ]
    # AVX-512 is what the first run has where there is such a processor; the third shift asks for it by name.
    drawing = [
        Condition(f"drawing {n}", capability="avx512" if n == 3 else "", shift=n, of=("key", "stream"))
        for n in SHIFTS
        if n > 2
    ]
    return whole + drawing


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
    capability = subprocess.run([sys.executable, "-c", ASKED], env=environment, capture_output=True, text=True).stdout
    words = [sys.executable, "-m", "pytest", "-n", str(condition.workers), "--dist", "loadfile", f"--junitxml={xml}"]
    began = time.monotonic()
    with log.open("w") as out:
        done = subprocess.run(
            [*words, "--timeout=900", "-rfE", *arguments], cwd=ROOT, env=environment, stdout=out, stderr=out
        )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{condition.name}: pytest ended with {done.returncode}; see {log}")
    return result_of(condition.name, xml, time.monotonic() - began, capability.strip())


def result_of(condition: str, xml: Path, seconds: float, capability: str) -> Result:
    suite = ElementTree.parse(xml).getroot().find("testsuite")
    assert suite is not None
    bad = [
        case for case in suite.iter("testcase") if case.find("failure") is not None or case.find("error") is not None
    ]
    names = sorted({f"{case.get('classname')}::{case.get('name')}" for case in bad})
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    head = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    passed, commit = total - skipped - len(bad), head.stdout.strip() or "?"
    return Result(condition, passed, names, skipped, seconds, commit, capability)


def rows(results: dict[str, Result]) -> Iterator[str]:
    yield "| condition | tests | instructions | keys | workers | order | passed | failed | skipped | minutes | at |"
    yield "|---|---|---|---|---:|---|---:|---:|---:|---:|---|"
    for condition in conditions():
        if (found := results.get(condition.name)) is None:
            yield f"| {condition.name} | {condition.cells(condition.capability)} | | | | | not run |"
            continue
        asked = condition.capability
        has_it = asked.upper() in ("", found.capability)
        instructions = found.capability if has_it else f"{found.capability}; {asked} is not on this processor"
        counts = f"{found.passed} | {len(found.failed)} | {found.skipped} | {found.seconds / 60:.1f}"
        yield f"| {condition.name} | {condition.cells(instructions)} | {counts} | {found.commit} |"
    for found in results.values():
        for test in found.failed:
            yield f"{found.condition}: {test}"


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
        print(f"{condition.name} …", file=sys.stderr, flush=True)
        results[condition.name] = run(condition.possible(), folder, asked.tests)
        kept.write_text(json.dumps([asdict(r) for r in results.values()], indent=1))
    print("\n".join(rows(results)))
    return int(any(r.failed for r in results.values()))


if __name__ == "__main__":
    sys.exit(main())
