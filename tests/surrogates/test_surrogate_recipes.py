"""Recipes of the methods that send synthetic sets: what they lay out, and that `run` and the script agree."""

import json
import shlex

import numpy as np
import pytest

from artifacts.errors import UsageError
from artifacts.formats import tensors_file
from fedsynth_cli.app import run as run_command_line
from stages.account import account
from stages.audit import audit
from stages.recipes.declared import parameters
from stages.recipes.plan import check, plan, planned_clients
from stages.recipes.recipe import change, load_recipe

PAPER = (None, "paper")
RECIPES = {
    "fedlap": PAPER, "fedlap-cifar10": (None,), "fedlap-dp": PAPER, "fedlap-one-client": (None,),
    "fedlap-dp-one-client": (None,), "fedlap-strategies": PAPER, "fedlap-images": PAPER, "dsc": PAPER, "psg": PAPER,
    "feddm": PAPER, "feddm-cifar100": (None,), "feddm-50-clients": (None,), "feddm-resnet18": (None,),
    "feddm-dp": PAPER, "feddm-skew": PAPER, "feddm-noise": PAPER, "real": PAPER, "fedlap-mnist": (None,),
    "fedlap-dp-mnist": (None,), "fedlap-dp-cifar10": (None,), "fedlap-dp-last": PAPER, "feddm-mnist": (None,),
}  # fmt: skip
PRIVATE = (
    "fedlap-dp", "fedlap-dp-mnist", "fedlap-dp-cifar10", "fedlap-dp-last", "feddm-dp", "feddm-noise", "psg",
    "fedlap-dp-one-client",
)  # fmt: skip
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
        assert client.is_private == (name in PRIVATE)
        if client.method == "fedlap":
            assert server.rate(3) == client.rate(3), "one rate for both"
            assert (server.augmentations, server.begin) == (client.augmentations, client.begin)
            assert not client.is_private or server.strategy == "fixed" or server.radius == client.radius
        else:
            assert server.rho == client.rho
        assert "train-client" not in {step.command for step in plan(recipe, planned_clients(recipe), 0)}


BASELINES = {
    # What the papers say of their baselines: FedLAP's App. B and public settings, FedDM's App. F.
    "fedlap": {"batch_size": 256, "local_epochs": 5, "learning_rate": 0.01, "lr_schedule": "cosine",
               "schedule_rounds": 60, "weight_decay": 1e-4},
    "feddm": {"batch_size": 256, "learning_rate": 0.01, "lr_schedule": "constant"},
}  # fmt: skip


@pytest.mark.parametrize("paper", BASELINES)
@pytest.mark.parametrize("name", ["fedavg", "fedprox", "scaffold", "fednova"])
def test_each_baseline_is_there_in_the_setting_of_each_paper(name, paper):
    recipe, own = load_recipe(f"{paper}-{name}", "paper"), load_recipe(paper, "paper")
    check(recipe)
    (step, *_) = steps_of(recipe, "train-client")
    found = parameters(step)
    assert {key: getattr(found, key) for key in BASELINES[paper]} == BASELINES[paper]
    assert found.algorithm == name
    assert recipe.rounds == own.rounds
    assert recipe.section("init-model") == own.section("init-model")
    dealt = [{k: v for k, v in one.section("partition").items() if v is not None} for one in (recipe, own)]
    assert dealt[0] == dealt[1], "the same clients with the same data"
    if paper == "fedlap":
        assert found.momentum == (0.0 if name == "scaffold" else 0.9)


def test_private_sets_of_one_client_are_matched_by_angle_and_difference_of_mean_targets():
    """By the difference alone PSG stays at 42%, with noise and without."""
    for name in ("psg", "fedlap-dp-one-client"):
        params = parameters(steps_of(load_recipe(name), "encode")[0])
        assert (params.distance, params.targets, params.image_rate) == ("cosine+mse", "mean", 10.0)


def test_presets_have_the_papers_numbers():
    assert parameters(steps_of(load_recipe("psg", "paper"), "encode")[0]).target_epsilon == 32
    assert parameters(steps_of(load_recipe("fedlap-dp", "paper"), "encode")[0]).schedule_rounds == 30
    for name in ("fedlap-strategies", "fedlap-images"):
        recipe = load_recipe(name, "paper")
        params = parameters(steps_of(recipe, "encode")[0])
        assert (recipe.rounds, recipe.section("partition")["source"]) == (200, "cifar10")
        assert (params.learning_rate, params.schedule_rounds) == (0.1, 200)
    feddm = parameters(steps_of(load_recipe("feddm-dp", "paper"), "encode")[0])
    assert feddm.sampling_rate == 256 / 500, "256 of a class of 5,000 / 10 images"


def test_a_recipe_can_give_each_client_its_public_classes():
    settings = ['encode.classes={"00": "3,7", "01": [0, 5]}', "partition.clients=2", "rounds=2"]
    recipe = change(load_recipe("fedlap-dp"), settings, None)
    check(recipe)
    for step in steps_of(recipe, "encode"):
        assert parameters(step).classes == {"00": "3,7", "01": "0,5"}[step.owner]
    with pytest.raises(UsageError, match=r"encode\.classes names 00, but not client '01'"):
        steps_of(change(load_recipe("fedlap-dp"), ['encode.classes={"00": "3"}', settings[1]], None), "encode")


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
