"""Federations in homes of their own (homes.py), and of real processes (network.py).

Processes are started once for all tests that leave them as they found them.
"""

import pytest

SETTINGS = (
    "init-model.arch=softmax", "init-model.width=null", "init-model.depth=null", "partition.clients=3",
    "train-client.local_epochs=null", "train-client.local_steps=1",
)  # fmt: skip


@pytest.fixture(scope="session")
def homes(helper):
    """The module homes.py."""
    return helper("federate/homes.py")


@pytest.fixture(scope="session")
def begun(tmp_path_factory, homes):
    """Data divided between 00, 01 and 02, identities and roster carried around; made once."""
    from stages.recipes.recipe import change, load_recipe

    recipe = change(load_recipe("fedavg"), (*SETTINGS, "receipts=true"), 2)
    return homes.prepared(recipe, tmp_path_factory.mktemp("faults") / "begun", 5)


@pytest.fixture
def federation(begun, tmp_path, homes):
    """Homes for a recipe by these terms."""
    from stages.recipes.recipe import change, load_recipe

    def make(name="fedavg", rounds=2, settings=(), **said):
        recipe = change(load_recipe(name), (*SETTINGS, *settings), rounds)
        terms = homes.terms_for(recipe, begun, seed=5, **{"wait": 1.0} | said)
        return terms, homes.split(begun, terms, tmp_path / "homes")

    return make


@pytest.fixture(scope="session")
def certificates(helper):
    """The module certificates.py: CAs, certificates and node keys."""
    return helper("federate/certificates.py")


@pytest.fixture(scope="session")
def network_module(helper):
    """The module network.py."""
    return helper("federate/network.py")


@pytest.fixture(scope="session")
def make_network(network_module, certificates, tmp_path_factory):
    """Homes, keys and certificates of a new federation, nothing started: `with make_network(clients) as network`."""
    return lambda clients=("a", "b"): network_module.Network(tmp_path_factory.mktemp("network"), certificates, clients)


@pytest.fixture(scope="session")
def linked(make_network):
    """A network whose SuperLink is up and knows the node of `a`; `b` is a stranger to it. No node is started."""
    with make_network() as network:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FLWR_TELEMETRY_ENABLED", "1")  # what a user may have set must not count
            patch.setenv("FLWR_TELEMETRY_LOGGING", "1")
            network.start_link()
        network.register("a")
        yield network


@pytest.fixture(scope="session")
def small_terms():
    """Terms of a small federation with two clients, `a` and `b`."""
    from stages.federate.terms import agreed
    from stages.recipes.recipe import change, load_recipe

    net = ["init-model.arch=softmax", "init-model.width=null", "init-model.depth=null", "train-client.local_epochs=1"]
    return agreed(change(load_recipe("fedavg"), net, 2), ("a", "b"), seed=7, wait=60.0, most_bytes=2**28)
