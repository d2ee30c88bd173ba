"""Runs side by side: rounds to a target, groups over seeds, files, and what is refused."""

import csv
import json

import pytest

from artifacts.errors import InputError, UsageError
from stages.evaluate.runs import evaluate_runs
from stages.recipes.recipe import change, load_recipe

PNG = b"\x89PNG\r\n\x1a\n"


def test_rounds_to_a_target(runs, tmp_path):
    """The first round that is at least as accurate, whatever comes after; None for never."""
    paths = [
        runs("early", accuracies=[0.1, 0.9, 0.8, 0.95], about="x", name="a"),
        runs("late", accuracies=[0.1, 0.2, 0.899999, 0.9], name="b"),
        runs("never", accuracies=[0.1, 0.5, 0.6, 0.7], name="c"),
    ]
    summary = evaluate_runs(paths, tmp_path / "c.json", target=0.9)
    assert [run["rounds_to_target"] for run in summary["runs"]] == [1, 3, None]
    assert [run["parameters_to_target"] for run in summary["runs"]] == [2 * 650, 3 * 2 * 650, None]
    assert [run["accuracy"] for run in summary["runs"]] == [0.95, 0.9, 0.7]
    assert [run["best"] for run in summary["runs"]] == [0.95, 0.9, 0.7]
    assert [group["label"] for group in summary["groups"]] == ["early", "late", "never"]
    assert evaluate_runs(paths, tmp_path / "d.json")["groups"][0]["rounds_to_target_all"] == []


def test_seeds_are_averaged(runs, tmp_path):
    paths = [
        runs("plain-seed-0", seed=0, accuracies=[0.1, 0.8, 0.9]),
        runs("other", seed=0, accuracies=[0.1, 0.2, 0.3], participation=0.5),
        runs("plain-seed-1", seed=1, accuracies=[0.1, 0.9, 0.7]),
        runs("plain-seed-2", seed=2, accuracies=[0.1, 0.6, 0.8]),
    ]
    summary = evaluate_runs(paths, tmp_path / "c.json", target=0.8)
    plain, other = summary["groups"]
    assert (plain["label"], plain["runs"], other["label"], other["runs"]) == ("plain", 3, "other", 1)
    assert (plain["accuracy"], plain["accuracy_min"], plain["accuracy_max"]) == (0.8, 0.7, 0.9)
    assert plain["best"] == pytest.approx((0.9 + 0.9 + 0.8) / 3, abs=1e-6)
    assert (plain["rounds_to_target"], plain["rounds_to_target_all"]) == (pytest.approx(4 / 3, abs=1e-6), [1, 1, 2])
    assert (plain["rounds_to_target_min"], plain["rounds_to_target_max"]) == (1, 2)
    assert (other["rounds_to_target"], other["rounds_to_target_all"]) == (None, [None])
    assert [run["group"] for run in summary["runs"]] == ["plain", "other", "plain", "plain"]  # in the order given
    harder = evaluate_runs(paths, tmp_path / "d.json", target=0.85)["groups"][0]
    assert (harder["rounds_to_target"], harder["rounds_to_target_all"]) == (None, [2, 1, None])
    assert (harder["rounds_to_target_min"], harder["rounds_to_target_max"]) == (1, None)


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (["synthetic=none,seed=0", "synthetic=none,seed=1"], ["synthetic=none"]),
        (["seed=0", "seed=1"], ["fedavg"]),
        (["FedAvg 0", "FedAvg 1"], ["FedAvg"]),
        (["a/s0", "a/s1"], ["a"]),
        (["one", "two"], ["fedavg"]),
    ],
)
def test_the_seed_goes_out_of_the_label(runs, tmp_path, names, groups):
    paths = [runs("x0", seed=0), runs("x1", seed=1)]
    summary = evaluate_runs(paths, tmp_path / "c.json", names=names)
    assert [group["label"] for group in summary["groups"]] == groups
    assert [run["label"] for run in summary["runs"]] == names


def test_one_seed_twice_is_no_second_seed(runs, tmp_path):
    """The same recipe and seed before and after a change of the code: two groups, not a mean."""
    paths = [runs(name, seed=seed) for name, seed in (("a", 0), ("b", 1), ("c", 0), ("d", 1))]
    names = ["before-s0", "before-s1", "after-s0", "after-s1"]
    groups = evaluate_runs(paths, tmp_path / "c.json", names=names)["groups"]
    assert [(group["label"], group["runs"]) for group in groups] == [("before", 2), ("after", 2)]


