"""Recipes of the methods that send synthetic sets: what they lay out, and that `run` and the script agree."""

import json
import shlex

import numpy as np
import pytest

from artifacts import tensors_file
from artifacts.errors import UsageError
from fedsynth_cli.app import run as run_command_line
from stages.account import account
from stages.audit import audit
from stages.recipes.declared import check, parameters
from stages.recipes.plan import plan, planned_clients
from stages.recipes.recipe import change, load_recipe

RECIPES = {
    "fedlap": (None, "paper"), "fedlap-dp": (None, "paper"), "feddm": (None, "paper"), "feddm-dp": (None, "paper"),
    "dsc": (None, "paper"), "psg": (None, "paper"), "real": (None, "paper"),
}  # fmt: skip
SMALL = [
    "partition.clients=2",
    "init-model.arch=softmax",
    "init-model.width=null",
    "init-model.depth=null",
    "encode.images_per_class=1",
]
QUICK = {
    "fedlap": ["encode.points=1", "encode.batches=1", "encode.image_steps=20", "encode.radius_steps=2",
               "encode.init=previous", "encode.learning_rate=0.001", "aggregate.server_steps=2"],
    "feddm": ["encode.iterations=1", "aggregate.server_epochs=1"],
}  # fmt: skip


def steps_of(recipe, command):
    return [step for step in plan(recipe, planned_clients(recipe), 0) if step.command == command]


@pytest.mark.parametrize("name", RECIPES)
def test_the_recipe_and_its_presets_are_in_order(name):
    for preset in RECIPES[name]:
        recipe = load_recipe(name, preset)
        check(recipe)
        (encode, *_), (aggregate, *_) = (steps_of(recipe, command) for command in ("encode", "aggregate"))
        client, server = parameters(encode), parameters(aggregate)
        assert server.images_per_class == client.images_per_class, "more than was agreed on is refused"
        assert client.is_private == (name in ("fedlap-dp", "feddm-dp", "psg"))
        if client.method == "fedlap":
            assert server.rate(3) == client.rate(3), "one rate for both"
            assert not client.is_private or server.strategy == "fixed" or server.radius == client.radius
        else:
            assert server.rho == client.rho
        assert "train-client" not in {step.command for step in plan(recipe, planned_clients(recipe), 0)}


def test_the_set_before_is_that_of_the_clients_last_round():
    recipe = change(load_recipe("fedlap-dp"), ["participation=0.4"], 5)
    last = {}
    for step in steps_of(recipe, "encode"):
        assert step.options.get("previous") == last.get(step.owner)
        assert step.needs == ((last[step.owner],) if step.owner in last else ())
        last[step.owner] = step.out
    assert any("previous" in step.options for step in steps_of(recipe, "encode"))
    assert all("previous" not in step.options for step in steps_of(load_recipe("fedlap"), "encode"))


def test_what_the_server_needs_the_clients_send():
    recipe = change(load_recipe("fedlap"), ["aggregate.weights=examples", "encode.calibrate=true"], 1)
    check(recipe)
    assert steps_of(recipe, "encode")[0].params["tell_examples"] is True
    assert steps_of(recipe, "aggregate")[0].params["calibrated"] is True
    with pytest.raises(UsageError, match="synthetic must be none"):
        check(change(load_recipe("fedlap"), ["synthetic=own"], 1))


def test_feddms_preset_leaves_out_classes_of_which_a_client_has_hardly_any(tmp_path, run_on_one_worker):
    """As Dirichlet deals them out; «real» makes its sets at once, by the same stage."""
    settings = ["partition.source=digits", "partition.clients=4", "aggregate.server_epochs=1", *SMALL[1:4]]
    run_on_one_worker(change(load_recipe("real", "paper"), settings, 1), tmp_path / "run", seed=0)
    dealt = json.loads((tmp_path / "run/simulation/partition.json").read_text())["clients"]
    assert len(dealt) == 4 and any(0 < count < 10 for counts in dealt.values() for count in counts)
    for client, counts in dealt.items():
        sent = tensors_file.read(tmp_path / f"run/clients/{client}/outbox/surrogate-0001.safetensors").tensors["labels"]
        assert np.bincount(sent, minlength=10).tolist() == [10 * (count >= 10) for count in counts]


def by_script(text, folder):
    """The commands of a pipeline, one after the other, in this process."""
    for line in text.replace("\\\n", " ").splitlines():
        words = [word.replace("$RUN", str(folder)) for word in shlex.split(line, comments=True)]
        if words[:1] == ["fedsynth"] and words[1] != "batch":
            words = words[1:]
        elif words[:1] != ["encode"]:
            continue
        assert run_command_line(words) == 0, line


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "recipe.yaml")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("name", ["fedlap", "feddm"])
def test_run_and_the_script_give_the_same_bytes(name, tmp_path, run_on_one_worker, fedsynth):
    settings = [*SMALL, *QUICK[name]]
    rounds = 2 if name == "fedlap" else 1
    run_on_one_worker(change(load_recipe(name), settings, rounds), tmp_path / "run", seed=3)
    words = [word for setting in settings for word in ("--set", setting)]
    code, text, err = fedsynth("recipe", name, *words, "--rounds", rounds, "--seed", 3, "--format", "sh")
    assert code == 0, err
    by_script(text, tmp_path / "script")
    found = contents(tmp_path / "run")
    assert found == contents(tmp_path / "script")
    assert "server/private/descent-0001.json" in found and "clients/01/private/matching-0001.json" in found
    report = audit(tmp_path / "run")
    assert report.passed, report.findings
    assert all(str(row["epsilon"]["rdp"]) == "inf" for row in account([tmp_path / "run"], delta=1e-5)["clients"])
    if name == "fedlap":
        first, second = (
            tensors_file.read(tmp_path / f"run/clients/00/outbox/surrogate-000{n}.safetensors") for n in (1, 2)
        )
        assert [r.sha256 for r in second.metadata.inputs if r.role == "previous"] == [first.sha256]
        assert json.loads(found["server/private/descent-0002.json"])["steps"] >= 1
