"""What several test folders share: a small finished run, and the command line called in this process."""

import functools
import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

import hypothesis
import pytest

from fedsynth_cli.app import run as run_command_line

ROOT = Path(__file__).parent.parent

# How long an example takes depends on the machine and on who else uses it.
hypothesis.settings.register_profile("anywhere", deadline=None)
hypothesis.settings.load_profile("anywhere")


def pytest_configure(config):
    """Other keys, another order, a part of the suite: see tests/anywhere, and `make test-anywhere`."""
    if any(name.startswith("FEDSYNTH_TEST_") for name in os.environ):
        spec = importlib.util.spec_from_file_location("fedsynth_anywhere", ROOT / "tests/anywhere/plugin.py")
        plugin = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(plugin)
        config.pluginmanager.register(plugin)


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
def command_path(helper, tmp_path_factory):
    """A PATH for scripts, on which `fedsynth` starts at once."""
    with helper("command_server.py").CommandServer(tmp_path_factory.mktemp("commands")) as server:
        yield server.path


class _ThisProcess:
    """A pool whose one worker is this process, which has imported torch already: to start another takes seconds."""

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

    def run(recipe, out, *, seed, report=silent):
        return finish(recipe, out, begin(recipe, out, seed), _ThisProcess(), report)

    return run


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
    """A module that is no test, by its path from this folder, in which nothing is a package."""

    @functools.cache
    def load(path):
        file = ROOT / "tests" / path
        spec = importlib.util.spec_from_file_location(f"fedsynth_{file.stem}", file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def forge(helper):
    """The module tests/artifacts/forge.py: small artifacts, and hostile ones with their seals recomputed."""
    return helper("artifacts/forge.py")
