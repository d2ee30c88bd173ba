"""A federation in separate homes ends with the files of `run`, byte for byte, for each family of recipes.

Here tasks and answers go from hand to hand; tests/federate/test_silos.py sends them over Flower.
"""

import shutil

import pytest

from stages.federate.server import serve
from stages.recipes.recipe import change, load_recipe

NET = ("init-model.arch=softmax", "init-model.width=null", "init-model.depth=null")
LOCAL = ("train-client.local_epochs=null", "train-client.local_steps=2", *NET)
PROXY = ("encode.images=2", "encode.iterations=2", "encode.least_cosine=0")
CASES = {
    "scaffold": (2, (*LOCAL, "partition.clients=3")),
    "fednova": (2, (*LOCAL, "partition.clients=3", "participation=0.7")),
    "feddyn": (2, (*LOCAL, "partition.clients=3")),
    "dp-fedsam": (3, (*LOCAL, "partition.clients=4", "participation=0.5")),
    "dp-sgd": (
        2,
        (
            *NET, "partition.clients=2", "train-client.noise_multiplier=1", "train-client.target_epsilon=null",
            "train-client.delta=null", "train-client.privacy_rounds=null", "train-client.local_steps=2",
        ),
    ),
    "tofu": (
        3,
        (*LOCAL, *PROXY, "partition.clients=3", "switch1=2", "switch2=3"),
    ),
    "fedlap": (
        2,
        (
            *NET, "partition.clients=3", "encode.images_per_class=1", "encode.points=1", "encode.batches=1",
            "encode.image_steps=1", "encode.radius_steps=2",
        ),
    ),
    "feddm": (2, (*NET, "partition.clients=3", "encode.images_per_class=1", "encode.iterations=2")),
    "fedssyn": (
        1,
        (
            *LOCAL, "partition.clients=2", "train-generator.family=vae", "train-generator.steps=2",
            "synthesize.count=20",
        ),
    ),
}  # fmt: skip


@pytest.fixture
def side_by_side(tmp_path, homes, run_on_one_worker):
    """Run a recipe both ways from the same data and keys; returns the digests of both, and the channel."""

    def make(recipe, seed=3, **said):
        begun = homes.prepared(recipe, tmp_path / "begun", seed)
        by_run = tmp_path / "run"
        shutil.copytree(begun, by_run)
        run_on_one_worker(recipe, by_run, seed=seed)
        terms = homes.terms_for(recipe, begun, seed=seed, **said)
        split = homes.split(begun, terms, tmp_path / "homes")
        channel = homes.ByHand(split)
        summary = serve(terms, split["server"], channel, log=lambda text: None)
        return homes.digests(by_run), homes.united(split), channel, summary

    return make


ALIKE = (
    "fednova",
    "feddyn",
    "fedlap",
    "scaffold",
    "dp-fedsam",
    "dp-sgd",
)  # others, or other tests, go the way of their files


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in ALIKE)) for n in CASES])
def test_the_homes_hold_what_run_would_have_written(name, side_by_side):
    rounds, settings = CASES[name]
    by_run, by_homes, channel, summary = side_by_side(change(load_recipe(name), settings, rounds))
    assert by_homes == by_run
    assert summary["rounds"] == rounds
    assert all(task.targets for task in channel.asked)


@pytest.mark.slow
def test_secure_aggregation_ends_with_the_models_of_run(side_by_side):
    """Masks are drawn anew, and files name what they were made of; the models and what they do are the same."""
    recipe = change(load_recipe("fedavg-secure"), (*LOCAL, "partition.clients=3"), 2)
    by_run, by_homes, _, _ = side_by_side(recipe)
    assert by_homes.keys() == by_run.keys()
    same = {name for name in by_run if "/model-" in name or "metrics/" in name or "/private/data" in name}
    same -= {name for name in same if name.endswith(".lineage.json")}
    assert "server/outbox/model-0002.safetensors" in same
    assert {name: by_homes[name] for name in same} == {name: by_run[name] for name in same}


def test_receipts_and_signatures(side_by_side):
    recipe = change(load_recipe("fedavg"), (*LOCAL, "partition.clients=2", "receipts=true"), 2)
    by_run, by_homes, _, _ = side_by_side(recipe)
    assert by_homes == by_run


def test_phases_that_are_found_on_the_way(side_by_side):
    settings = (
        *LOCAL, "partition.clients=2", *PROXY, "switch1=plateau", "switch2=plateau",
        "plateau.patience=1", "plateau.gain=0.9", "plateau.full_rounds=1",
    )  # fmt: skip
    by_run, by_homes, _, _ = side_by_side(change(load_recipe("tofu"), settings, 6))
    assert by_homes == by_run
    assert any("message-" in name for name in by_run)


def test_no_client_is_sent_more_than_it_needs(side_by_side):
    """Each file of the server goes to a client once, and nothing of another client ever does."""
    recipe = change(load_recipe("scaffold"), (*LOCAL, "partition.clients=2"), 3)
    _, _, channel, _ = side_by_side(recipe)
    for client in ("00", "01"):
        sent = [parcel.name for task in channel.asked if task.client == client for parcel in task.parcels]
        assert len(sent) == len(set(sent))
        assert all(name.startswith(("server/outbox/", "public/model-")) for name in sent)
