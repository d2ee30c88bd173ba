"""Whole federations over Flower: a SuperLink and SuperNodes as processes, TLS and node keys on, a home for each."""

import shutil
import time

import pytest

from stages.recipes.recipe import change, load_recipe

CLIENTS = ("00", "01", "02")
NET = ("init-model.arch=softmax", "init-model.width=null", "init-model.depth=null", "partition.clients=3")
STEPS = ("train-client.local_epochs=null", "train-client.local_steps=2")
SURROGATE = ("encode.images_per_class=1", "encode.iterations=2")
MATCHING = (
    "encode.images_per_class=1", "encode.points=1", "encode.batches=1", "encode.image_steps=1", "encode.radius_steps=2",
)  # fmt: skip
FAMILIES = {
    "scaffold": (2, STEPS),
    "fedavg-secure": (1, STEPS),
    "dp-fedsam": (2, (*STEPS, "participation=0.7")),
    "tofu": (3, (*STEPS, "encode.images=2", "encode.iterations=2", "encode.least_cosine=0", "switch1=2", "switch2=3")),
    "fedlap": (1, MATCHING),
    "fedlap-dp": (1, ("encode.images_per_class=1", "encode.points=1", "encode.batches=1", "encode.image_steps=1")),
    "feddm": (1, SURROGATE),
    "feddm-dp": (1, SURROGATE),
    "fedssyn": (1, (*STEPS, "train-generator.family=vae", "train-generator.steps=2", "synthesize.count=20")),
}


@pytest.fixture(scope="session")
def network(make_network):
    """Three clients, known to a SuperLink that is up; tests leave it so."""
    with make_network(CLIENTS) as network:
        network.start_link()
        network.register()
        yield network


@pytest.fixture
def settle(network, homes, tmp_path):
    """Put data, keys and terms of a recipe into the homes, and start the nodes, each for the app of its terms.

    Returns the recipe, the app, and the run folder that all of it came from.
    """

    def make(name, rounds, settings, seed=3, other_terms=None, **said):
        recipe = change(load_recipe(name), (*NET, *settings), rounds)
        begun = homes.prepared(recipe, tmp_path / "begun", seed)
        terms = homes.terms_for(recipe, begun, seed=seed, **said)
        for client, home in homes.split(begun, terms, tmp_path / "split").items():
            refill(home, network.homes.get(client, network.server_home))
        app = network.agree(terms)
        if other_terms is not None:
            path = network.homes[other_terms] / "federation.yaml"
            path.write_text(path.read_text().replace("local_steps: 2", "local_steps: 3"))
        network.start_nodes()
        return recipe, app, begun

    yield make
    for client in set(CLIENTS) & set(network.services):
        network.kill(client)


def refill(source, home):
    """Exchange a home's files; what Flower keeps in it stays."""
    for path in sorted(home.rglob("*"), reverse=True):
        if ".flwr" not in path.relative_to(home).parts and path.is_file():
            path.unlink()
    shutil.copytree(source, home, dirs_exist_ok=True)


def together(network, homes):
    everybody = {"server": network.server_home, **network.homes}
    found = homes.united(everybody)
    return {name: digest for name, digest in found.items() if "/.flwr/" not in name and "federat" not in name}


def models(digests):
    return {n: d for n, d in digests.items() if ("/model-" in n or "metrics/" in n) and not n.endswith(".lineage.json")}


def by_run(recipe, begun, homes, run_on_one_worker, seed=3):
    run_on_one_worker(recipe, begun, seed=seed)
    return homes.digests(begun)


def until(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)


@pytest.mark.slow
def test_the_files_are_those_of_run(settle, network, homes, run_on_one_worker):
    recipe, app, begun = settle("fedavg", 1, (*STEPS, "encode.tell_examples=true"))
    done = network.run(app)
    assert done.returncode == 0, done.stderr
    assert together(network, homes) == by_run(recipe, begun, homes, run_on_one_worker)


@pytest.mark.slow
def test_a_client_killed_in_the_middle_of_a_round_and_started_again(settle, network, homes, run_on_one_worker):
    recipe, app, begun = settle("fedavg", 1, ("train-client.local_epochs=null", "train-client.local_steps=4000"))
    running = network.begin_run(app)
    received = network.homes["01"] / "public/model-0000.safetensors"
    until(received.exists)
    network.kill("01")
    assert not (network.homes["01"] / "clients/01/outbox/message-0001.safetensors").exists()
    network.start_nodes("01")
    assert running.process.wait(120) == 0, network.log("run")
    network.kill("run")
    assert together(network, homes) == by_run(recipe, begun, homes, run_on_one_worker)


@pytest.mark.slow
def test_the_server_killed_and_resumed(settle, network, homes, run_on_one_worker):
    """With it goes the SuperLink; its nodes find it again."""
    recipe, app, begun = settle("fedavg", 2, STEPS)
    network.begin_run(app)
    until((network.server_home / "server/outbox/model-0001.safetensors").exists)
    network.kill("superlink")
    network.kill("run")
    network.start_link()
    done = network.run(app)
    assert done.returncode == 0, done.stderr
    assert together(network, homes) == by_run(recipe, begun, homes, run_on_one_worker)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_of_recipes(name, settle, network, homes, run_on_one_worker):
    rounds, settings = FAMILIES[name]
    recipe, app, begun = settle(name, rounds, settings)
    done = network.run(app)
    assert done.returncode == 0, done.stderr
    federated, simulated = together(network, homes), by_run(recipe, begun, homes, run_on_one_worker)
    if recipe.secure:  # masks are drawn anew each time
        federated, simulated = models(federated), models(simulated)
    assert federated == simulated


@pytest.mark.slow
def test_a_client_that_never_answers(settle, network, homes):
    _, app, _ = settle("fedavg", 1, STEPS, wait=20.0, least_clients=2)
    network.kill("02")
    done = network.run(app)
    assert done.returncode == 0, done.stderr
    came = network.server_home.glob("clients/*/outbox/message-0001.safetensors")
    assert sorted(path.parent.parent.name for path in came) == ["00", "01"]


@pytest.mark.slow
def test_terms_that_differ(settle, network):
    _, app, _ = settle("fedavg", 1, STEPS, wait=20.0, other_terms="01")
    done = network.run(app)
    assert done.returncode == 3
    assert "01: no answer within 20 s (is it up, with these terms?)" in done.stderr
    assert "it was sent under other terms" in network.log("01")
    assert not list((network.homes["01"] / "clients/01/outbox").iterdir())
