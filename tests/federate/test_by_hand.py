"""Flower's own commands in place of ours: the app is an ordinary one."""

import json
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
def test_flwr_run_and_a_plain_supernode(make_network, helper, tmp_path, run_on_one_worker):
    homes = helper("federate/homes.py")
    recipe = change(load_recipe("fedavg"), SETTINGS, 1)
    begun = homes.prepared(recipe, tmp_path / "begun", 3)
    terms = homes.terms_for(recipe, begun, seed=3)
    with make_network(terms.clients) as network:
        homes.split(begun, terms, network.folder)
        app = network.agree(terms)
        network.start_link()
        network.register()
        network.start_nodes("00")
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

        own = f'client="01" home="{network.homes["01"]}"'
        plain = program(
            "flower-supernode", "--superlink", network.address, "--root-certificates", roots,
            "--auth-supernode-private-key", network.keys["01"], "--node-config", own,
            "--port", helper("federate/network.py").free_port(),
        )  # fmt: skip
        with subprocess.Popen(
            plain, env=environment(flower_home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as node:
            try:
                number = flwr("run", app)["run-id"]
                until = time.monotonic() + 200
                while not (status := flwr("list", "--run-id", number)["runs"][0]["status"]).startswith("finished"):
                    assert time.monotonic() < until, network.log("superlink")
                    time.sleep(1)
            finally:
                node.terminate()
        assert status == "finished:completed"
        made = homes.digests(network.server_home)
    run_on_one_worker(recipe, begun, seed=3)
    model = "server/outbox/model-0001.safetensors"
    assert made[model] == homes.digests(begun)[model]
