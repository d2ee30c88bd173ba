"""Faults of the disk, cuts of power and kills, for every command (world.py); the slow forms are `make test-faults`."""

import shutil

import pytest
from loading import load

SMALL = (
    "keygen",
    "encode",
    "encode, replacing",
    "encode, DP",
    "encode, held",
    "aggregate",
    "aggregate, replacing",
    "train-client with a state",
)


@pytest.fixture(scope="session")
def seam(helper):
    """The module seam.py."""
    return helper("faults/seam.py")


@pytest.fixture(scope="session")
def world(helper):
    """The module world.py."""
    return helper("faults/world.py")


@pytest.fixture(scope="session")
def injector(helper):
    """The module injector.py."""
    return helper("faults/injector.py")


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """Forty digits, as a file."""
    from artifacts.metadata import Metadata
    from stages.data.dataset_images import dataset_params, save_dataset
    from stages.data.sources import load

    digits = load("digits").train.take(range(40))
    about = Metadata(kind="dataset", stage="ingest", custody="public", params=dataset_params(digits), versions={})
    path = tmp_path_factory.mktemp("source") / "digits.parquet"
    save_dataset(path, digits, about, force=False)
    return path


@pytest.fixture(scope="session")
def worlds(tmp_path_factory, world, injector, source):
    """All of them."""
    folder = tmp_path_factory.mktemp("worlds")
    world.build(folder, injector.succeed, source)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def small_worlds(tmp_path_factory, world, injector, source):
    """Enough for the commands of `SMALL`."""
    folder = tmp_path_factory.mktemp("small")
    wanted = ("partition", "init-model", "train-client", "encode", "aggregate")
    lines = [line for line in world.BUILT if line.startswith(wanted) and "--method" not in line]
    world.build(folder, injector.succeed, source, lines=lines, secure=(), federated=())
    return folder


@pytest.fixture
def bench(tmp_path, world, injector, seam):
    """The bench of a case, by its name."""

    def make(name, worlds):
        case = next(case for case in world.cases() if case.name == name)
        return injector.Bench(case, worlds, tmp_path, seam)

    return make


def pytest_generate_tests(metafunc):
    """`command`: those of `SMALL`, or by the marker `faults` all."""
    if "command" in metafunc.fixturenames:
        names = SMALL if metafunc.definition.get_closest_marker("faults") is None else _all_names()
        metafunc.parametrize("command", names)


def _all_names():
    return [case.name for case in load("faults/world.py").cases()]
