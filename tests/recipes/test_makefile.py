"""The Makefile runs again what depends on a parameter that changed, and nothing else: as `make -n` plans it."""

import os
import re
import shutil
import subprocess

import pytest

from stages.recipes.formats import invocations, makefile
from stages.recipes.recipe import change, load_recipe

WORD = re.compile(r"(partition|init-model|train-client|encode|aggregate|evaluate) (?=digits|--|run/)")


@pytest.fixture
def planned(tmp_path):
    """Writes the Makefile with some settings, and says which commands make would run; then their files are there."""

    def make(*settings):
        recipe = change(load_recipe("fedavg"), ["partition.clients=2", *settings], 1)
        (tmp_path / "Makefile").write_text(makefile(recipe, seed=0, workers=1, out="run"))
        done = subprocess.run(["make", "-n"], cwd=tmp_path, check=True, capture_output=True, text=True)
        for number, group in enumerate(invocations(recipe, 0)):
            for name in (name for step in group for name in step.outputs):
                path = tmp_path / "run" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
                os.utime(path, (1000 + number, 1000 + number))  # each after what it is made from
        for mark in (tmp_path / "run.made").iterdir():
            os.utime(mark, (500, 500))  # and all of them after the marks
        return sorted(WORD.findall(done.stdout))

    return make


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_a_changed_parameter_runs_its_commands_again(planned):
    """What depends on them follows when their files are new, which a plan alone does not show: see test_same_bytes."""
    training = ["encode", "encode", "train-client", "train-client"]
    assert planned() == sorted(["partition", "init-model", "aggregate", "evaluate", "evaluate", *training])
    assert planned() == [], "nothing changed"
    assert planned("train-client.learning_rate=0.05") == training
    assert planned("train-client.learning_rate=0.05") == []
    assert planned() == training, "and back again: the files are of the other value"
    found = planned("init-model.width=8")
    assert "init-model" in found and "partition" not in found
