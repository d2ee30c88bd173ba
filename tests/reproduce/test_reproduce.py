"""`make reproduce`: verdicts follow from figures by the rule that is printed, and the page from what was measured."""

import importlib
import json
import math
import sys
from pathlib import Path

import pytest

from stages.recipes.recipe import load_recipe

ROOT = Path(__file__).parent.parent.parent
CLAIM = """
name: A paper
paper: Somebody (2020).
entries:
  - id: table-1
    where: Table 1
    claim: It costs ten.
    runs:
      plan: {command: [account, plan, --sampling-rate, 0.1, --steps, 10, --noise-multiplier, 2.0, --delta, 1e-5]}
    show: {plan: [epsilon.pld]}
    checks: [{run: plan, metric: epsilon.pld, from: 0.1, to: 2.0}]
    full: [fedsynth run fedavg --preset paper -o runs/x]
  - {id: figure-9, where: Fig. 9, claim: It is far, full: [fedsynth run fedavg -o runs/y]}
"""


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "reproduce"))
    monkeypatch.delitem(sys.modules, "run", raising=False)  # benchmarks/ has one, too
    return importlib.import_module


@pytest.fixture
def entry_of(module):
    def made(*checks, runs=("a",)):
        claims = module("claims")
        tasks = {name: claims.Task(name, {"recipe": "fedavg"}) for name in runs}
        return claims.Entry("table-1", "Table 1", "claim", runs=tasks, checks=checks)

    return made


def rows(**groups):
    """`rows(none=[0.5, 0.6], shuffled=[0.7, 0.8])`: one figure for each seed of each group."""
    return [
        {"group": f"synthetic={name}", "seed": seed, "figures": {"accuracy": value}}
        for name, values in groups.items()
        for seed, value in enumerate(values)
    ]


MORE = {"run": "a", "metric": "accuracy", "more": "synthetic=shuffled", "than": "synthetic=none"}
LESS = {"run": "a", "metric": "accuracy", "less": "synthetic=shuffled", "than": "synthetic=none"}


@pytest.mark.parametrize(
    ("check", "none", "shuffled", "expected"),
    [
        (MORE, [1, 2, 3], [2, 3, 4], "reproduced"),
        (MORE, [1, 2, 3], [2, 3, 3], "in part"),  # equal with one seed
        (MORE, [1, 2, 3], [5, 3, 2], "in part"),  # in the mean alone
        (MORE, [1, 2], [2, 3], "in part"),  # two seeds
        (MORE, [2, 3, 4], [1, 2, 3], "not reproduced"),
        ({**MORE, "by": 1.5}, [1, 2, 3], [2, 3, 4], "not reproduced"),
        (LESS, [2, 3, 4], [1, 2, 3], "reproduced"),
        (LESS, [None, 3, None], [1, 2, 3], "reproduced"),  # never reached: after all others
        (LESS, [1, 2, 3], [None, 1, 1], "not reproduced"),
        (LESS, [None, None, None], [None, None, None], "not reproduced"),
        (MORE, [3, 1, 2], [2, 3, 4], "in part"),  # seed by seed, not sorted
    ],
)
def test_a_verdict_follows_from_the_seeds(module, entry_of, check, none, shuffled, expected):
    verdicts, entry = module("verdicts"), entry_of(check)
    judged = verdicts.judge(entry, {"a": rows(none=none, shuffled=shuffled)})
    assert verdicts.verdict(judged, entry) == expected


def test_a_figure_without_seeds_is_held_against_an_interval(module, entry_of):
    verdicts = module("verdicts")
    entry = entry_of({"run": "a", "metric": "accuracy", "from": 1.0, "to": 2.0})
    for value, expected in ((1.0, "reproduced"), (2.5, "not reproduced"), (0.5, "not reproduced")):
        judged = verdicts.judge(entry, {"a": [{"group": "", "seed": None, "figures": {"accuracy": value}}]})
        assert verdicts.verdict(judged, entry) == expected


