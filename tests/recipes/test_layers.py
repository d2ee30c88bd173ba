"""What goes over what in a recipe, where each value is from, and which inherited ones are left out."""

from __future__ import annotations

import json

import pytest

from artifacts.errors import UsageError
from stages.recipes.layers import names
from stages.recipes.plan import check
from stages.recipes.recipe import change, load_recipe, presets
from stages.recipes.sweep import points

EVERY = [(name, preset) for name in names() for preset in [None, *presets(name)]]


def write(path, text):
    path.write_text(text)
    return str(path)


@pytest.fixture
def family(tmp_path):
    """A parent with a preset, a child with defaults and with what makes it what it is."""
    write(
        tmp_path / "parent.yaml",
        "extends: fedavg\nrounds: 7\npresets: {big: {rounds: 70, participation: 0.5, partition: {clients: 50}}}\n",
    )
    return write(
        tmp_path / "child.yaml",
        "extends: parent.yaml\nrounds: 3\nparticipation: 0.2\nalways: {partition: {clients: 4}}\n"
        "presets: {own: {partition: {clients: 9}}, big-too: {extends: parent.yaml, rounds: 8}}\n",
    )


def test_a_preset_of_the_parent_goes_over_the_childs_defaults_but_not_over_what_it_always_is(family):
    plain, big = load_recipe(family), load_recipe(family, "big")
    assert (plain.rounds, plain.participation, plain.section("partition")["clients"]) == (3, 0.2, 4)
    assert (big.rounds, big.participation, big.section("partition")["clients"]) == (70, 0.5, 4)
    assert {t: o.source for t, o in big.origins.items() if t in ("rounds", "partition.clients", "encode.method")} == {
        "rounds": "parent/big", "partition.clients": "child", "encode.method": "fedavg",
    }  # fmt: skip


def test_the_childs_own_preset_goes_over_all(family):
    assert load_recipe(family, "own").section("partition")["clients"] == 9
    assert load_recipe(family, "big-too").rounds == 8


@pytest.mark.parametrize(
    ("name", "rounds", "targets"),
    [("fedssyn-algorithms", 100, {0.44, 0.66}), ("fedssyn-comparison", 100, {0.66}), ("mixing", 100, {0.66})],
)
def test_tables_of_the_paper_have_its_rounds_and_targets(name, rounds, targets):
    found = points(load_recipe(name, "paper"), 0)
    assert {point.recipe.rounds for point in found} == {rounds}
    assert {point.recipe.target for point in found} == targets


def test_each_level_of_heterogeneity_has_its_own_target():
    found = points(load_recipe("fedssyn-algorithms", "paper"), 0)
    assert {(p.recipe.section("partition")["alpha"], p.recipe.target) for p in found} == {(0.01, 0.44), (0.1, 0.66)}
    assert len(found) == 2 * 5 * 2 * 3


def test_null_takes_an_axis_of_the_sweep_back():
    assert set(load_recipe("fedssyn-generator-steps", "paper").sweep) == {"train-generator.epochs", "seed"}


@pytest.mark.parametrize(("name", "preset"), EVERY)
def test_every_plan_is_checked_as_a_whole_before_anything_is_charged(name, preset):
    """Each point of each recipe and preset: parameters that do not go together are found without reading data."""
    recipe = load_recipe(name, preset)
    for point in points(recipe, 0) if recipe.sweep else ():
        check(point.recipe)
    if not recipe.sweep:
        check(recipe)


@pytest.mark.parametrize("family", ["gan", "vae"])
@pytest.mark.parametrize("preset", [None, "paper"])
def test_another_generator_leaves_the_sampler_out_and_says_so(family, preset):
    before = load_recipe("fedssyn", preset)
    after = change(before, [f"train-generator.family={family}"], None)
    assert check(after)["synthesize"].sampler is None
    said = after.left_out[len(before.left_out) :]
    assert [text.split()[0] for text in said] == (["synthesize.sampler", "synthesize.sampling_steps"] if preset else [])


@pytest.mark.parametrize(
    ("setting", "gone"),
    [
        ("partition.scheme=iid", ["partition.alpha"]),
        ("init-model.arch=softmax", ["init-model.width", "init-model.depth"]),
        ("partition.alpha=0.3", []),
    ],
)
def test_another_scheme_or_network_leaves_parameters_of_the_old_one_out(setting, gone):
    recipe = change(load_recipe("fedssyn"), [setting], None)
    check(recipe)
    assert [text.split()[0] for text in recipe.left_out] == gone


