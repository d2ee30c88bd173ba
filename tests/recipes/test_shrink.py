"""Every recipe and preset runs to its end, shrunk: all of them in the slow tests, another each day in the others."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from stages.data.sources import load
from stages.recipes import shrink
from stages.recipes.layers import names
from stages.recipes.phases import resolved
from stages.recipes.plan import check, plan, planned_clients
from stages.recipes.recipe import change, load_recipe, presets
from stages.recipes.shrink import FOLDER, shrunk
from stages.recipes.sweep import points

EVERY = [(name, preset) for name in names() for preset in [None, *presets(name)]]
TODAY = datetime.date.today().toordinal()
PLANS_A_DAY = 12


def from_today(start):
    """All of them, another first each day."""
    return [*EVERY[start % len(EVERY) :], *EVERY[: start % len(EVERY)]]


def is_quick(name, preset):
    """A sweep is several runs, and images of 28×28 and more take several times as long."""
    recipe = load_recipe(name, preset)
    return not recipe.sweep and recipe.section("partition")["source"] == "digits"


def finish(name, preset, out, run_on_one_worker):
    """The rounds that each of its runs had."""
    recipe = shrunk(load_recipe(name, preset), out)
    summary = run_on_one_worker(recipe, out, seed=0)
    return [run["rounds"] for run in summary["runs"]] if recipe.sweep else [summary["rounds"]]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "preset"), EVERY)
def test_every_preset_runs(name, preset, tmp_path, run_on_one_worker):
    rounds = finish(name, preset, tmp_path / "run", run_on_one_worker)
    assert rounds and set(rounds) <= {1, 2}


@pytest.mark.parametrize("number", [PLANS_A_DAY, pytest.param(len(EVERY), marks=pytest.mark.slow)])
def test_shrunk_plans_are_right(number, tmp_path, monkeypatch):
    """All that is refused before a run begins; the images are not needed for that."""
    monkeypatch.setattr(shrink, "_write_source", lambda section, folder: folder)
    for name, preset in from_today(TODAY * PLANS_A_DAY)[:number]:
        recipe = shrunk(load_recipe(name, preset), tmp_path)
        for one in [point.recipe for point in points(recipe, 0)] if recipe.sweep else [recipe]:
            check(one)
            if one.secure:
                steps = plan(resolved(one, {}), planned_clients(one), 0)
                assert all(len(step.inputs) >= 2 * 3 for step in steps if step.command == "secagg sum"), name


def test_todays_recipe_runs(tmp_path, run_on_one_worker):
    todays = next(case for case in from_today(TODAY) if is_quick(*case))
    assert finish(*todays, tmp_path / "run", run_on_one_worker)


@pytest.mark.parametrize(
    ("name", "preset", "shape", "classes"),
    [
        ("fedssyn", "paper", (3, 32, 32), 10),
        pytest.param("dp-fedavg", "paper", (1, 28, 28), 47, marks=pytest.mark.slow),
        pytest.param("fedlap", "paper", (1, 28, 28), 10, marks=pytest.mark.slow),
        pytest.param("fedavg", None, (1, 8, 8), 10, marks=pytest.mark.slow),
    ],
)
def test_images_have_the_size_and_the_classes_of_the_source(name, preset, shape, classes, tmp_path):
    recipe = shrunk(load_recipe(name, preset), tmp_path)
    found = load(recipe.section("partition")["source"])
    assert found.train.images.shape[1:] == found.test.images.shape[1:] == shape
    assert len(found.train.class_names) == classes
    assert np.bincount(found.train.labels).tolist() == [8] * classes
    assert np.bincount(found.test.labels).tolist() == [2] * classes


def test_real_images_are_taken_where_they_are(tmp_path):
    shrunk(load_recipe("fedavg"), tmp_path)
    digits = {image.tobytes() for image in load("digits").train.images}
    small = load(str(tmp_path / FOLDER))
    assert all(image.tobytes() in digits for image in small.train.images)
    train = {image.tobytes() for image in small.train.images}
    assert not any(image.tobytes() in train for image in small.test.images)


@pytest.mark.parametrize("name", ["fedssyn-dp", "dp-fedsam-topk", "feddm-dp", "fedlap-dp", "tofu", "dp-fedsam-secure"])
def test_all_but_the_effort_is_as_the_preset_says(name, tmp_path):
    whole, small = load_recipe(name, "paper"), shrunk(load_recipe(name, "paper"), tmp_path)
    kept = ("scheme", "alpha", "family", "scale", "noise_multiplier", "sampling_rate", "clip_norm", "labels", "arch",
            "depth", "algorithm", "sam_rho", "method", "sparsify", "keep", "rule", "rho", "init", "solver")  # fmt: skip
    for command, section in whole.stages.items():
        for key in section.keys() & set(kept):
            assert small.section(command)[key] == whole.section(command)[key], f"{command}.{key}"
    assert (small.secure, small.participation, small.synthetic) == (whole.secure, whole.participation, whole.synthetic)
    assert small.rounds == 2


def test_people_are_made_up_where_the_recipe_has_them(tmp_path):
    recipe = change(load_recipe("dp-sgd"), ["partition.unit_column=patient_id", "train-client.unit=person"], None)
    small = shrunk(recipe, tmp_path)
    found = load(str(small.section("partition")["source"]), unit_column=small.section("partition")["unit_column"])
    assert set(np.bincount(found.train.units)) == {2}, "of each two images"


def test_both_phases_of_tofu_are_in_its_two_rounds(tmp_path):
    small = shrunk(load_recipe("tofu", "paper"), tmp_path)
    made = {step.out for step in plan(small, ["00", "01"], 0) if "/outbox/" in step.out}
    assert any("proxy-0001" in name for name in made)
    assert any("message-0002" in name for name in made)


def test_what_a_value_of_the_sweep_brings_with_it_is_small_too(tmp_path):
    small = shrunk(load_recipe("fedssyn-feddm", "paper"), tmp_path)
    brought = small.sweep["encode.method"][1]
    assert (brought["value"], brought["encode.rho"], brought["encode.init"]) == ("feddm", 5.0, "real")
    assert (brought["encode.iterations"], brought["encode.least_images"], brought["encode.images_per_class"]) == (
        2,
        1,
        1,
    )


@pytest.mark.slow
def test_on_the_command_line(fedsynth_json, tmp_path):
    out = tmp_path / "run"
    summary = fedsynth_json(
        "run", "fedavg", "--preset", "paper", "--shrink", "--devices", "cpu", "--workers", 1, "-o", out
    )
    assert summary["rounds"] == 2
    assert (out / FOLDER / "train.parquet").exists()
