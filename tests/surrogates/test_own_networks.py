"""Clients with networks of their own: sets made at fresh weights serve the model of the server, or of anybody."""

from pathlib import Path

import numpy as np
import pytest

from artifacts.errors import InputError, UsageError
from stages.init_model import init_model
from stages.plugins import using
from stages.recipes.plan import check, plan, planned_clients
from stages.recipes.recipe import change, load_recipe
from stages.registry import NETWORKS

NETS = {"00": "mlp:width=8", "01": "softmax", "02": "convnet:width=4,depth=1"}
FRESH = {"begin": "fresh", "radius_steps": None}
TRAINED = {"begin": "fresh", "strategy": "fixed", "radius": None, "server_steps": 3}


@pytest.fixture
def sets(federation):
    return [federation.encode(name, network=network, **FRESH) for name, network in NETS.items()]


def test_three_networks_one_server_model_and_one_client_who_only_receives(federation, sets, read):
    found = federation.aggregate(sets, strict=True, **TRAINED)
    assert found.stated["messages"] == 3
    assert [read(path).metadata.params["network"] for path in sets] == list(NETS.values())
    # A fourth has no data and sends nothing; with the sets it trains a network of its own.
    own = federation.root / "clients/03/public/model-0000.safetensors"
    params = NETWORKS.from_mapping({"arch": "mlp", "width": 5})
    init_model(federation.root / "public/some.parquet", own, params=params, seed=7)
    its = federation.aggregate(
        sets, strict=True, model=own, out=federation.root / "clients/03/public/model-0001.safetensors", **TRAINED
    )
    assert its.stated["messages"] == 3
    assert {t.shape for t in read(its.path).tensors.values()} == {t.shape for t in read(own).tensors.values()}


def test_the_set_depends_on_the_network(federation, read):
    images = {
        network: read(federation.encode("00", network=network, **FRESH)).tensors["images"]
        for network in ("mlp:width=8", "mlp:width=9")
    }
    assert np.abs(images["mlp:width=8"] - images["mlp:width=9"]).max() > 1e-6


def test_a_set_for_one_model_is_refused_for_another(federation):
    path = federation.encode("00")
    own = federation.root / "public/model-9999.safetensors"
    init_model(federation.root / "public/some.parquet", own, params=NETWORKS.from_mapping({"arch": "softmax"}), seed=7)
    with pytest.raises(InputError, match="another model"):
        federation.aggregate(
            [path], strict=True, model=own, out=federation.root / "server/outbox/model-0001.safetensors"
        )


@pytest.mark.parametrize(
    ("network", "said"),
    [("resnet", "--network resnet"), ("mlp:width", "name=value"), ("mlp:colour=3", "--network mlp:colour=3")],
)
def test_a_network_that_there_is_not_is_refused(federation, network, said):
    with pytest.raises(UsageError, match=said):
        federation.encode("00", network=network, **FRESH)


def test_a_network_of_a_plugin_is_refused_since_the_set_would_not_name_it(federation):
    plugin = Path(__file__).parents[1] / "plugins/kinds_of_networks.py"
    with using([str(plugin)]), pytest.raises(UsageError, match="the set would not say so"):
        federation.encode("00", network="own-no-bias", **FRESH)


def test_a_network_of_ones_own_goes_with_fresh_weights(federation):
    with pytest.raises(ValueError, match="--begin fresh"):
        federation.encode("00", network="softmax")


def test_a_recipe_gives_each_client_its_network():
    recipe = load_recipe("fedlap-networks")
    check(recipe)
    steps = [step for step in plan(recipe, planned_clients(recipe), 0) if step.command == "encode"]
    assert {step.owner: step.params["network"] for step in steps} == recipe.section("encode")["network"]
    with pytest.raises(UsageError, match=r"encode\.network names 00, but not client '01'"):
        plan(change(recipe, ['encode.network={"00": "softmax"}'], None), planned_clients(recipe), 0)
