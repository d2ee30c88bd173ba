"""The recipes themselves: what they extend, what they lay out, and how a wrong one is told."""

import json
from dataclasses import replace

import pytest
import yaml

from artifacts.errors import UsageError
from stages.recipes.layers import names
from stages.recipes.phases import resolved
from stages.recipes.plan import check, partition_step, plan, planned_clients
from stages.recipes.recipe import change, load_recipe, presets
from stages.recipes.sweep import points

DIGITS = {"arch": "convnet", "width": 16, "depth": 2}
FAMILY = [
    name
    for name in names()
    if (name.startswith(("fedssyn", "centralised")) or name == "mixing") and name != "fedssyn-dsprites"  # not digits
]


def write(path, text):
    path.write_text(text)
    return str(path)


def lay_out(recipe):
    clients = planned_clients(recipe)
    made = set(partition_step(recipe, 0, clients).outputs)
    # A plateau is not known in advance: laid out as if it never came.
    for step in plan(resolved(recipe, {}), clients, 0):
        assert {*step.inputs, *step.needs} <= made, step
        made |= set(step.outputs)


def shortened(recipe):
    """Hundreds of rounds with hundreds of clients are one like the other, unless there are phases."""
    many = len(planned_clients(recipe)) * recipe.rounds > 2000 and recipe.switch1 is None
    return replace(recipe, rounds=min(recipe.rounds, 12)) if many else recipe


@pytest.mark.parametrize("name", names())
def test_every_recipe_and_preset_can_be_laid_out(name):
    for preset in (None, *presets(name)):
        whole = list(points(load_recipe(name, preset), 0))
        for point in whole:
            check(point.recipe)
        for point in (whole[0], whole[-1]):  # what is between differs in values alone
            lay_out(shortened(point.recipe))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", names())
def test_every_point_of_every_recipe_is_laid_out_to_its_last_round(name):
    for preset in (None, *presets(name)):
        for point in points(load_recipe(name, preset), 0):
            lay_out(point.recipe)


def test_what_is_extended_is_resolved_to_the_values_that_stood_there():
    """Written out as they were before recipes could extend each other."""
    for name, own in {
        "fedprox": {"mu": 0.01}, "feddyn": {"alpha": 0.01}, "scaffold": {}, "fedpvr": {}, "fednova": {},
    }.items():  # fmt: skip
        recipe = load_recipe(name)
        training = {"algorithm": name, "local_epochs": 5, "batch_size": 16, "learning_rate": 0.05}
        assert recipe.section("train-client") == training | own
        assert recipe.section("partition") == {"source": "digits", "clients": 5, "scheme": "dirichlet", "alpha": 0.1}
        assert recipe.section("init-model") == DIGITS
        assert (recipe.rounds, recipe.participation, recipe.synthetic) == (10, 1.0, "none")
        assert (recipe.section("encode"), recipe.section("aggregate")) == ({"method": "delta"}, {"weights": "uniform"})
        assert presets(name) == ["demo", "paper"], "those of fedavg"


@pytest.mark.parametrize("name", FAMILY)
def test_the_family_of_fedssyn_differs_in_nothing_but_what_is_compared(name):
    recipe = load_recipe(name)
    training = {"algorithm": "fedavg", "local_epochs": 5, "epochs_of": "first", "batch_size": 16, "learning_rate": 0.05}
    assert recipe.section("train-client") == training
    assert recipe.section("init-model") == DIGITS
    assert recipe.section("partition")["held_out"] == 0.1
    assert recipe.rounds in (10, 20)


def test_the_papers_fedssyn_is_laid_out(fedsynth):
    code, out, err = fedsynth("recipe", "fedssyn", "--preset", "paper", "--format", "sh")
    assert code == 0, err
    first = next(line for line in out.splitlines() if line.startswith("fedsynth partition"))
    assert "partition cifar10 --clients 10 --scheme dirichlet --alpha 0.1 --held-out 0.1 --sizes equal" in first
    recipe = load_recipe("fedssyn", "paper")
    generator = next(step for step in plan(recipe, ["00"], 0) if step.command == "train-generator")
    from stages.recipes.declared import parameters

    written = parameters(generator).to_json()
    expected = {
        "epochs": 500, "batch_size": 256, "learning_rate": 1e-4, "ema_decay": 0.9995, "base_width": 64,
        "multipliers": "1,2,2,2", "residual_blocks": 3, "dropout": 0.1, "timesteps": 1000, "data_fraction": 0.75,
    }  # fmt: skip
    assert {key: written[key] for key in expected} == expected
    assert "--arch vgg11" in out
    assert "--count 5000 --sampler ddpm --sampling-steps 250" in out


