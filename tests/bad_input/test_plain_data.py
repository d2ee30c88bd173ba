"""What people write by hand: recipes, parameters, policies, budgets, terms. Read as plain data, refused in a line."""

import json
import os

import numpy as np
import pytest

from artifacts.errors import InputError
from artifacts.formats import tensors_file
from artifacts.formats.plain_data import dump_yaml, parse_json, parse_toml, parse_yaml
from artifacts.limits import DEPTH, DIGITS
from artifacts.metadata import InputRef, Metadata
from stages.audit import audit
from stages.data.png import encode_png
from stages.declared import undeclared
from stages.federate.terms import read_terms
from stages.policy import read_policy
from stages.recipes.layers import names
from stages.recipes.recipe import load_recipe, presets

YAML = {
    "a tag": ("a: !!timestamp 2001-01-01", "the tag"),
    "a local tag": ("a: !thing 1", "the tag"),
    "an alias": ("a: &x 1\nb: *x", r"\*x refers to another place"),
    "a null key": ("~: 1", "the key '~' is not a string"),
    "a true key": ("a: {true: 1}", "the key 'true' is not a string"),
    "a number for a key": ("5: 1", "the key '5' is not a string"),
    "a list for a key": ("? [1, 2]\n: 3", "is not a string"),
    "a key twice": ("a: {b: 1, b: 2}", "the key 'b' occurs twice"),
    "a number of 400 digits": ("a: " + "9" * 400, "a number of 400 letters"),
    "a number of 41 digits": ("a: " + "9" * 41, "more than 40 digits"),
    "a number in base sixty without end": ("a: 1" + ":59" * 10_000, "a number of"),
    "two documents": ("--- 1\n--- 2", "single document"),
    "brackets": ("[" * 10_000, "nested in more than"),
    "dashes": ("- " * 10_000, "nested in more than"),
}


@pytest.mark.parametrize("name", YAML)
def test_yaml_that_is_more_than_data(name):
    text, message = YAML[name]
    with pytest.raises(ValueError, match=message):
        parse_yaml(text)


def test_yaml_that_is_data():
    text = "a: [1, 2.5, .inf, yes, ~, 0x1F, '5', 2001-12-14, 2001-99-99]\nb: {c: d, <<: e}"
    assert parse_yaml(text) == {
        "a": [1, 2.5, float("inf"), True, None, 31, "5", "2001-12-14", "2001-99-99"],
        "b": {"c": "d", "<<": "e"},
    }
    shared = [1, {}]
    assert parse_yaml(dump_yaml({"a": shared, "b": shared})) == {"a": shared, "b": shared}


def test_json_and_toml_that_are_more_than_data():
    for text in (
        "9" * (DIGITS + 1),
        "[" * (DEPTH + 2) + "]" * (DEPTH + 2),
        "[" * 10**6,
        '{"a":1,"a":2}',
        '"\\ud800"',
        "nope",
    ):
        with pytest.raises(ValueError):
            parse_json(text)
    for text in ("a = 2001-12-14", f"a = {'9' * 41}", "a = " + "[" * 2000, "a = 1\na = 2"):
        with pytest.raises(ValueError):
            parse_toml(text)
    assert parse_json('{"a": ["\\ud83d\\ude00", 1e3]}') == {"a": ["😀", 1000.0]}


def test_our_own_recipes_are_plain_data():
    for name in names():
        for preset in (None, *presets(name)):
            recipe = load_recipe(name, preset)
            assert parse_yaml(recipe.to_yaml())["rounds"] == recipe.rounds


