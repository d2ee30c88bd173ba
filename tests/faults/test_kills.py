"""`run` is killed at random moments and started again, many times over: it ends with the bytes of one left alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = int(os.environ.get("KILLS", "1000"))  # of all three, with `make test-faults`
_SMALL = ["partition.clients=2", "init-model.arch=softmax", "init-model.width=null", "init-model.depth=null"]
RUNS = {
    "fedavg": ["--rounds", "2", "train-client.local_epochs=1"],
    "dp-sgd": ["--rounds", "2", "train-client.local_steps=2"],
    "fedssyn": [
        "--rounds", "1", "train-client.local_epochs=1", "train-generator.family=vae", "train-generator.steps=4",
        "synthesize.count=8",
    ],
}  # fmt: skip


def killed(recipe, kills, folder):
    words = [word for given in (*RUNS[recipe], *_SMALL) for word in (["--set", given] if "=" in given else [given])]
    script = Path(__file__).with_name("kills.py")
    command = [sys.executable, script, folder, str(kills), "0", recipe, *words, "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_run_killed_a_few_times_goes_on(tmp_path):
    assert killed("fedavg", 3, tmp_path)["kills"] == 3


@pytest.mark.faults
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("recipe", RUNS)
def test_a_run_killed_hundreds_of_times_goes_on(recipe, tmp_path, record_property):
    found = killed(recipe, -(-KILLS // 3), tmp_path)
    record_property("killed", found)
    assert found["finished"]