def test_a_file_extends_a_recipe_a_preset_or_a_file_beside_it(tmp_path):
    write(tmp_path / "base.yaml", "extends: fedavg/paper\nrounds: 3\ntrain-client: {batch_size: 7}\n")
    recipe = load_recipe(write(tmp_path / "mine.yaml", "extends: base.yaml\ntrain-client: {momentum: 0.9}\n"))
    assert recipe.name == "mine"
    assert (recipe.rounds, recipe.participation) == (3, 0.1)
    training = {"algorithm": "fedavg", "local_epochs": 5, "batch_size": 7, "learning_rate": 0.1, "momentum": 0.9}
    assert recipe.section("train-client") == training


def test_a_preset_goes_over_what_is_extended(tmp_path):
    text = "extends: fedavg\nrounds: 3\npresets: {long: {rounds: 30, aggregate: {weights: examples}}}\n"
    recipe = load_recipe(write(tmp_path / "mine.yaml", text), "long")
    assert (recipe.rounds, recipe.section("aggregate")["weights"]) == (30, "examples")
    with pytest.raises(UsageError, match=r"has no preset 'short'\. Known: long, demo, paper"):
        load_recipe(str(tmp_path / "mine.yaml"), "short")
    below = load_recipe(str(tmp_path / "mine.yaml"), "paper")
    assert below.section("partition")["source"] == "fashion-mnist", "a preset of fedavg"
    assert below.rounds == 100, "which goes over what the file says for every other dataset"


def test_a_preset_may_extend_a_preset_of_the_recipe_beneath(tmp_path):
    text = "extends: fedavg\nrounds: 3\npresets: {paper: {extends: fedavg/paper, train-client: {batch_size: 7}}}\n"
    file = write(tmp_path / "mine.yaml", text)
    recipe = load_recipe(file, "paper")
    assert recipe.section("partition")["source"] == "fashion-mnist"
    assert recipe.section("train-client")["batch_size"] == 7
    assert load_recipe(file).section("partition")["source"] == "digits"


def test_the_papers_ablations_and_baselines():
    """FedLAP: Fig. 5 and App. B.3; FedDM: Sec. 3.4 and Table 4."""
    wanted = {
        "fedlap-images": ("encode.images_per_class", [10, 20, 50, 100]),
        "feddm-images": ("encode.images_per_class", [3, 5, 10]),
        "feddm-radii": ("encode.rho", [3.0, 5.0, 10.0]),
    }
    for name, (key, values) in wanted.items():
        recipe = load_recipe(name, "paper")
        assert list(recipe.sweep[key]) == values
        assert (recipe.section("init-model")["width"], recipe.section("encode")["init"]) == (128, "real")
    for name, clip in (("dp-sgd", 0.1), ("dp-sgd-fedprox", 0.2)):
        training = load_recipe(name, "paper").section("train-client")
        assert (training["clip_norm"], training["noise_multiplier"], training["local_steps"]) == (clip, 1.0, 200)
    assert load_recipe("dp-sgd-fedprox", "paper").section("train-client")["mu"] == 0.1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("extends: mine.yaml\nrounds: 1", "extends itself"),
        ("extends: fedavgg\nrounds: 1", "no recipe 'fedavgg'"),
        ("extends: [fedavg]\nrounds: 1", "extends must name a recipe"),
        ("extends: fedavg/nonsense", "no preset 'nonsense'"),
        ("about: nothing", "rounds is missing"),
        ("extends: fedavg\ntrain-client: 3", "train-client must be a mapping"),
        ("extends: fedavg\ntarget: 90", "target must be an accuracy above 0 and at most 1"),
        ("extends: fedavg\nsynthetic: all", "synthetic must be one of none, own, shuffled, pooled"),
        ("extends: fedavg\nsweep: [1]", "sweep must map targets to lists"),
        ("extends: fedavg\nsweep: {sede: [1]}", "sweep over 'sede': write stage.key=value"),
        ("extends: fedavg\nsweep: {train-clients.momentum: [0]}", "sweep over 'train-clients.momentum'"),
        ("extends: fedavg\nsweep: {train-client.momentun: [0]}", "momentun=0: train-client: unknown parameter"),
        ("extends: fedavg\nsweep: {seed: []}", "sweep over seed: give a list of one value or more, found []"),
        ("extends: fedavg\nsweep: {seed: 3}", "give a list of one value or more, found 3"),
        ("extends: fedavg\nsweep: {seed: [0, 0]}", "two points of the sweep are called seed=0"),
        ("extends: fedavg\nsweep: {seed: [zero]}", "a seed is a whole number, found 'zero'"),
        ("extends: fedavg\nsweep: {encode.method: [[delta]]}", "a value is one thing"),
        ("extends: fedavg\nsweep: {encode.method: [{name: delta}]}", "needs the key `value`"),
        ("extends: fedavg\nsweep: {partition.mix: [0, 2]}", "mix=2: partition: --mix must be from 0 to 1, found 2.0"),
        ("extends: fedavg\nsweep: {partition.held_out: [1]}", "--held-out must be 0 or more and below 1"),
    ],
)
def test_a_wrong_recipe_is_reported_and_nothing_is_written(fedsynth, tmp_path, text, said):
    code, _, err = fedsynth("run", write(tmp_path / "mine.yaml", text), "-o", tmp_path / "out")
    assert (code, said in err) == (2, True), err
    assert not (tmp_path / "out").exists()


