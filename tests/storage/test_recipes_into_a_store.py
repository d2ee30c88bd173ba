"""Recipes with ledgers and states of their own, into a store that fails again and again: the bytes of a local run."""

import pytest

from artifacts.errors import InputError
from fedsynth_cli.urls import run_folder
from stages.execution.progress import silent
from stages.recipes.recipe import change, load_recipe

pytestmark = pytest.mark.slow
NET = ["init-model.arch=softmax", "init-model.width=null", "init-model.depth=null"]


def files(folder):
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".key"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def failing_after(count, place, server):
    """A fault: only so many more objects can be put."""
    left = [count]

    def fault(environ, start_response):
        if environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].startswith(f"/bucket/{place}/"):
            left[0] -= 1
            if left[0] < 0:
                return server.denied(environ, start_response)
        return None

    return fault


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("dp-sgd", ["partition.clients=2"]),
        ("dp-fedavg", ["partition.clients=4"]),
        ("scaffold", ["partition.clients=2", "train-client.local_epochs=1"]),
    ],
)
def test_whatever_fails_the_end_is_the_same(name, settings, run_on_one_worker, server, objects, tmp_path, fedsynth):
    recipe, url = change(load_recipe(name), [*NET, *settings], 2), f"s3://bucket/{name}"
    run_on_one_worker(recipe, tmp_path / "run", seed=1)
    for count in (4, 6, 8, 10, 1000):
        fault, fails = failing_after(count, name, server), False
        with server.failing(fault):
            try:
                with run_folder(url, secure=False) as (folder, passed):
                    run_on_one_worker(recipe, folder, seed=1, report=passed(silent))
            except InputError:
                fails = True
        assert fails == (count < 1000)
        code, _, err = fedsynth("audit", url)
        assert code == 0, err
    assert objects(f"{name}/") == files(tmp_path / "run")


def test_a_sweep(objects, fedsynth, tmp_path):
    words = ["run", "fedavg", "--sweep", "seed=0,1", "--rounds", 1, "--workers", 1, "--set", "partition.clients=2"]
    words += [word for setting in [*NET, "train-client.local_epochs=1"] for word in ("--set", setting)]
    for out in (tmp_path / "run", "s3://bucket/sweep"):
        code, _, err = fedsynth(*words, "-o", out)
        assert code == 0, err
    assert objects("sweep/") == files(tmp_path / "run")
