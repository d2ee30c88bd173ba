"""Every benchmark runs, in its smallest form; and the page is made from what was measured, measured once."""

import importlib
import inspect
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
NAMES = (
    "rounds", "artifact_files", "audit_speed", "aggregate_memory", "streamed_memory", "command_start",
    "private_generator_step", "clipped_gradient", "plugin_layers", "sam_step", "surrogate_step", "secure_aggregation",
    "tofu_encoding", "tofu_files", "tofu_baselines", "fashion_accuracy", "fashion_fedssyn", "fashion_surrogates",
    "private_sets", "together", "dp_fedsam",
)  # fmt: skip
# Several seconds each, even in their smallest form.
LONG = {
    "surrogate_step", "private_generator_step", "tofu_files", "tofu_encoding", "fashion_surrogates", "fashion_fedssyn",
    "fashion_accuracy", "command_start", "rounds", "streamed_memory", "private_sets",
    "tofu_baselines",
}  # fmt: skip
# A SuperLink with its nodes, and Ray: half a minute each.
WITH_SERVERS = ("federation", "many_clients")


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    # reproduce/ and tests/support have modules of the same names: neither shall get the other's.
    names = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    others = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}
    yield importlib.import_module
    for name in names & sys.modules.keys():
        del sys.modules[name]
    sys.modules.update(others)


@pytest.fixture
def smoke(benchmark, run_on_one_worker, monkeypatch, tmp_path):
    """The rows of a benchmark's smallest form; what it runs by `run` is run in this process."""

    def rows(name):
        module = benchmark(name)
        if hasattr(module, "run"):
            monkeypatch.setattr(module, "run", lambda *a, workers, **named: run_on_one_worker(*a, **named))
        assert module.TITLE and inspect.cleandoc(module.__doc__)
        setting = benchmark("measuring").Setting(folder=tmp_path, size="smoke")
        return list(module.measure(setting))

    return rows


def check(rows):
    assert rows
    for row in rows:
        assert row.what and row.ours and (row.ratio is None) <= (row.met is None)
        json.dumps(row.to_json())


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in NAMES])
def test_it_runs(smoke, name):
    check(smoke(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_SERVERS)
def test_it_runs_with_its_servers(smoke, name):
    check(smoke(name))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_memory_is_flat_from_ten_thousand_to_two_hundred_thousand_images(benchmark, tmp_path):
    setting = benchmark("measuring").Setting(folder=tmp_path)
    for row in benchmark("streamed_memory").measure(setting):
        print(f"{row.what}: {row.ours}; {row.against}: {row.theirs}")
        assert row.met, row


def test_all_are_tested(benchmark):
    assert sorted(NAMES + WITH_SERVERS) == sorted(benchmark("run").NAMES)


def test_no_figure_of_the_page_is_typed_by_hand(benchmark):
    text, _ = benchmark("run").written()
    assert (ROOT / "docs/benchmarks.md").read_text() == text


@pytest.fixture
def measured(benchmark, monkeypatch, tmp_path):
    """`run.py` with two benchmarks that say how often they were run, in this process; returns how, and the page."""
    run, measuring = benchmark("run"), benchmark("measuring")
    turns = {"one": 0, "two": 0}

    class Fake:
        """What it is about."""

        def __init__(self, name):
            self.TITLE, self.name = f"The title of {name}", name

        def measure(self, setting):
            turns[self.name] += 1
            if self.name == "two" and turns["two"] == 1:
                raise RuntimeError("it fails the first time")
            ratio = 1.5 if self.name == "one" else 0.5
            yield measuring.compared(f"what {setting.size}", "a peer", [ratio, ratio], [1.0, 1.0], goal=1.0)

    monkeypatch.setattr(run, "NAMES", ("one", "two"))
    monkeypatch.setattr(run.importlib, "import_module", Fake)

    def here(*arguments):
        try:
            run.measure(*arguments)
        except RuntimeError:
            return False
        return True

    monkeypatch.setattr(run, "_in_new_process", here)
    page = tmp_path / "page.md"

    def call(*words):
        return run.main([*words, "--results", str(tmp_path / "kept"), "--page", str(page), "--work", str(tmp_path)])

    return call, turns, page


def test_what_was_measured_is_kept_and_a_failure_does_not_end_the_rest(measured):
    call, turns, page = measured
    assert call() == 1 and turns == {"one": 1, "two": 1}
    assert (
        "## The title of two (`two`)\nWhat it is about.\n\nNot run yet: `python benchmarks/run.py --only two`.\n"
        in page.read_text()
    )
    assert "| what usual | 1.50 s |" in page.read_text()
    assert call() == 0 and turns == {"one": 1, "two": 2}
    assert call() == 0 and turns == {"one": 1, "two": 2}, "all kept"
    assert call("--again", "--only", "one") == 0 and turns == {"one": 2, "two": 2}
    assert call("--full", "--only", "one") == 0 and turns == {"one": 3, "two": 2}, "a larger size is another"
    assert call("--only", "one") == 0 and turns == {"one": 3, "two": 2}, "which serves for the usual one too"


def test_the_page_says_what_was_measured_where_and_whether_goals_are_met(measured):
    call, _, page = measured
    call()
    call()
    text = page.read_text()
    assert "## The title of one (`one`)\nWhat it is about." in text
    assert "| what usual | 1.50 s | a peer | 1.00 s | 1.50 (1.50 … 1.50) | ≤ 1: missed |" in text
    assert "| what usual | 500.0 ms | a peer | 1.00 s | 0.50 (0.50 … 0.50) | ≤ 1: met |" in text
    assert "1 of 2 goals are met. Missed:\n\n- `one`: what usual, against a peer\n" in text
    assert re.search(r"\d+ cores of .+, \d+ GB, .+; python 3\.\d+\.\d+, fedsynth .+, torch ", text)
    assert len(re.findall(r"^\d{4}-\d\d-\d\d, .+; load \d+\.\d before and \d+\.\d after\.$", text, re.M)) == 2


def test_a_measurement_of_another_machine_is_not_kept(measured, tmp_path):
    call, turns, _ = measured
    call()
    kept = tmp_path / "kept/one.json"
    other = json.loads(kept.read_text())
    other["machine"]["torch"] = "1.0"
    kept.write_text(json.dumps(other))
    call()
    assert turns["one"] == 2
