"""Every recipe and preset runs to its end, shrunk: all of them in the slow tests, two each day in the others."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from stages.data.sources import load
from stages.recipes.layers import names
from stages.recipes.plan import plan
from stages.recipes.recipe import load_recipe, presets
from stages.recipes.shrink import FOLDER, shrunk
from stages.recipes.sweep import points

EVERY = [(name, preset) for name in names() for preset in [None, *presets(name)]]
PAPER = [case for case in EVERY if case[1] is not None and case[1].startswith("paper")]
SINGLE = [case for case in EVERY if not load_recipe(*case).sweep]  # a sweep is several runs
_DAY = datetime.date.today().toordinal()
SAMPLE = [cases[_DAY % len(cases)] for cases in (SINGLE, [case for case in SINGLE if case in PAPER])]


def finish(name, preset, out, run_on_one_worker):
    recipe = shrunk(load_recipe(name, preset), out)
    if not recipe.sweep:
        return [run_on_one_worker(recipe, out, seed=0)]
    return [run_on_one_worker(point.recipe, out / point.label, seed=point.seed) for point in points(recipe, 0)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "preset"), EVERY)
def test_every_preset_runs(name, preset, tmp_path, run_on_one_worker):
    summaries = finish(name, preset, tmp_path / "run", run_on_one_worker)
    assert all(1 <= summary["rounds"] <= 2 for summary in summaries)


@pytest.mark.parametrize(("name", "preset"), dict.fromkeys(SAMPLE))
def test_todays_sample_runs(name, preset, tmp_path, run_on_one_worker):
    assert finish(name, preset, tmp_path / "run", run_on_one_worker)


@pytest.mark.parametrize(
    ("name", "preset", "shape", "classes"),
    [
        ("fedssyn", "paper", (3, 32, 32), 10), ("dp-fedavg", "paper", (1, 28, 28), 47),
        ("fedlap", "paper", (1, 28, 28), 10), ("fedavg", None, (1, 8, 8), 10),
    ],
)  # fmt: skip
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


def test_both_phases_of_tofu_are_in_its_two_rounds(tmp_path):
    small = shrunk(load_recipe("tofu", "paper"), tmp_path)
    made = {step.out for step in plan(small, ["00", "01"], 0) if "/outbox/" in step.out}
    assert any("proxy-0001" in name for name in made)
    assert any("message-0002" in name for name in made)


def test_on_the_command_line(fedsynth_json, tmp_path):
    out = tmp_path / "run"
    summary = fedsynth_json("run", "fedavg", "--preset", "paper", "--shrink", "--workers", 1, "-o", out)
    assert summary["rounds"] == 2
    assert (out / FOLDER / "train.parquet").exists()
