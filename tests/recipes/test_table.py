"""A sweep as a table: rounds to the target by hand, mean ± sd over seeds, speed-ups and their bounds."""

from __future__ import annotations

import csv
import json

import pytest

from artifacts.errors import UsageError
from stages.recipes.recipe import change, load_recipe
from stages.recipes.sweep import points, run_sweep
from stages.recipes.table import layout_of, write_table
from stages.run_folder.files import metrics_file

TEXT = """
extends: fedavg
rounds: 3
target: 0.5
sweep:
  train-client.algorithm: [fedavg, scaffold]
  partition.clients: [{value: 2, target: 0.4}, 3]
  participation: [1.0, 0.5]
  seed: [0, 1]
matrix:
  rows: train-client.algorithm
  columns: [partition.clients]
  against: participation
"""


@pytest.fixture
def recipe(tmp_path):
    file = tmp_path / "table.yaml"
    file.write_text(TEXT)
    return load_recipe(str(file))


def write_run(folder, accuracies):
    for number, accuracy in enumerate(accuracies):
        path = folder / metrics_file(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"accuracy": accuracy, "loss": 1.0}))


def test_cells_by_hand(recipe, tmp_path):
    out = tmp_path / "out"
    for point in points(recipe, 0):
        if point.values["participation"] == 1.0:  # 2 and 3 rounds to 0.4, never to 0.5
            curve = [0.1, 0.2, 0.45, 0.45] if point.seed == 0 else [0.1, 0.2, 0.3, 0.41]
        else:  # 1 round to 0.4; 2 and 2 to 0.5
            curve = [0.1, 0.42, 0.6, 0.5] if point.seed == 0 else [0.1, 0.44, 0.5, 0.7]
        write_run(out / point.label, curve)
    write_table(recipe, layout_of(recipe), points(recipe, 0), out)
    with (out / "table.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["train-client.algorithm"] == "fedavg"]
    found = {(row["partition.clients"], row["participation"]): row for row in rows}
    assert len(found) == 4
    first = found["2", "1.0"]
    assert (float(first["rounds_to_target"]), float(first["target"]), first["seeds"]) == (2.5, 0.4, "2")
    assert float(first["rounds_sd"]) == pytest.approx(0.5**0.5)  # of 2 and 3
    assert float(first["accuracy"]) == pytest.approx(0.43)
    assert float(first["accuracy_sd"]) == pytest.approx(0.02 * 2**0.5)  # of 0.45 and 0.41
    assert (found["2", "0.5"]["speed_up"], first["speed_up"]) == ("2.5x", "")
    assert (found["3", "1.0"]["rounds_to_target"], found["3", "0.5"]["rounds_to_target"]) == ("", "2.0")
    assert found["3", "0.5"]["speed_up"] == "> 1.5x"  # three rounds at least, against two
    text = (out / "table.md").read_text()
    assert "clients 2, participation 1.0, m = 40%" in text
    assert "| 2.5 ± 0.7 rounds; 43.0% ± 2.8 | 1.0 ± 0.0 rounds (2.5x); 65.0% ± 7.1 | > 3 rounds; 43.0% ± 2.8 |" in text
    assert "over 2 seeds" in text
    assert "not tuned for each cell" in text


@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        ("{columns: [participation]}", "rows is needed"),
        ("{rows: participation}", "name each axis of the sweep once"),
        ("{rows: participation, columns: 3}", "columns must be axes"),
        ("[participation]", "matrix must map rows, columns and against"),
        ("{rows: nothing, columns: [participation, train-client.algorithm, partition.clients]}", "name each axis"),
    ],
)
def test_a_layout_that_does_not_fit_the_sweep_is_refused(tmp_path, matrix, said):
    file = tmp_path / "table.yaml"
    file.write_text(TEXT.partition("matrix:")[0] + f"matrix: {matrix}\n")
    with pytest.raises(UsageError, match=said):
        layout_of(load_recipe(str(file)))


def test_what_is_fixed_is_no_part_of_the_table(recipe):
    fixed = change(recipe, ["participation=1.0", "partition.clients=2"], None)
    layout = layout_of(fixed)
    assert (layout.rows, layout.columns, layout.against) == ("train-client.algorithm", (), None)
    assert layout_of(change(recipe, ["train-client.algorithm=fedavg"], None)) is None


@pytest.mark.parametrize("preset", [None, "demo", "paper"])
def test_table_1_is_laid_out(preset):
    recipe = load_recipe("fedssyn-algorithms", preset)
    layout = layout_of(recipe)
    assert (layout.rows, layout.against) == ("train-client.algorithm", "synthetic")
    assert layout.columns == (("partition.alpha",) if preset == "paper" else ())


@pytest.mark.slow
def test_a_sweep_ends_in_its_table(recipe, tmp_path):
    small = ["init-model.arch=softmax", "participation=1.0", "partition.clients=2", "train-client.local_epochs=1"]
    chosen = change(recipe, small, 1)
    summary = run_sweep(chosen, tmp_path / "out", seed=0, workers=1)
    text = (tmp_path / "out" / "table.md").read_text()
    assert summary["table"].endswith("table.md")
    assert text.count("\n| ") == 3  # the head, fedavg and scaffold
