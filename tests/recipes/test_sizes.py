"""Presets by the size of the images, and recipes that do not fit it."""

import io
import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from artifacts.errors import UsageError
from fedsynth_cli.app import run as fedsynth
from stages.data.sources import first_shape
from stages.recipes.fit import check_fit
from stages.recipes.layers import preset_for
from stages.recipes.recipe import change, load_recipe
from stages.recipes.runner import run
from stages.registry import GENERATORS


def _png(side, shade):
    file = io.BytesIO()
    Image.fromarray(np.full((side, side), shade, np.uint8)).save(file, "PNG")
    return file.getvalue()


def _folder(root, side):
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for number in range(6):
            (root / name / f"{number}.png").write_bytes(_png(side, 20 * number))
    return root


def _parquet(path, side, column="image"):
    rows = [{"bytes": _png(side, 20 * number), "path": None} for number in range(6)]
    pq.write_table(pa.table({column: rows, "label": [0, 1] * 3}), path)
    return path


@pytest.mark.parametrize(("side", "preset"), [(8, None), (27, None), (28, "28x28"), (32, "28x28"), (64, "28x28")])
@pytest.mark.parametrize("recipe", ["fedlap", "feddm", "fedssyn"])
def test_the_preset_follows_from_the_first_image(tmp_path, recipe, side, preset):
    source = _folder(tmp_path / "own", side)
    found = load_recipe(recipe, None, [f"partition.source={source}"])
    assert found.by_size == preset
    assert (found.rounds == 3) == (preset is not None)


def test_whatever_form_the_data_has(tmp_path):
    assert first_shape({"source": "digits"}) == (1, 8, 8)
    assert first_shape({"source": "cifar10", "root": "nowhere"}) == (3, 32, 32)
    assert first_shape({"source": str(_folder(tmp_path / "own", 12))}) == (1, 12, 12)
    parquet = str(_parquet(tmp_path / "own.parquet", 20, "scan"))
    assert first_shape({"source": parquet, "image_column": "scan"}) == (1, 20, 20)
    assert first_shape({"source": parquet, "image_column": "scan", "image_size": 28, "channels": 3}) == (3, 28, 28)
    assert first_shape({"source": parquet}) is None, "there is no column image: reading it says so"
    assert first_shape({"source": str(tmp_path / "missing")}) is None


def test_a_preset_that_is_given_and_values_that_are_set_go_over_it(tmp_path):
    settings = [f"partition.source={_folder(tmp_path / 'own', 28)}", "encode.image_rate=0.5"]
    assert load_recipe("fedlap", "demo", settings).by_size is None
    chosen = change(load_recipe("fedlap", None, settings), settings, 7)
    assert (chosen.rounds, chosen.section("encode")["image_rate"]) == (7, 0.5)
    assert chosen.section("encode")["image_descent"] == "adam"


def test_the_largest_preset_that_is_not_too_large(tmp_path):
    recipe = tmp_path / "own.yaml"
    recipe.write_text("rounds: 1\npresets: {28x28: {}, 64x64: {}, 28x32: {}, paper: {}}\n")
    assert [preset_for(recipe, side) for side in (27, 28, 63, 64, 500)] == [None, "28x28", "28x28", "64x64", "64x64"]


def test_a_size_belongs_to_the_recipe_that_has_it():
    """FedDM-DP has no use for a batch size, and what was tuned without noise says nothing about it."""
    with pytest.raises(UsageError, match="has no preset '28x28'"):
        load_recipe("feddm-dp", "28x28")


def test_the_run_says_which_preset_it_takes(tmp_path, capfd):
    source = _folder(tmp_path / "own", 28)
    assert fedsynth(["recipe", "show", "feddm", "--set", f"partition.source={source}"]) == 0
    assert "feddm/28x28" in capfd.readouterr().out
    wrong = ["--set", f"partition.source={source}", "--set", "encode.iterations=-1"]
    assert fedsynth(["run", "feddm", *wrong, "-o", str(tmp_path / "run")]) == 2
    assert "preset 28x28, by the size of the images" in capfd.readouterr().err


def test_a_network_that_cannot_take_the_images_is_refused_before_anything_is_done(tmp_path):
    settings = ["init-model.arch=vgg11", f"partition.source={_folder(tmp_path / 'own', 12)}"]
    chosen = change(load_recipe("fedavg", None, settings), settings, None)
    with pytest.raises(UsageError, match=r"--arch vgg11 does not fit images of 12×12.*Nothing was done"):
        run(chosen, tmp_path / "run", seed=0, workers=1)
    assert not (tmp_path / "run" / "clients").exists()


@pytest.mark.parametrize(
    ("params", "side", "warns"),
    [
        ({"family": "ddpm"}, 8, False),
        ({"family": "ddpm"}, 28, True),
        ({"family": "ddpm", "scale": "paper"}, 28, False),
        ({"family": "gan"}, 28, True),
        ({"family": "vae"}, 28, False),
    ],
)
def test_small_generators_warn_of_large_images(params, side, warns):
    found = GENERATORS.from_mapping(params).warnings(side)
    assert bool(found) == warns
    assert all("--family vae" in text for text in found)


@pytest.mark.parametrize(
    ("recipe", "arch", "said"),
    [
        ("feddm", "lenet5", None),
        ("feddm", "softmax", "with convnet, lenet5, mlp, strided. That it is with softmax was not shown"),
        ("fedlap-real", "lenet5", "were chosen for digits of 8×8"),
        ("fedavg", "lenet5", None),
    ],
)
def test_what_nobody_has_measured_is_said_before_it_starts(tmp_path, caplog, monkeypatch, recipe, arch, said):
    settings = [f"partition.source={_folder(tmp_path / 'own', 28)}", f"init-model.arch={arch}"]
    with caplog.at_level("WARNING", "fedsynth"):
        monkeypatch.setattr(logging.getLogger("fedsynth"), "propagate", True)
        check_fit(change(load_recipe(recipe, None, settings), settings, None))
    messages = {record.getMessage() for record in caplog.records}
    warnings = [text for text in messages if "the values of" in text or "FedAvg" in text]
    assert [said in text for text in warnings] == ([True] if said else []), warnings
