"""What several test folders share: a small finished run, and the command line called in this process."""

import contextlib
import functools
import json
import os
import shutil
import sys
from pathlib import Path

import command_server
import forge
import hypothesis
import pytest
import refusing
from loading import load

from fedsynth_cli.app import run as run_command_line

ROOT = Path(__file__).parent.parent

# How long an example takes depends on the machine and on who else uses it.
hypothesis.settings.register_profile("anywhere", deadline=None)
hypothesis.settings.load_profile("anywhere")


def pytest_configure(config):
    """Other keys, another order, a part of the suite: see tests/anywhere, and `make test-anywhere`."""
    if any(name.startswith("FEDSYNTH_TEST_") for name in os.environ):
        config.pluginmanager.register(load("anywhere/plugin.py"))


@pytest.fixture(autouse=True)
def _nothing_remembered(tmp_path_factory, monkeypatch):
    """Tests work on copies of one client's folder, and none of them in the state of the user who runs them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def fedsynth(capsys):
    """Call the command line; returns (exit code, stdout, stderr)."""

    def call(*arguments):
        capsys.readouterr()
        code = run_command_line([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def fedsynth_json(fedsynth):
    """Call a command that must succeed, with --json; returns the object."""

    def call(*arguments):
        code, out, err = fedsynth(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    return call


@pytest.fixture(scope="session")
def command_path(tmp_path_factory):
    """A PATH for scripts, on which `fedsynth` starts at once."""
    with command_server.CommandServer(tmp_path_factory.mktemp("commands")) as server:
        yield server.path


class _ThisProcess:
    """A pool whose one worker is this process, which has imported torch already: to start another takes seconds."""

    count = 1

    def __init__(self):
        self.task, self.known, self._result = None, set(), None

    def idle(self, _most=None):
        return [self]

    def start(self, label, task):
        function, arguments = task
        self.task, self._result = label, function(*arguments)

    def next_finished(self):
        return self

    def finish(self):
        self.task = None
        return self._result


@pytest.fixture(scope="session")
def run_on_one_worker():
    """`run` without processes of its own; those are tested in tests/recipes."""
    from stages.execution.progress import silent
    from stages.recipes.runner import begin, finish
    from stages.recipes.sweep import finish_sweep, points

    def run(recipe, out, *, seed, report=silent):
        if recipe.sweep:
            return finish_sweep(recipe, out, points(recipe, seed), _ThisProcess(), report)
        return finish(recipe, out, begin(recipe, out, seed), _ThisProcess(), report)

    return run


@pytest.fixture
def in_this_process(monkeypatch):
    """`run` and `tune` of the command line without processes of their own."""
    import stages.recipes.runner
    import stages.recipes.tune

    for module in (stages.recipes.runner, stages.recipes.tune):
        monkeypatch.setattr(module, "Workers", lambda *_: contextlib.nullcontext(_ThisProcess()))


@pytest.fixture(scope="session")
def softmax_run(tmp_path_factory, run_on_one_worker):
    """Run a recipe with a softmax model and these settings; returns the folder, which nobody changes."""
    from stages.recipes.recipe import change, load_recipe

    def make(name, rounds, *settings, seed=0, label=None):
        folder = tmp_path_factory.mktemp("session") / (label or name)
        net = ["init-model.arch=softmax", "init-model.width=null", "init-model.depth=null"]
        run_on_one_worker(change(load_recipe(name), [*net, *settings], rounds), folder, seed=seed)
        return folder

    return make


@pytest.fixture(scope="session")
def finished_run(softmax_run):
    """Three clients, two rounds: made once, never changed."""
    settings = ["partition.clients=3", "train-client.local_epochs=1", "encode.tell_examples=true"]
    return softmax_run("fedavg", 2, *settings, seed=7, label="run")


@pytest.fixture
def run_copy(finished_run, tmp_path):
    """A copy of the finished run to damage."""
    target = tmp_path / "run"
    shutil.copytree(finished_run, target)
    return target


@pytest.fixture(scope="session")
def helper():
    """A module that is no test, by its path from this folder."""
    return load


@pytest.fixture(scope="session", name="forge")
def forging():
    """The module tests/support/forge.py: small artifacts, and hostile ones with their seals recomputed."""
    return forge


@pytest.fixture
def refused(fedsynth):
    """Call a command that must be refused: refused(FOLDER, *ARGUMENTS, code=3, said=…)."""
    return functools.partial(refusing.refused, fedsynth)


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """As in the stages: two threads on a shared machine are several times slower, and other bits."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session")
def digits():
    from stages.data.sources import load as load_source

    return load_source("digits").train
