"""Federations by files of other kinds: secret draws, secure aggregation, phases that are found, a store by URL."""

import re
import shutil

import pytest

from stages.federate.step import step
from stages.identity import identity, roster
from stages.recipes.recipe import change, load_recipe

NET = ("init-model.arch=softmax", "init-model.width=null", "init-model.depth=null")
LOCAL = ("train-client.local_epochs=null", "train-client.local_steps=1", *NET)


def with_roster(folder):
    """Identities and a roster, where the recipe itself needs none."""
    names = []
    for key in sorted(folder.glob("*/private/server.key")) + sorted(folder.glob("clients/*/private/client.key")):
        names.append(key.with_name("identity.json"))
        identity(names[-1])
    roster(names, folder / "public/roster.json", federation="f")


@pytest.fixture
def federated(tmp_path, homes, run_on_one_worker):
    """A recipe both ways. Returns digests by `run`, by homes, and every parcel's size by exchange and direction."""

    def make(recipe, *, drop=None, compare=True, **said):
        begun = homes.prepared(recipe, tmp_path / "begun", 3)
        if not (begun / "public/roster.json").exists():
            with_roster(begun)
        by_run = tmp_path / "run"
        if compare:
            shutil.copytree(begun, by_run)
            run_on_one_worker(recipe, by_run, seed=3)
        terms = homes.terms_for(recipe, begun, seed=3, **said)
        split = homes.split(begun, terms, tmp_path / "homes")
        folder = tmp_path / "drop"
        folder.mkdir()
        sizes, log = {}, []
        for _ in range(60):
            done = []
            for home in split.values():
                done.append(step(home, drop or str(folder), log=log.append)[0])
                for path in folder.iterdir():
                    exchange, sender = re.search(r"\.(\d+)-(.+)-to-", path.name).groups()
                    found = sizes.setdefault((int(exchange), sender == "server"), {})
                    found[path.name] = path.stat().st_size
            if all(done):
                return homes.digests(by_run) if compare else {}, homes.united(split), sizes, log
        raise AssertionError(log)

    return make


@pytest.mark.slow
def test_nobody_sees_who_was_drawn(federated):
    """Under client-level DP the draw is secret: in each exchange everybody gets and sends one parcel of one size."""
    recipe = change(load_recipe("dp-fedavg"), (*LOCAL, "partition.clients=4", "participation=0.5"), 2)
    by_run, by_homes, sizes, _ = federated(recipe, least_clients=1)
    assert by_homes == by_run
    sent = [name for name in by_homes if "/outbox/message-" in name]
    assert 0 < len(sent) < 8, "some were drawn, and not all"
    for (exchange, _), found in sizes.items():
        assert len(found) == 4, exchange
        assert len(set(found.values())) == 1, exchange


@pytest.mark.slow
def test_secure_aggregation_ends_with_the_models_of_run(federated):
    recipe = change(load_recipe("fedavg-secure"), (*LOCAL, "partition.clients=3"), 2)
    by_run, by_homes, _, _ = federated(recipe)
    model = "server/outbox/model-0002.safetensors"
    assert by_homes[model] == by_run[model]


@pytest.mark.slow
def test_phases_that_are_found_on_the_way(federated):
    settings = (
        *LOCAL, "partition.clients=2", "encode.images=2", "encode.iterations=2", "encode.least_cosine=0",
        "switch1=plateau", "switch2=plateau", "plateau.patience=1", "plateau.gain=0.9", "plateau.full_rounds=1",
    )  # fmt: skip
    by_run, by_homes, _, _ = federated(change(load_recipe("tofu"), settings, 6))
    assert by_homes == by_run


@pytest.mark.slow
def test_synthetic_sets_and_signatures(federated):
    settings = (
        *LOCAL, "partition.clients=2", "train-generator.family=vae", "train-generator.steps=2", "synthesize.count=20",
    )  # fmt: skip
    by_run, by_homes, _, _ = federated(change(load_recipe("fedssyn"), settings, 1), signed=True)
    model = "server/outbox/model-0001.safetensors"
    assert by_homes[model] == by_run[model]
    assert any("synthetic.parquet.intoto" in name for name in by_homes)


@pytest.mark.slow
def test_a_drop_folder_by_url(federated):
    """fsspec's own store in memory; S3 differs in its driver alone (tests/storage)."""
    recipe = change(load_recipe("fedavg"), (*LOCAL, "partition.clients=2"), 1)
    by_run, by_homes, sizes, log = federated(recipe, drop="memory://drop/here")
    assert by_homes == by_run
    assert not sizes
    assert not [text for text in log if "refused" in text]
