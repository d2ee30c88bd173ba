"""`make test-anywhere`: what it changes reaches every process, and what it leaves out draws nothing."""

import itertools
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

HERE = Path(__file__).parent
KEY = "from artifacts.identity import keys; k = keys.simulated(0, 'server'); print(k.simulation, k.secret.hex())"


@pytest.fixture(scope="module")
def runner(helper):
    return helper("anywhere/run.py")


def key_of(shift, program=KEY):
    environment = os.environ | {"PYTHONPATH": str(HERE / "startup"), "FEDSYNTH_TEST_KEY_SHIFT": shift}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_shift_reaches_processes_that_a_test_starts():
    found = [key_of(shift) for shift in ("", "1", "1", "2")]
    assert found[1] == found[2] and len(set(found)) == 3
    assert all(line.startswith("True ") for line in found), "they are still a simulation's"


def test_nothing_is_imported_for_it():
    """Tests of `--help` look at what is."""
    assert key_of("1", "import sys; print({'artifacts', 'stages', 'torch'} & sys.modules.keys())") == "set()\n"


def test_tests_that_draw_are_found_by_what_they_use(runner, tmp_path):
    record = tmp_path / "record.txt"
    record.write_text(
        "uses\ta.py::plain\tone\nuses\ta.py::drawing\tone\nstream\ta.py::drawing\n"
        "uses\tb.py::fixture\tmade\nstream\tmade\nuses\tb.py::other\tone\n"
        "uses\tc.py::first\tone\nshares\tc.py::first\nkey\tc.py::first\nuses\tc.py::second\tone\nshares\tc.py::second\n"
        "stream\t\n"
    )
    assert runner.noted_tests(record, ("stream",)) == ["a.py::drawing", "b.py::fixture"]
    assert runner.noted_tests(record, ("key",)) == ["c.py::first", "c.py::second"], "it may use what the first one drew"


def test_another_order_keeps_files_together_and_is_the_same_for_all_workers(helper, monkeypatch):
    monkeypatch.setenv("FEDSYNTH_TEST_ORDER", "1")
    monkeypatch.delenv("FEDSYNTH_TEST_SELECT", raising=False)

    def ordered():
        items = [SimpleNamespace(path=file, nodeid=f"{file}::{n}") for file in "abcdef" for n in range(5)]
        helper("anywhere/plugin.py").pytest_collection_modifyitems(None, items)
        return [item.nodeid for item in items]

    found = ordered()
    assert found == ordered() != sorted(found) == sorted(ordered())
    files = [name[0] for name in found]
    assert sum(a != b for a, b in itertools.pairwise(files)) == 5


def test_conditions_are_named_by_whole_words(runner):
    def named(only):
        return [condition.name for condition in runner.conditions() if runner.is_named(condition.name, only)]

    assert named("whole 1") == ["whole 1"] and named("whole") == ["whole 1", "whole 2"] and named("draw") == []


def test_every_factor_has_all_its_values(runner):
    found = runner.conditions()
    assert {c.workers for c in found if not c.of} == {1, 2, 4} and any(c.order and not c.of for c in found)
    assert {c.capability for c in found} == {"", "default", "avx2", "avx512"}
    assert sorted(c.shift for c in found) == list(range(11))
    assert all(set(c.of) in (set(), {"key", "stream"}) for c in found), "what is left out touches no key"
    assert found[0].name == runner.RECORDING and not found[0].of and not found[0].environment


def test_a_table_of_what_came_of_it(runner, tmp_path):
    (tmp_path / "x.xml").write_text(
        '<testsuites><testsuite tests="4" skipped="1"><testcase classname="tests.a" name="good"/>'
        '<testcase classname="tests.a" name="bad"><failure/></testcase>'
        '<testcase classname="tests.a" name="worse"><error/></testcase>'
        '<testcase classname="tests.a" name="left"><skipped/></testcase></testsuite></testsuites>'
    )
    found = runner.result_of("drawing 3", tmp_path / "x.xml", 90.0, "AVX2")
    assert (found.passed, found.failed, found.skipped) == (1, ["tests.a::bad", "tests.a::worse"], 1)
    table = list(runner.rows({"drawing 3": found}))
    said = "those that draw | AVX2; avx512 is not on this processor | shift 3 | 2 | as it is"
    assert table[5].startswith(f"| drawing 3 | {said} | 1 | 2 | 1 | 1.5 |")
    assert all(line.endswith("| not run |") for line in [*table[2:5], *table[6:-2]])
    assert table[-2:] == ["drawing 3: tests.a::bad", "drawing 3: tests.a::worse"]