def test_what_is_given_beside_its_choice_is_not_left_out_but_refused(tmp_path):
    with pytest.raises(UsageError, match="--alpha goes with --scheme dirichlet"):
        check(change(load_recipe("fedavg"), ["partition.alpha=0.1"], None))
    file = write(tmp_path / "r.yaml", "extends: fedavg\npartition: {scheme: iid, alpha: 0.1}\n")
    with pytest.raises(UsageError, match="--alpha goes with --scheme dirichlet"):
        check(load_recipe(file))


def test_run_says_what_it_left_out(fedsynth, tmp_path):
    code, _, err = fedsynth(
        "run", "fedssyn", "--set", "partition.scheme=iid", "--set", "rounds=x", "-o", tmp_path / "r"
    )
    assert code == 2
    code, _, err = fedsynth(
        "run",
        "fedssyn",
        "--set",
        "partition.scheme=iid",
        "--set",
        "partition.source=none.parquet",
        "-o",
        tmp_path / "r",
    )
    assert code == 3
    assert "partition.alpha (from fedssyn) is left out: it goes with --scheme dirichlet" in err


@pytest.mark.parametrize(("typed", "meant"), [("fedavgg", "fedavg"), ("fedsyn", "fedssyn"), ("scafold", "scaffold")])
def test_a_misspelt_recipe_is_guessed(fedsynth, typed, meant):
    code, _, err = fedsynth("recipe", "show", typed)
    assert code == 2
    assert err.count("Did you mean") == 1
    assert f"Did you mean '{meant}'?" in err


def test_a_misspelt_preset_or_key_is_guessed(tmp_path):
    with pytest.raises(UsageError, match=r"has no preset 'papr'\. Did you mean 'paper'"):
        load_recipe("fedssyn", "papr")
    with pytest.raises(UsageError, match=r"unknown key 'train-clients'\. Did you mean 'train-client'"):
        load_recipe(write(tmp_path / "r.yaml", "extends: fedavg\ntrain-clients: {}\n"))


# recipe show


def test_show_says_each_value_and_where_it_is_from(fedsynth_json):
    found = fedsynth_json(
        "recipe", "show", "fedssyn", "--preset", "paper", "--set", "partition.clients=40", "--rounds", 5
    )
    assert found["rounds"] == {"value": 5, "source": "--set", "unit": "rounds"}
    assert found["partition"]["clients"] == {"value": 40, "source": "--set", "symbol": "N", "unit": "clients"}
    assert found["partition"]["scheme"] == {"value": "dirichlet", "source": "fedssyn"}
    assert found["partition"]["source"] == {"value": "cifar10", "source": "fedssyn/paper"}
    assert found["synthesize"]["count"] == {
        "value": 1250, "source": "fedssyn/paper", "expression": "= 50000 / N", "symbol": "ñ",
        "unit": "images",
    }  # fmt: skip
    assert found["train-generator"]["dropout"] == {
        "value": 0.1, "source": "default, the paper's", "unit": "probability",
    }  # fmt: skip
    assert found["train-generator"]["weight_decay"]["source"] == "default, ours"


@pytest.mark.parametrize(("name", "preset"), [("fedssyn-algorithms", "paper"), ("feddyn", None), ("tofu", "plateau")])
def test_show_knows_every_key_that_the_recipe_has(fedsynth_json, name, preset):
    found = fedsynth_json("recipe", "show", name, *(["--preset", preset] if preset else []))
    recipe = load_recipe(name, preset)
    for command in ("partition", "init-model", "encode"):
        given = {key for key, value in recipe.section(command).items() if value is not None}
        assert given <= found[command].keys()
    assert all(set(entry) >= {"value", "source"} for entry in found["partition"].values())
    assert json.dumps(found["rounds"]) == json.dumps(
        {"value": recipe.rounds, "source": recipe.origins["rounds"].source, "unit": "rounds"}
    )


def test_show_as_a_table(fedsynth):
    code, out, _ = fedsynth("recipe", "show", "fedavg")
    assert code == 0
    assert "partition.clients" in out and "default, ours" in out
    code, _, err = fedsynth("recipe", "show")
    assert (code, "recipe show: which?" in err) == (2, True)
