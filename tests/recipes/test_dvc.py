"""The DVC form of a recipe, run by DVC itself: the same bytes as `run`, and only what must runs again."""

import json
import re
import subprocess

import pytest
import yaml

from stages.recipes.dvc_format import dvc
from stages.recipes.recipe import change, load_recipe


@pytest.fixture(scope="module")
def tools(helper):
    return helper("recipes/tools.py")


@pytest.fixture(scope="module")
def project(tools, command_path, tmp_path_factory):
    """A git repository with the pipeline in it, run once; and a way to call DVC there."""
    if tools.found("dvc") is None:
        pytest.skip("DVC is not installed (pip install 'fedsynth[pipelines]')")
    folder = tmp_path_factory.mktemp("dvc")
    home = tmp_path_factory.mktemp("home")
    people = {f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    alone = people | {"HOME": str(home), "DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(home / "site")}

    def call(*words):
        return tools.call(words, folder, command_path, **alone)

    call("git", "init", "-q", ".")
    call("dvc", "init", "-q")
    call("fedsynth", "recipe", "fedavg", *tools.SMALL, "--format", "dvc", "-o", ".")
    call("dvc", "repro")
    call("git", "add", ".")
    call("git", "commit", "-q", "-m", "first")
    return folder, call


@pytest.fixture(scope="module")
def by_run(tools, tmp_path_factory, run_on_one_worker):
    """The same by `run`, under some settings."""

    def make(*settings):
        folder = tmp_path_factory.mktemp("by-run") / "run"
        run_on_one_worker(change(load_recipe("fedavg"), [*tools.SETTINGS, *settings], 1), folder, seed=5)
        return tools.digests(folder)

    return make


@pytest.mark.slow
def test_dvc_runs_it_and_then_only_what_has_changed(project, tools, by_run, fedsynth):
    folder, call = project
    first = tools.digests(folder / "run")
    assert first == by_run()
    assert fedsynth("audit", folder / "run")[0] == 0, "DVC left something in an outbox"
    assert not [path for path in (folder / ".dvc/cache").rglob("*") if path.is_file()], "copies of private data"
    tracked = call("git", "ls-files").split()
    assert "run/metrics/round-0001.json" in tracked and "dvc.lock" in tracked
    assert not [name for name in tracked if "/private/" in name or "/outbox/" in name]

    params = yaml.safe_load((folder / "params.yaml").read_text())
    params["aggregate"]["weights"] = "examples"
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    stated = call("dvc", "repro")
    assert set(re.findall(r"Running stage '([^']+)'", stated)) == {"round-0001-server", "evaluate"}
    assert set(re.findall(r"Stage '([^']+)' didn't change", stated)) == {
        "partition",
        "init-model",
        "round-0001-clients",
    }
    second, alone = tools.digests(folder / "run"), by_run("aggregate.weights=examples")
    # The server's ledger remembers that there was another model before.
    ledger = "server/private/egress.jsonl"
    assert {name for name in alone if second[name] != alone[name]} == {ledger} and second.keys() == alone.keys()
    assert len((folder / "run" / ledger).read_text().splitlines()) == 2
    changed = {name for name in first if first[name] != second[name]}
    assert "server/outbox/model-0001.safetensors" in changed
    assert not [name for name in changed if name.startswith(("clients/", "public/"))]

    params["seed"] = 6
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    planned = call("dvc", "status")
    assert "partition:" in planned and "init-model:" in planned, "another seed is another run"
    params["seed"] = 5
    (folder / "params.yaml").write_text(yaml.safe_dump(params))

    shown = json.loads(call("dvc", "metrics", "show", "--json"))[""]["data"]
    last = json.loads((folder / "run/metrics/round-0001.json").read_text())
    assert shown["run/metrics/round-0001.json"]["data"]["accuracy"] == last["accuracy"]
    diff = json.loads(call("dvc", "metrics", "diff", "--json"))
    old = json.loads(call("git", "show", "HEAD:run/metrics/round-0001.json"))
    assert diff["run/metrics/round-0001.json"]["loss"]["old"] == old["loss"] != last["loss"]
    call("dvc", "plots", "diff", "-o", "plots")
    page = (folder / "plots/index.html").read_text()
    assert "curve.csv" in page and "accuracy" in page


def test_a_step_that_takes_less_than_its_section_does_not_read_it():
    """SCAFFOLD encodes an update and a state: what holds for the one does not for the other."""
    recipe = change(load_recipe("scaffold"), ["partition.clients=2"], 1)
    files = dvc(recipe, seed=0, workers=1, out="run")
    assert yaml.safe_load(files["params.yaml"])["encode"] == {"method": "delta"}
    stages = yaml.safe_load(files["dvc.yaml"])["stages"]
    lines = [line for line in re.split(" && |'", stages["round-0001-clients"]["cmd"]) if line.startswith("encode")]
    assert {"--params params.yaml --method state" in line for line in lines if "state-0001" in line} == {True}
    assert {"--params params.yaml --force" in line for line in lines if "update-0001" in line} == {True}
    server = re.split(" && |'", stages["round-0001-server"]["cmd"])
    assert [("--params" in line, "--clients" in line) for line in server if line.startswith("aggregate")] == [
        (True, False), (False, True),
    ]  # fmt: skip


def test_seed_source_and_rounds_are_in_the_params_and_one_metric_is_final():
    files = dvc(change(load_recipe("fedavg"), [], 2), seed=5, workers=1, out="run")
    params, stages = yaml.safe_load(files["params.yaml"]), yaml.safe_load(files["dvc.yaml"])["stages"]
    assert (params["seed"], params["source"], params["rounds"]) == (5, "digits", 2)
    assert "--seed 5" not in files["dvc.yaml"] and "digits --" not in files["dvc.yaml"]
    assert files["dvc.yaml"].count("--seed ${seed}") == 12, "partition, the first model, five clients in two rounds"
    assert [list(metric) for metric in stages["evaluate"]["metrics"]] == [["run/metrics/round-0002.json"]]
    check, _ = stages["partition"]["cmd"]
    for rounds, code in ((2, 0), (3, 1)):
        done = subprocess.run(["sh", "-c", check.replace("${rounds}", str(rounds))], capture_output=True, text=True)
        assert done.returncode == code
        assert ("stages of 2 rounds, and params.yaml says 3" in done.stderr) == bool(code)


@pytest.mark.parametrize("name", ["fedssyn", "tofu", "fedlap-dp", "dp-fedsam", "fedavg-secure"])
def test_every_file_has_one_maker_that_comes_before_its_readers(name):
    files = dvc(change(load_recipe(name), [], 2), seed=0, workers=2, out="run")
    stages = yaml.safe_load(files["dvc.yaml"])["stages"]
    sections = yaml.safe_load(files["params.yaml"])
    made = set()
    for stage in stages.values():
        assert set(stage.get("deps", [])) <= made
        entries = [entry for part in ("outs", "metrics", "plots") for entry in stage.get(part, [])]
        assert all((about["cache"], about["persist"]) == (False, True) for entry in entries for about in entry.values())
        outputs = [key for entry in entries for key in entry]
        assert len(set(outputs)) == len(outputs) and made.isdisjoint(outputs)
        made |= set(outputs)
        assert set(stage.get("params", [])) <= sections.keys()
    assert any("model" in name for name in made)


def test_what_git_must_not_see_is_said_once(fedsynth, tmp_path):
    (tmp_path / ".gitignore").write_text("*.pyc\n")
    code, _, err = fedsynth("recipe", "fedavg", "--format", "dvc", "-o", tmp_path)
    assert code == 0 and "private data will be in run/" in err
    assert (tmp_path / ".gitignore").read_text() == "*.pyc\n"
    (tmp_path / ".gitignore").write_text("*.pyc\n/run/*\n!/run/metrics/\n")
    code, _, err = fedsynth("recipe", "fedavg", "--format", "dvc", "-o", tmp_path, "--force")
    assert (code, err) == (0, "")
