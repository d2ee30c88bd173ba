"""A network of one's own over Flower: homes load it because their operators named it, and the terms pin its digest."""

import json

import pytest

from stages.federate import flower
from stages.plugins import VARIABLE, using
from stages.recipes.recipe import change, load_recipe

SETTINGS = ("partition.clients=2", "train-client.local_epochs=null", "train-client.local_steps=2", "receipts=true")
RECIPE = "extends: fedavg\nplugins: [my_net.py]\ninit-model: {arch: tied, width: null, depth: null}\n"


@pytest.fixture
def recipe(plugin):
    path = plugin.with_name("own.yaml")
    path.write_text(RECIPE)
    return path


def test_what_was_named_for_a_node_is_named_for_its_apps(plugin, tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with using([str(plugin)]):
        assert flower.environment(tmp_path)[VARIABLE] == str(plugin)
    assert flower.environment(tmp_path)[VARIABLE] == ""


@pytest.mark.slow
def test_a_signed_federation_of_real_processes_is_audited_and_replayed(
    recipe, plugin, helper, tmp_path, tmp_path_factory, monkeypatch, fedsynth
):
    homes, network_module = helper("federate/homes.py"), helper("federate/network.py")
    monkeypatch.setenv(VARIABLE, str(plugin))
    with using([]):
        chosen = change(load_recipe(str(recipe)), SETTINGS, 1)
        begun = homes.prepared(chosen, tmp_path / "begun", 3)
        terms = homes.terms_for(chosen, begun, seed=3, signed=True)
        folder = tmp_path_factory.mktemp("network")
        with network_module.Network(folder, helper("federate/certificates.py"), terms.clients) as network:
            for client, home in homes.split(begun, terms, tmp_path / "split").items():
                target = network.homes.get(client, network.server_home)
                for path in home.rglob("*"):
                    if path.is_file():
                        (target / path.relative_to(home)).parent.mkdir(parents=True, exist_ok=True)
                        (target / path.relative_to(home)).write_bytes(path.read_bytes())
                        (target / path.relative_to(home)).chmod(path.stat().st_mode)
            app = network.agree(terms)
            network.start_link()
            network.register()
            network.start_nodes()
            done = network.run(app, "--json")
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["rounds"] == 1
            assert (network.server_home / "server/outbox/model-0001.safetensors").exists()
            home = network.homes["00"]
            code, out, err = fedsynth("audit", home, "--replay", "--json")
            assert code == 0, out + err
            # Another file under the same name, at one home: that client refuses, and says both digests in its log.
            network.kill("01")
            before = plugin.read_text()
            plugin.write_text(before + "\n# changed\n")
            start = network_module.command(*network.supernode_words("01"), timeout=60)
            assert start.returncode != 0 and start.stderr.count("sha256:") >= 2
            plugin.write_text(before)