def test_folders_of_one_name_are_told_apart(runs, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    paths = [runs("a/run", name="x"), runs("b/run", name="y")]
    assert [run["label"] for run in evaluate_runs(paths, tmp_path / "c.json")["runs"]] == ["a/run", "b/run"]
    with pytest.raises(UsageError, match="two runs are called"):
        evaluate_runs([paths[0], paths[0]], tmp_path / "d.json")


def test_the_files(fedsynth, runs, tmp_path):
    first, second = runs("plain", accuracies=[0.1, 0.9]), runs("other", accuracies=[0.1, 0.5], participation=0.5)
    out, table, picture = tmp_path / "c.json", tmp_path / "c.csv", tmp_path / "c.png"
    options = ["--target", "0.8", "--csv", table, "--picture", picture]
    code, shown, err = fedsynth("evaluate", first, second, "-o", out, *options)
    assert code == 0, err
    written = json.loads(out.read_text())
    assert (written["custody"], written["target"]) == ("public", 0.8)
    assert written["runs"]["plain"]["rounds_to_target"] == 1
    assert written["groups"]["other"]["rounds_to_target"] is None
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [(row["label"], row["accuracy"], row["rounds_to_target"]) for row in rows] == [
        ("plain", "0.9", "1"), ("other", "0.5", ""),
    ]  # fmt: skip
    assert picture.read_bytes().startswith(PNG)
    assert "> 1" in shown
    assert "to 80%" in shown
    before = [path.read_bytes() for path in (out, table, picture)]
    assert fedsynth("evaluate", first, second, "-o", out, *options)[0] == 0  # the same bytes are there already
    assert fedsynth("evaluate", first, "-o", out, *options)[0] == 3  # others are
    assert fedsynth("evaluate", first, second, "-o", out, *options, "--force")[0] == 0
    assert [path.read_bytes() for path in (out, table, picture)] == before


def test_the_table_fits_eighty_columns(fedsynth, runs, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    label = "synthetic=shuffled,algorithm=scaffold,alpha=0.05"
    paths = [runs(f"r{seed}", seed=seed, accuracies=[0.1, 0.9, 0.95, 0.97 + seed / 100]) for seed in range(3)]
    paths.append(runs("unfinished", accuracies=[0.1, 0.2], planned=5))
    names = [word for seed in range(3) for word in ("--name", f"{label},seed={seed}")] + ["--name", "unfinished"]
    code, out, err = fedsynth("evaluate", *paths, *names, "--target", "0.975", "-o", tmp_path / "c.json")
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    assert "2–> 3" not in out
    assert "3–> 3" in out  # one seed of three never got there
    assert "unfinished is not finished: 1 of 5 rounds." in out


def test_accuracies_on_private_data_make_it_private(runs, tmp_path):
    folder = runs("mine", accuracies=[0.1, 0.2])
    path = folder / "metrics/round-0001.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"custody": "private"}))
    assert evaluate_runs([folder], tmp_path / "c.json")["custody"] == "private"


def test_refusals(fedsynth, runs, tmp_path):
    folder, out = runs("plain"), tmp_path / "c.json"
    cases = [
        ([tmp_path / "nowhere"], 3, "nowhere is no folder"),
        ([tmp_path / "nowhere", folder], 3, "nowhere is no folder"),
        ([tmp_path / "nowhere", "x", "--target", "0.9"], 2, "nowhere is neither a folder nor a Parquet file"),
        ([folder, tmp_path / "nowhere"], 3, "nowhere is no folder"),
        ([folder, tmp_path], 3, "has no clients/"),
        ([folder, "--target", "90"], 2, "--target is an accuracy"),
        ([folder, "--name", "a", "--name", "b"], 2, "--name was given 2 times for 1 runs"),
        ([folder, folder / "server"], 3, "has no clients/"),
    ]
    for arguments, wanted, said in cases:
        code, _, err = fedsynth("evaluate", *arguments, "-o", out)
        assert (code, said in err) == (wanted, True), err
        assert not out.exists()
    code, _, err = fedsynth("evaluate", folder, "-o", folder / "server/outbox/c.json")
    assert (code, "may not be in an outbox" in err) == (2, True)


def test_damaged_metrics_are_told(runs, tmp_path):
    folder = runs("plain")
    (folder / "metrics/round-0001.json").write_text("[]")
    with pytest.raises(InputError, match=r"round-0001\.json is no file of metrics"):
        evaluate_runs([folder], tmp_path / "c.json")
    for path in (folder / "metrics").glob("round-*.json"):
        path.unlink()
    with pytest.raises(InputError, match="nothing was evaluated"):
        evaluate_runs([folder], tmp_path / "c.json")


def test_it_does_not_import_torch(without_torch, finished_run, tmp_path):
    without_torch(finished_run, "--picture", tmp_path / "c.png", "-o", tmp_path / "c.json")


def test_a_run_with_secret_sampling_tells_how_many_took_part_to_nobody(tmp_path, run_on_one_worker):
    run = tmp_path / "run"
    run_on_one_worker(change(load_recipe("dp-fedavg"), ["partition.clients=8", "participation=0.5"], 1), run, seed=0)
    assert evaluate_runs([run], tmp_path / "c.json")["custody"] == "private"