RECIPES = {
    "a date that is none": ("rounds: 2001-99-99", "found '2001-99-99'", 2),
    "presets that are none": ("rounds: 1\npresets: 5", "presets must map names to values", 2),
    "a preset that is none": ("rounds: 1\npresets: {a: 5}", "presets must map names to values", 2),
    "a section's key that is true": ("rounds: 1\nencode: {true: 1}", "is not a string", 3),
    "too much": ("about: " + "x" * 2**20, "at most 1,048,576 are read", 3),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_that_is_none(tmp_path, refused, name):
    text, message, code = RECIPES[name]
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    assert message in refused(tmp_path, "run", path, "-o", tmp_path / "run", code=code)


def test_a_params_file_with_keys_that_are_no_names(run_copy, refused, commands):
    path = run_copy / "params.yaml"
    path.write_text("train-client: {true: 3}")
    words, _ = commands(run_copy)["train-model"]
    assert "the key 'true' is not a string" in refused(run_copy, *words, "--params", path)


BUDGETS = {"epsilon": "9" * 400, "delta": "!!timestamp 2001-01-01", "unit": "[[[[]]]]"}


@pytest.mark.parametrize("name", BUDGETS)
def test_a_budget_that_is_none(run_copy, refused, name):
    values = {"epsilon": "2", "delta": "1.0e-5", "unit": "record"} | {name: BUDGETS[name]}
    path = run_copy / "clients/00/private/budget.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in values.items()))
    path.chmod(0o600)
    model, update = run_copy / "public/model-0000.safetensors", path.parent / "update-0001.safetensors"
    words = ["encode", model, update, "-o", run_copy / "clients/00/outbox/new.safetensors"]
    assert "budget.yaml" in refused(run_copy, *words)


def test_a_policy_with_a_tag_lets_nothing_out(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("delta: !!timestamp 2001-01-01\nrules: []\n")
    with pytest.raises(InputError, match=r"the tag .* Nothing leaves until it is"):
        read_policy(path)


def test_terms_with_a_null_key(tmp_path):
    path = tmp_path / "federation.yaml"
    path.write_text("federation: {~: 1, seed: 0}\nrecipe: {rounds: 1}\n")
    with pytest.raises(InputError, match="is not a string"):
        read_terms(path)


def test_a_message_in_half_precision_is_decoded(tmp_path, forge, fedsynth):
    model = forge.write_tensors(tmp_path / "model.safetensors", round=0)
    start = InputRef(role="model", kind="model", sha256=tensors_file.read(model).sha256)
    half = {"w": np.arange(6, dtype="f2").reshape(2, 3)}
    message = forge.write_tensors(tmp_path / "00/outbox/m.safetensors", half, "message", round=1, inputs=(start,))
    for words in ([], ["--apply"]):
        out = tmp_path / f"out{len(words)}.safetensors"
        code, _, err = fedsynth("decode", model, message, *words, "-o", out)
        assert code == 0, err
        assert tensors_file.read(out).tensors["w"].dtype == np.float32


def test_weights_that_are_whole_numbers_are_refused(run_copy, refused, commands, forge):
    words, model = commands(run_copy)["train-model"]
    found = tensors_file.read(model)
    tensors = {name: array.astype(np.int64) for name, array in found.tensors.items()}
    model.unlink()
    tensors_file.write(model, tensors, found.metadata)
    assert "holds whole numbers" in refused(run_copy, *words)


ODD = {"encoding": [[1], 3, "x", True], "peers": [1, {}, None], "step": [[], {}, "x"], "signature": [[], {}]}


@pytest.mark.parametrize("name", ODD)
def test_parameters_of_any_type_are_a_sentence(name):
    for value in ODD[name]:
        about = Metadata(
            kind="secagg-masked", stage="secagg", method="mask", custody="outbound", client="00", versions={},
            params={name: value},
        )  # fmt: skip
        assert "its parameters are not those of secagg" in (undeclared(about) or "")


@pytest.mark.parametrize("command", ["audit", "report"])
def test_one_odd_file_fails_alone(run_copy, forge, fedsynth, command):
    path = run_copy / "clients/00/outbox/secagg-masked-0001.safetensors"
    forge.write_tensors(
        path, {"w": np.zeros(3, "i4")}, "secagg-masked", stage="secagg", method="mask", custody="outbound",
        client="00", round=1, disclosures=("update",), params={"encoding": [1]},
    )  # fmt: skip
    words = ["-o", run_copy / "page.html"] if command == "report" else []
    code, _, err = fedsynth(command, run_copy, *words)
    assert code == 5 and "FAIL" in err
    result = audit(run_copy)
    assert {finding.where for finding in result.findings if finding.level == "failure"} == {str(path)}
    assert [sent.files for sent in result.sent if not sent.is_server] == [3, 2, 2]


def test_a_class_with_markup_in_its_name_is_text(tmp_path, forge, fedsynth):
    names = ["[/nope]", "\x1b[2J\u202e"]
    params = forge.DATASET_PARAMS | {"class_names": names}
    path = forge.write_dataset(tmp_path / "d.parquet", 3, params=params)
    code, out, err = fedsynth("inspect", path)
    assert code == 0, err
    assert "[/nope]" in out and r"\x1b[2J\u202e" in out and "\x1b" not in out
    code, out, _ = fedsynth("inspect", path, "--json")
    assert json.loads(out)["params"]["class_names"] == names and "\u202e" not in out


def test_a_folder_whose_name_is_no_text_is_no_class(tmp_path, fedsynth):
    for name in (b"cat", b"\xff\xfe"):
        folder = tmp_path / "images" / os.fsdecode(name)
        folder.mkdir(parents=True)
        (folder / "a.png").write_bytes(encode_png(np.zeros((2, 2), np.uint8)))
    code, _, err = fedsynth("ingest", tmp_path / "images", "-o", tmp_path / "a/private/data.parquet")
    assert code == 3 and "a class name is not text" in err and len(err.splitlines()) == 1
