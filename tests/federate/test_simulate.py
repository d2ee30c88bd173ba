"""Flower's simulation engine with Ray: virtual nodes in one folder, whose files are those of `run`."""

import json
import os
import subprocess
import sys

import pytest

from stages.recipes.recipe import change, load_recipe

SETTINGS = (
    "init-model.arch=softmax", "init-model.width=null", "init-model.depth=null", "partition.clients=20",
    "participation=0.2", "train-client.local_epochs=1",
)  # fmt: skip


@pytest.fixture(scope="session")
def homes(helper):
    return helper("federate/homes.py")


@pytest.mark.slow
def test_the_files_are_those_of_run(tmp_path, homes, run_on_one_worker):
    """In a process of its own: Ray and Flower leave threads and handlers behind."""
    words = [sys.executable, "-c", "from fedsynth_cli.app import main; main()", "federate", "simulate", "fedavg"]
    words += [word for setting in SETTINGS for word in ("--set", setting)]
    words += ["--rounds", "2", "--seed", "3", "--cpus", "2", "-o", str(tmp_path / "ray"), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ, timeout=280)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["rounds"] == 2
    run_on_one_worker(change(load_recipe("fedavg"), SETTINGS, 2), tmp_path / "run", seed=3)
    assert homes.digests(tmp_path / "ray") == homes.digests(tmp_path / "run")
    asked = list((tmp_path / "ray/clients").glob("*/egress.jsonl"))
    assert len(asked) <= 8  # of twenty: those who were drawn, four a round