def test_one_figure_of_a_run_is_compared_with_another(module, entry_of):
    verdicts = module("verdicts")
    entry = entry_of({"run": "a", "metric": "after", "below": "before"})
    for after, expected in (((1, 2, 3), "reproduced"), ((1, 5, 3), "in part"), ((9, 9, 9), "not reproduced")):
        figures = [{"after": value, "before": 4} for value in after]
        found = [{"group": "", "seed": seed, "figures": both} for seed, both in enumerate(figures)]
        assert verdicts.verdict(verdicts.judge(entry, {"a": found}), entry) == expected


def test_each_point_meets_its_own_counterpart(module, entry_of):
    verdicts = module("verdicts")
    both = [
        {**row, "group": f"algorithm={name},{row['group']}", "figures": {"accuracy": row["figures"]["accuracy"] + add}}
        for name, add in (("fedavg", 0), ("scaffold", 10))
        for row in rows(none=[1, 1, 1], shuffled=[2, 2, 2])
    ]
    judged = verdicts.judge(entry_of(MORE), {"a": both})
    assert [sorted(one.figures) for one in judged] == [
        [f"algorithm={name},synthetic=none", f"algorithm={name},synthetic=shuffled"] for name in ("fedavg", "scaffold")
    ]


def test_a_claim_with_a_run_missing_is_not_reproduced(module, entry_of):
    verdicts = module("verdicts")
    entry = entry_of(MORE, {**MORE, "run": "b"}, runs=("a", "b"))
    found = {"a": rows(none=[1, 1, 1], shuffled=[2, 2, 2])}
    assert verdicts.verdict(verdicts.judge(entry, found), entry) == "in part"
    assert verdicts.verdict(verdicts.judge(entry, {}), entry) == "not run"


def test_two_runs_are_compared(module, entry_of):
    verdicts = module("verdicts")
    check = {"run": "a", "metric": "accuracy", "more": "", "than": "", "than_run": "b"}
    entry = entry_of(check, runs=("a", "b"))
    one = [{"group": "", "seed": seed, "figures": {"accuracy": 0.5 + seed / 10}} for seed in range(3)]
    two = [{**row, "figures": {"accuracy": row["figures"]["accuracy"] - 0.05}} for row in one]
    assert verdicts.verdict(verdicts.judge(entry, {"a": one, "b": two}), entry) == "reproduced"
    assert verdicts.verdict(verdicts.judge(entry, {"a": two, "b": one}), entry) == "not reproduced"


def test_a_check_that_compares_nothing_is_an_error(module, entry_of):
    with pytest.raises(ValueError, match="nothing to compare"):
        module("verdicts").judge(entry_of({**MORE, "more": "synthetic=mixed"}), {"a": rows(none=[1], shuffled=[2])})


def test_rounds_that_were_never_reached_are_not_in_a_mean(module):
    shown = module("results_page").shown
    assert shown([0.9, 0.95, 1.0], "accuracy") == "95.0% ± 5.0"
    assert shown([4, math.inf, 6], "rounds_to_target") == "never in 1 of 3, else 5"


def test_the_page_is_what_was_measured(module):
    """Nobody typed in it: `python reproduce/run.py --page-only` writes it anew."""
    run, page = module("run"), module("results_page")
    everything = module("claims").papers()
    found = {(p.key, e.id): run.kept(run.MEASURED, p, e) for p in everything for e in p.entries}
    assert (ROOT / "docs" / "results.md").read_text() == page.page(everything, found)


