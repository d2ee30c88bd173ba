"""One recipe, four ways to run it: the same files, byte for byte."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stages.recipes.recipe import change, load_recipe

COLD = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # each `fedsynth` starts from nothing
# SCAFFOLD with some of the clients: every kind of file, and clients whose last round is not the one before.
RECIPE = "scaffold"
SETTINGS = {
    "partition.clients": "3",
    "participation": "0.67",
    "init-model.arch": "softmax",
    "init-model.width": "null",
    "init-model.depth": "null",
    "train-client.local_epochs": "1",
}
SMALL = ["--rounds", "2", "--seed", "3", *(w for k, v in SETTINGS.items() for w in ("--set", f"{k}={v}"))]


def shell(command, cwd, path, **environment):
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | {"PATH": path, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def digests(folder):
    """Every file of a run by its SHA-256, but for the record of the recipe, which only `run` writes."""
    files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    files.pop("simulation/recipe.yaml", None)
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sorted(files.items())}


@pytest.fixture(scope="module")
def by_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("by-run")
    shell(["fedsynth", "run", RECIPE, *SMALL, "--workers", "2", "-o", "run"], folder, COLD)
    return digests(folder / "run")


def test_the_run_holds_what_the_design_says(by_run):
    names = set(by_run)
    assert {"public/test.parquet", "public/model-0000.safetensors", "server/outbox/model-0002.safetensors"} <= names
    assert {"metrics/curve.csv", "metrics/curve.png", "metrics/confusion.png", "simulation/partition.png"} <= names
    for kind in ("message", "state"):  # two of three clients, in each of two rounds
        assert len([name for name in names if f"/outbox/{kind}-" in name and name.startswith("clients/")]) == 4
    assert "server/outbox/state-0002.safetensors" in names


@pytest.mark.slow
def test_one_worker_gives_the_same_bytes(by_run, tmp_path):
    # A different hash seed, to show that no set or dict order gets into a file.
    shell(["fedsynth", "run", RECIPE, *SMALL, "--workers", "1", "-o", "run"], tmp_path, COLD, PYTHONHASHSEED="12345")
    assert digests(tmp_path / "run") == by_run


@pytest.mark.slow
def test_the_shell_script_gives_the_same_bytes_even_twice(by_run, tmp_path, command_path):
    shell(["fedsynth", "recipe", RECIPE, *SMALL, "--format", "sh", "-o", "pipeline.sh"], tmp_path, command_path)
    shell(["./pipeline.sh", "a folder"], tmp_path, command_path)
    assert digests(tmp_path / "a folder") == by_run
    shell(["./pipeline.sh", "a folder"], tmp_path, command_path)
    assert digests(tmp_path / "a folder") == by_run, "a second run added to a ledger or changed a file"


@pytest.mark.slow
def test_make_gives_the_same_bytes_and_then_has_nothing_to_do(by_run, tmp_path, command_path):
    shell(["fedsynth", "recipe", RECIPE, *SMALL, "--format", "make", "-o", "Makefile"], tmp_path, command_path)
    shell(["make", "-j2"], tmp_path, command_path)
    assert digests(tmp_path / "run") == by_run
    assert "Nothing to be done" in shell(["make"], tmp_path, command_path).stdout
    lost = tmp_path / "run/server/outbox/model-0001.safetensors"
    lost.unlink()
    shell(["make"], tmp_path, command_path)
    assert digests(tmp_path / "run") == by_run
    # A changed parameter changes the models that depend on it, and back again they are what they were.
    other = ["--set", "train-client.learning_rate=0.01"]
    for settings, same in ((other, False), ([], True)):
        recipe = ["fedsynth", "recipe", RECIPE, *SMALL, *settings, "--format", "make", "--force", "-o", "Makefile"]
        shell(recipe, tmp_path, command_path)
        shell(["make"], tmp_path, command_path)
        model = "server/outbox/model-0002.safetensors"
        assert (digests(tmp_path / "run")[model] == by_run[model]) == same
        assert "Nothing to be done" in shell(["make"], tmp_path, command_path).stdout


@pytest.mark.slow
def test_another_seed_gives_other_bytes(by_run, tmp_path, run_on_one_worker):
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    run_on_one_worker(change(load_recipe(RECIPE), settings, 2), tmp_path / "run", seed=4)
    found = digests(tmp_path / "run")
    same = {name for name in by_run.keys() & found.keys() if by_run[name] == found[name]}
    assert same == set(), f"equal in spite of another seed: {same}"
