"""Flower's own commands in place of ours: the app is an ordinary one."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stages.federate.flower import environment
from stages.recipes.recipe import change, load_recipe

SETTINGS = (
    "init-model.arch=softmax", "init-model.width=null", "init-model.depth=null", "partition.clients=2",
    "train-client.local_epochs=null", "train-client.local_steps=2",
)  # fmt: skip


@pytest.mark.slow
def test_flwr_run(make_network, helper, tmp_path, run_on_one_worker):
    homes = helper("federate/homes.py")
    recipe = change(load_recipe("fedavg"), SETTINGS, 1)
    begun = homes.prepared(recipe, tmp_path / "begun", 3)
    terms = homes.terms_for(recipe, begun, seed=3)
    with make_network(terms.clients) as network:
        for name, home in homes.split(begun, terms, tmp_path / "split").items():
            shutil.copytree(home, network.homes.get(name, network.server_home), dirs_exist_ok=True)
        app = network.agree(terms)
        network.start_link()
        network.register()
        network.start_nodes()
        flower_home = network.folder / "flower"
        flower_home.mkdir()
        roots = network.authority.certificate
        (flower_home / "config.toml").write_text(
            f'[superlink]\ndefault = "x"\n[superlink.x]\naddress = "{network.address}"\nroot-certificates = "{roots}"\n'
        )

        def program(name, *words):
            return [Path(sys.executable).with_name(name), *map(str, words)]

        def flwr(*words):
            done = subprocess.run(
                program("flwr", *words, "--format", "json"),
                env=environment(flower_home),
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return json.loads(done.stdout)

        number = flwr("run", app)["run-id"]
        until = time.monotonic() + 200
        while not (status := flwr("list", "--run-id", number)["runs"][0]["status"]).startswith("finished"):
            assert time.monotonic() < until, network.log("superlink")
            time.sleep(1)
        assert status == "finished:completed"
        made = homes.digests(network.server_home)
    run_on_one_worker(recipe, begun, seed=3)
    model = "server/outbox/model-0001.safetensors"
    assert made[model] == homes.digests(begun)[model]
