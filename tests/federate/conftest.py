"""Federations of real processes; see network.py. Started once for all tests that leave them as they found them."""

import pytest


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
    return agreed(change(load_recipe("fedavg"), net, 2), ("a", "b"), seed=7, wait=60.0)
