"""`train-client --together` under `run`: several steps at once, the files of single ones, and a replay that agrees."""

import hashlib

import numpy as np
import pytest

from artifacts.formats import tensors_file
from stages.recipes import perform, runner
from stages.recipes.recipe import change, load_recipe
from stages.registry import ALGORITHMS
from stages.train_client import train_client

SETTINGS = ("partition.clients=6", "init-model.arch=softmax", "init-model.width=null", "init-model.depth=null",
            "train-client.local_epochs=1", "train-client.together=4")  # fmt: skip


def digests(root):
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def by_four(softmax_run):
    return softmax_run("fedavg", 2, *SETTINGS[:1], *SETTINGS[4:])


def test_the_files_are_those_of_single_calls(by_four, run_on_one_worker, tmp_path, monkeypatch):
    counts = []

    def single(steps, root):
        counts.append(len(steps))
        return [perform.perform(step, root) for step in steps]

    monkeypatch.setattr(runner, "perform_several", single)
    alone = tmp_path / "alone"
    run_on_one_worker(change(load_recipe("fedavg"), SETTINGS, 2), alone, seed=0)
    assert counts.count(4) == 2 and counts.count(2) == 2  # six clients in two rounds
    assert digests(alone) == digests(by_four)


def test_a_file_says_that_it_was_made_so(by_four):
    update = tensors_file.read(by_four / "clients/02/private/update-0001.safetensors")
    assert update.metadata.params["together"] == 4


def test_it_is_nearly_what_the_client_would_get_alone(by_four, tmp_path):
    made = tensors_file.read(by_four / "clients/02/private/update-0001.safetensors")
    params = ALGORITHMS.from_mapping({k: v for k, v in made.metadata.params.items() if k != "together"})
    model, data = by_four / "public/model-0000.safetensors", by_four / "clients/02/private/data.parquet"
    out = tmp_path / "clients/02/private/update.safetensors"
    train_client(model, [data], out, params=params, seed=made.metadata.seed)
    for name, tensor in tensors_file.read(out).tensors.items():
        np.testing.assert_allclose(made.tensors[name], tensor, rtol=1e-3, atol=1e-6)


def test_an_audit_makes_the_files_again(by_four, fedsynth_json):
    found = fedsynth_json("audit", by_four, "--replay")
    assert found["verdict"].startswith("PASS") and "replay: 14 identical" in found["verdict"]


def test_a_network_that_cannot_be_stacked_is_refused(by_four, refused, fedsynth_json, tmp_path):
    model = tmp_path / "public/model.safetensors"
    model.parent.mkdir()
    test = by_four / "public/test.parquet"
    fedsynth_json("init-model", "--like", test, "-o", model, "--arch", "torchvision:resnet18")
    out = tmp_path / "clients/02/private/update.safetensors"
    out.parent.mkdir(parents=True)
    data = by_four / "clients/02/private/data.parquet"
    error = refused(tmp_path, "train-client", model, data, "-o", out, "--together", "4", code=2)
    assert "--together" in error and "is a batch norm" in error