def test_a_command_is_run_once_and_its_figure_is_on_the_page(module, tmp_path, monkeypatch, capsys):
    run, claims = module("run"), module("claims")
    folder = tmp_path / "claims"
    folder.mkdir()
    (folder / "a.yaml").write_text(CLAIM)
    monkeypatch.setattr(run, "papers", lambda: claims.papers(folder))
    words = [
        "--out",
        str(tmp_path / "runs"),
        "--measured",
        str(tmp_path / "measured"),
        "--page",
        str(tmp_path / "p.md"),
    ]
    assert run.main(words) == 0
    page = (tmp_path / "p.md").read_text()
    kept = json.loads((tmp_path / "measured" / "a" / "table-1.json").read_text())["plan"]["rows"]
    assert f"{kept[0]['figures']['epsilon.pld']:.4g} | " in page
    assert "| A paper | 1 | 0 | 0 | 1 |" in page and "Fig. 9: not run" in page
    capsys.readouterr()
    assert run.main(words) == 0
    assert "measured before" in capsys.readouterr().out
    (folder / "a.yaml").write_text(CLAIM.replace("--steps, 10", "--steps, 20"))
    assert run.main([*words, "--page-only"]) == 0
    assert "| A paper | 0 | 0 | 0 | 2 |" in (tmp_path / "p.md").read_text()


def test_an_interruption_is_a_sentence_and_keeps_what_was_measured(module, tmp_path, monkeypatch, capsys):
    run, claims = module("run"), module("claims")
    folder = tmp_path / "claims"
    folder.mkdir()
    (folder / "a.yaml").write_text(CLAIM)
    monkeypatch.setattr(run, "papers", lambda: claims.papers(folder))

    def interrupted(words):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "_run", interrupted)
    words = [
        "--out",
        str(tmp_path / "runs"),
        "--measured",
        str(tmp_path / "measured"),
        "--page",
        str(tmp_path / "p.md"),
    ]
    assert run.main(words) == 130
    assert "a/table-1: interrupted. Run it again" in capsys.readouterr().err
    assert not (tmp_path / "p.md").exists() and not (tmp_path / "measured").exists()


@pytest.mark.slow
def test_a_recipe_is_run_over_three_seeds_and_goes_on(module, tmp_path, monkeypatch):
    run, claims = module("run"), module("claims")
    folder = tmp_path / "claims"
    folder.mkdir()
    (folder / "a.yaml").write_text(
        CLAIM.split("    runs:")[0]
        + """    runs:
      digits: {recipe: fedavg, rounds: 2, target: 0.2, set: {partition.clients: 2, train-client.local_epochs: 1}}
    show: {digits: [accuracy, rounds_to_target]}
    checks: [{run: digits, metric: accuracy, from: 0.0, to: 1.0}]
"""
    )
    monkeypatch.setattr(run, "papers", lambda: claims.papers(folder))
    words = [
        "--out",
        str(tmp_path / "runs"),
        "--measured",
        str(tmp_path / "measured"),
        "--page",
        str(tmp_path / "p.md"),
    ]
    assert run.main([*words, "--workers", "1"]) == 0
    kept = json.loads((tmp_path / "measured" / "a" / "table-1.json").read_text())["digits"]
    assert [row["seed"] for row in kept["rows"]] == [0, 1, 2]
    assert all(0 < row["figures"]["accuracy"] <= 1 for row in kept["rows"])
    place = next((tmp_path / "runs" / "a" / "table-1").iterdir())
    assert (place / "seed=1" / "metrics").is_dir()


def test_every_claim_has_recipes_that_exist_or_a_command_to_type(module):
    for paper in module("claims").papers():
        for entry in paper.entries:
            assert entry.runs or entry.full or entry.note, f"{paper.key}/{entry.id}"
            for task in entry.runs.values():
                if task.is_recipe:
                    load_recipe(task.values["recipe"], task.values.get("preset"))


@pytest.mark.slow
def test_every_run_of_a_claim_can_begin(module):
    """Plans of all points are made, nothing is run; what needs data that is not here is left out."""
    run = module("run")
    for paper in module("claims").papers():
        for entry in paper.entries:
            for task in entry.runs.values():
                if not task.needs_data():
                    assert run._digest(task, None), f"{paper.key}/{entry.id}"
