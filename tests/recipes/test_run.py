"""`run` from outside: interrupted and killed, resumed, extended, refused; and what the digits give."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from artifacts.formats import dataset_file, tensors_file
from stages.account import account
from stages.recipes.layers import names
from stages.recipes.plan import participants, plan
from stages.recipes.recipe import change, load_recipe
from stages.recipes.runner import run

COMMAND = [sys.executable, "-c", "from fedsynth_cli.app import main; main()", "run", "fedavg", "-q"]
SMALL = [
    "partition.clients=3",
    "init-model.arch=softmax",
    "init-model.width=null",
    "init-model.depth=null",
    "train-client.local_epochs=1",
]


def contents(folder):
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != "recipe.yaml")
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}


def assert_whole(folder):
    """Every file reads, and nothing is in an outbox without its ledger entry."""
    from stages.audit import audit

    for path in folder.rglob("*.safetensors"):
        tensors_file.read(path)
    for path in folder.rglob("*.parquet"):
        dataset_file.read(path)
    if (folder / "clients").is_dir():
        failures = [f for f in audit(folder).findings if f.level == "failure"]
        assert not failures, failures


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, run_on_one_worker):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    run_on_one_worker(change(load_recipe("fedavg"), SMALL, 4), folder, seed=0)
    return folder


def start(folder, workers):
    settings = [word for setting in SMALL for word in ("--set", setting)]
    command = [*COMMAND, *settings, "--rounds", "4", "--workers", str(workers), "-o", str(folder)]
    # Tests that run in the background of a shell inherit that SIGINT is ignored; a run at a terminal does not.
    listen = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    return subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=listen)


def wait_for(folder, pattern, process):
    deadline = time.monotonic() + 240  # a busy machine takes a minute to import torch in all processes
    while not list(folder.glob(pattern)):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "workers"), [(signal.SIGINT, 1), (signal.SIGKILL, 2)])
def test_a_run_that_is_stopped_leaves_whole_files_and_goes_on(undisturbed, tmp_path, run_on_one_worker, kind, workers):
    folder = tmp_path / "run"
    process = start(folder, workers)
    wait_for(folder, "clients/*/outbox/message-0002.safetensors", process)
    os.kill(process.pid, kind)
    errors = process.communicate(timeout=30)[1].decode()
    if kind == signal.SIGINT:
        assert process.returncode == 130
        assert "run again to go on" in errors
    assert not (folder / "metrics/round-0004.json").exists(), "it finished before it was stopped"
    time.sleep(0.5)  # the workers of a killed parent notice the closed pipe
    assert_whole(folder)
    run_on_one_worker(change(load_recipe("fedavg"), SMALL, 4), folder, seed=0)
    assert contents(folder) == contents(undisturbed)


@pytest.mark.slow
def test_running_again_does_nothing_and_more_rounds_go_on(undisturbed, tmp_path, run_on_one_worker):
    folder = tmp_path / "run"
    recipe = change(load_recipe("fedavg"), SMALL, 2)
    run_on_one_worker(recipe, folder, seed=0)
    before = contents(folder)
    again = run_on_one_worker(recipe, folder, seed=0)
    assert (again["steps_run"], contents(folder) == before) == (0, True)
    longer = run(change(recipe, [], 4), folder, seed=0, workers=2)
    assert longer["steps_kept"] > 0
    assert contents(folder) == contents(undisturbed)


@pytest.mark.parametrize(
    ("settings", "seed", "said"),
    [
        (["train-client.learning_rate=0.2"], 0, "train-client.learning_rate was 0.1, now 0.2"),
        ([], 1, "seed was 0, now 1"),
    ],
)
def test_a_folder_with_another_run_is_refused(fedsynth, undisturbed, settings, seed, said):
    options = [word for setting in [*SMALL, *settings] for word in ("--set", setting)]
    code, _, err = fedsynth("run", "fedavg", *options, "--seed", seed, "-o", undisturbed)
    assert code == 2
    assert said in err


def test_fedavg_on_iid_digits_passes_97_percent_within_six_rounds(tmp_path, run_on_one_worker):
    summary = run_on_one_worker(change(load_recipe("fedavg", "demo"), [], 6), tmp_path / "run", seed=1)
    assert max(row["accuracy"] for row in summary["curve"]) > 0.97


def is_one_run_on_real_data(name):
    """On data that is at hand; but for noise in shares under masks, which tests/secagg runs."""
    recipe = load_recipe(name)
    at_hand = recipe.section("partition")["source"] == "digits"
    shared = "least_clients" in recipe.section("encode")
    return at_hand and recipe.synthetic == "none" and not recipe.sweep and not shared


def is_noised(name):
    recipe = load_recipe(name)
    return recipe.section("aggregate").get("rule") == "dp-mean" or "sampling_rate" in recipe.section("train-client")


def method_of(name):
    return load_recipe(name).section("encode").get("method")


ENCODED = {
    "fedlap": ["encode.points=1", "encode.batches=2", "encode.images_per_class=2", "aggregate.server_steps=5"],
    "feddm": ["encode.iterations=3", "encode.images_per_class=2", "aggregate.server_epochs=5"],
    "tofu": [
        "encode.images=4",
        "encode.iterations=3",
        "train-client.local_epochs=null",
        "train-client.local_steps=5",
        "switch2=2",
    ],
}
ONE_RUN = [name for name in filter(is_one_run_on_real_data, names()) if method_of(name) not in ENCODED]
IMAGES_RUN = [name for name in filter(is_one_run_on_real_data, names()) if method_of(name) in ENCODED]


# Three networks of its own each round: half a minute.
LONG = {"fedlap-networks": [pytest.mark.slow]}


@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG.get(name, [])) for name in IMAGES_RUN])
def test_every_recipe_that_sends_images_runs_and_is_whole(tmp_path, run_on_one_worker, name):
    clients = min(2, load_recipe(name).section("partition")["clients"])
    net = [setting for setting in SMALL if setting.startswith("init-model")]
    kept = "encode.iterations=0" if name == "real" else ""
    settings = [*net, f"partition.clients={clients}", *ENCODED[method_of(name)], *([kept] if kept else [])]
    rounds = min(2, load_recipe(name).rounds)
    summary = run_on_one_worker(change(load_recipe(name), settings, rounds), tmp_path / "run", seed=0)
    assert summary["rounds"] == rounds and summary["bytes_sent_by_clients"] > 0
    assert_whole(tmp_path / "run")
    if name.endswith("-dp") or name == "psg":
        stated = account([tmp_path / "run"], delta=1e-5)
        assert all(0 < row["epsilon"]["pld"] < 9 for row in stated["clients"])


@pytest.mark.parametrize("name", [name for name in ONE_RUN if is_noised(name)])
def test_every_noised_recipe_runs_and_costs_what_its_events_say(tmp_path, run_on_one_worker, name):
    """Few clients drown in the noise, so nothing is said of what they learn."""
    settings = [setting for setting in SMALL if not setting.startswith("train-client")]
    summary = run_on_one_worker(change(load_recipe(name), settings, 2), tmp_path / "run", seed=0)
    assert summary["rounds"] == 2
    assert_whole(tmp_path / "run")
    for_clients = load_recipe(name).section("aggregate").get("rule") == "dp-mean"
    stated = account([tmp_path / "run"], delta=1e-3)
    units = {row["client"]: (row["unit"], row["epsilon"]["pld"]) for row in stated["clients"]}
    unit, epsilon = units["server" if for_clients else "00"]
    assert unit == ("client" if for_clients else "record") and 0 < epsilon < 20


# Those of a paper's clients have the algorithms of the others.
OF_PAPERS = re.compile("(fedlap|feddm)-(fedavg|fedprox|fednova|scaffold)")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * bool(OF_PAPERS.fullmatch(name)))
        for name in ONE_RUN
        if not is_noised(name)
    ],
)
def test_every_recipe_learns(tmp_path, run_on_one_worker, name):
    settings = [*SMALL, "partition.scheme=iid", "partition.alpha=null"]
    settings += ["train-client.local_epochs=null"] if name == "fedsgd" else []
    summary = run_on_one_worker(change(load_recipe(name), settings, 2), tmp_path / "run", seed=0)
    assert summary["loss"] < 0.9 * summary["curve"][0]["loss"]
    assert_whole(tmp_path / "run")


def test_participants_are_a_fair_draw_and_differ_between_rounds():
    clients = [f"{n:02}" for n in range(20)]
    recipe = change(load_recipe("fedavg"), ["participation=0.25"], None)
    drawn = [participants(recipe, clients, round, seed=0) for round in range(1, 2001)]
    assert all(len(set(chosen)) == 5 for chosen in drawn)
    share = [sum(client in chosen for chosen in drawn) / len(drawn) for client in clients]
    # Binomial(2000, 1/4): standard deviation 0.0097; a client left out or favoured by a fifth would show.
    assert all(abs(value - 0.25) < 0.045 for value in share)
    assert len({tuple(chosen) for chosen in drawn}) > 1500
    assert participants(change(recipe, ["participation=0.001"], None), clients, 1, seed=0)


def test_each_step_of_a_plan_reads_only_what_earlier_steps_wrote():
    recipe = load_recipe("fedavg")
    made = {"public/test.parquet", "simulation/partition.json", *(f"clients/{c}/private/data.parquet" for c in "ab")}
    for step in plan(recipe, ["a", "b"], 0):
        assert {*step.inputs, *step.needs} <= made, step
        made |= set(step.outputs)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rounds: 0", "rounds must be"),
        ("rounds: 1\nparticipation: 2", "participation must be"),
        ("rounds: 1\nnonsense: 1", "unknown key 'nonsense'"),
        ("rounds: 1", "partition.source is missing"),
    ],
)
def test_a_wrong_recipe_is_reported(fedsynth, tmp_path, text, said):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    code, _, err = fedsynth("run", path, "-o", tmp_path / "run")
    assert code == 2
    assert said in err


def test_a_folder_that_holds_another_recipes_run_is_left_as_it_is(run_copy, fedsynth, forge):
    before = forge.snapshot(run_copy)
    code, _, err = fedsynth("run", "fedsgd", "-o", run_copy)
    assert (code, "holds a run with other parameters: name was fedavg, now fedsgd" in err) == (2, True), err
    assert forge.snapshot(run_copy) == before


def test_a_folder_whose_parameters_nobody_wrote_down_is_left_as_it_is(run_copy, fedsynth, forge):
    """Made by make or DVC, perhaps with other values: what is there would be kept, and taken for this recipe's."""
    (run_copy / "simulation/recipe.yaml").unlink()
    before = forge.snapshot(run_copy)
    code, _, err = fedsynth("run", "fedavg", "-o", run_copy)
    assert (code, "no recipe says of which parameters its files are" in err) == (2, True), err
    assert forge.snapshot(run_copy) == before


@pytest.mark.slow
def test_a_folder_of_a_run_that_never_began_may_be_used(fedsynth, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("age,label\n30,0\n")
    code, _, err = fedsynth("run", "fedavg", "--set", f"partition.source={table}", "-o", tmp_path / "r")
    assert (code, "images only" in err) == (3, True), err
    code, _, err = fedsynth("run", "fedsgd", "--shrink", "--rounds", 1, "-o", tmp_path / "r")
    assert code == 0, err