def test_the_list_of_recipes_names_them_all(fedsynth, fedsynth_json, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = fedsynth("recipe", "list")
    assert code == 0
    assert all(name in out for name in names())
    assert max(map(len, out.splitlines())) <= 80
    found = {row["name"]: row for row in fedsynth_json("recipe", "list")["recipes"]}
    assert found["fedssyn"]["presets"] == ["demo", "28x28", "paper"]
    assert list(found["fedssyn-comparison"]["sweep"]) == ["synthetic", "seed"]


def test_a_pipeline_of_a_sweep_is_one_point_of_it(fedsynth):
    code, _, err = fedsynth("recipe", "fedssyn-comparison", "--format", "sh")
    assert code == 2
    assert "sweeps over synthetic" in err
    assert "--set synthetic=" in err
    code, out, err = fedsynth("recipe", "fedssyn-comparison", "--set", "synthetic=own", "--seed", 2, "--format", "make")
    assert code == 0, err
    assert "--seed 2" in out
    assert "shuffle" not in out.replace("shuffled", "")
    assert fedsynth("recipe", "fedavg")[0] == 2


def test_pooled_data_has_one_trainer_that_sees_no_real_row():
    recipe = load_recipe("centralised-synthetic")
    steps = plan(recipe, planned_clients(recipe), 0)
    by_command = {name: [step for step in steps if step.command == name] for name in ("shuffle", "train-client")}
    assert [step.options["parts"] for step in by_command["shuffle"]] == [1]
    assert len(by_command["train-client"]) == recipe.rounds
    for step in by_command["train-client"]:
        assert step.owner == "central"
        assert step.inputs[1:] == ("server/outbox/synthetic-00.parquet",)
    assert partition_step(recipe, 0).params["central"] is True
    assert "central" not in partition_step(load_recipe("fedssyn"), 0).params


def test_the_partition_declares_no_file_that_may_not_be_there():
    recipe = load_recipe("fedssyn")
    outputs = partition_step(recipe, 0, planned_clients(recipe)).outputs
    assert len(outputs) == 7  # the record, the test set, five clients' data
    assert not any("held-out" in name for name in outputs)


def test_the_record_of_a_run_does_not_speak_of_the_sweep():
    recipe = change(load_recipe("fedssyn-comparison"), [], 3)
    assert {"sweep", "target"}.isdisjoint(yaml.safe_load(recipe.to_yaml()))
    assert json.dumps(recipe.sweep)


@pytest.mark.parametrize("algorithm", ["scaffold", "fedpvr", "feddyn", "fednova", "fedsgd"])
def test_noise_for_whole_clients_covers_updates_alone(fedsynth, tmp_path, algorithm):
    """A state, a count of steps or a server's own rule beside the noised mean would not be covered by it."""
    code, _, err = fedsynth("run", "dp-fedavg", "--set", f"train-client.algorithm={algorithm}", "-o", tmp_path / "run")
    assert code == 2 and "dp-mean goes with the algorithms fedavg and fedprox" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "preset", "settings", "said"),
    [
        ("tofu", None, ["aggregate.server_rate=-1"], "--server-rate must be above 0"),
        (
            "tofu",
            None,
            ["switch1=plateau", "switch2=plateau", "aggregate.server_rate=-1"],
            "--server-rate must be above",
        ),
        ("tofu", "secure", ["secagg.threshold=1"], "--threshold must be at least 2"),
        ("fed-smp-topk", None, ["encode.keep=3"], "--keep must be above 0 and at most 1"),
    ],
)
def test_what_counts_in_later_rounds_alone_is_refused_before_the_first(name, preset, settings, said):
    """Else rounds would run, and be paid for, before it is."""
    with pytest.raises(UsageError, match=said):
        check(change(load_recipe(name, preset), settings, None))
