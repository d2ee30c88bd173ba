"""`tune`: every private trial is charged, their sum is stated, a budget that is too small refuses before the first."""

import json
from dataclasses import replace

import pytest

from artifacts.formats.plain_data import read_mapping
from artifacts.metadata import Metadata
from stages.charging.planned import planned_event
from stages.data.dataset_images import dataset_params, save_dataset
from stages.privacy.accountant import epsilon, planned
from stages.privacy.events import PrivacyEvent
from stages.recipes.perform import perform
from stages.recipes.plan import partition_step
from stages.recipes.recipe import change, load_recipe
from stages.registry import ENCODERS, GENERATORS, RULES

SOFTMAX = ["init-model.arch=softmax", "init-model.width=null", "init-model.depth=null"]
RECORDS = [
    *SOFTMAX, "partition.clients=2", "train-client.target_epsilon=null", "train-client.delta=null",
    "train-client.privacy_rounds=null", "train-client.noise_multiplier=1", "train-client.sampling_rate=0.1",
    "train-client.local_steps=3",
]  # fmt: skip
CLIENTS = [SOFTMAX[0], "partition.clients=3", "participation=0.5", "train-client.local_epochs=1"]
GRID = ["--grid", "train-client.learning_rate=1e-6,0.5"]


def words(name, settings, *more):
    return ["tune", name, *(word for setting in settings for word in ("--set", setting)), "--rounds", 1, *more]


def reserved(place):
    """The events of a participant's ledger that cost something."""
    lines = (json.loads(line) for line in (place / "private/spend.jsonl").read_text().splitlines())
    return [event for entry in lines for event in entry.get("events", [])]


pytestmark = pytest.mark.usefixtures("in_this_process")


def test_every_trial_is_charged_and_the_chosen_one_is_free_afterwards(tmp_path, fedsynth, fedsynth_json, monkeypatch):
    out = tmp_path / "tuned"
    found = fedsynth_json(*words("dp-sgd", RECORDS, *GRID, "--delta", 1e-5, "-o", out))
    first, second = (trial["accuracy"] for trial in found["trials"])
    assert found["chosen"] == {"train-client.learning_rate": 0.5}
    assert first < second

    # Both trials, of three steps each, are in the ledger, and what is stated is their composition.
    events = reserved(out / "clients/00")
    assert [event["steps"] for event in events] == [3, 3]
    (stated,) = found["spent"]
    together = epsilon([planned(sampling_rate=0.1, noise_multiplier=1.0, steps=6)], delta=1e-5).pld
    assert (stated["who"], stated["unit"]) == ("a client", "record")
    assert stated["epsilon"] == pytest.approx(together)
    assert (
        stated["epsilon"] > 1.05 * epsilon([planned(sampling_rate=0.1, noise_multiplier=1.0, steps=3)], delta=1e-5).pld
    )

    # What was tried is not tried again.
    with monkeypatch.context() as patched:
        patched.setattr("stages.recipes.tune.finish", lambda *_: pytest.fail("it was run again"))
        assert fedsynth_json(*words("dp-sgd", RECORDS, *GRID, "--delta", 1e-5, "-o", out)) == found

    # The file is a recipe; the run of it in the same folder is the trial again, for nothing.
    again = fedsynth_json("run", found["out"], "--workers", 1, "-o", out)
    assert again["accuracy"] == second
    assert reserved(out / "clients/00") == events
    assert fedsynth("audit", out)[0] == 0
    code, _, err = fedsynth(*words("dp-sgd", RECORDS, *GRID, "-o", out))
    assert (code, "holds a run" in err) == (2, True), err


def test_a_budget_that_does_not_allow_all_trials_refuses_before_the_first(tmp_path, fedsynth):
    """Two trials of three steps: enough for one of them, and not for both."""
    out = tmp_path / "tuned"
    perform(partition_step(change(load_recipe("dp-sgd"), RECORDS, 1), 0), out)
    once, twice = (
        epsilon([planned(sampling_rate=0.1, noise_multiplier=1.0, steps=steps)], delta=1e-5).pld for steps in (3, 6)
    )
    home = out / "clients/01"
    (home / "private/budget.yaml").write_text(f"epsilon: {(once + twice) / 2}\ndelta: 1e-5\nunit: record\n")
    code, _, err = fedsynth(*words("dp-sgd", RECORDS, *GRID, "-o", out))
    assert (code, "No trial was started" in err, "01/private/budget.yaml" in err) == (4, True, True), err
    assert not reserved(home) and not reserved(out / "clients/00")
    assert not (out / "tuned.yaml").exists()


@pytest.mark.slow
def test_only_the_first_trial_of_one_draw_of_clients_is_amplified(tmp_path, fedsynth_json):
    out = tmp_path / "tuned"
    grid = ["--grid", "aggregate.server_rate=1.0,0.5"]
    found = fedsynth_json(*words("dp-fedavg", CLIENTS, *grid, "--delta", 1e-5, "-o", out))
    assert [event["sampling_rate"] for event in reserved(out / "server")] == [0.5, 1.0]
    assert [row["who"] for row in found["spent"]] == ["the server"]
    both = PrivacyEvent.planned(
        unit="client", sampling_rate=1.0, noise_multiplier=0.95, clip_norm=1.0, steps=1, trust="server"
    )
    one = replace(both, id="1" * 64, mechanism="sampled-gaussian", sampling="poisson", sampling_rate=0.5)
    assert found["spent"][0]["epsilon"] == pytest.approx(epsilon([both, one], delta=1e-5).pld)


def test_planned_events_are_those_that_are_charged():
    noise = {"noise_multiplier": 2.0, "sampling_rate": 0.25, "batch_size": 4}
    generator = GENERATORS.from_mapping({"family": "vae", "steps": 7, **noise})
    surrogate = ENCODERS.from_mapping({"method": "feddm", **noise, "batch_size": None})
    share = ENCODERS.from_mapping({"method": "delta", "clip_norm": 1.0, "noise_multiplier": 0.5, "least_clients": 3})
    server = RULES.from_mapping(
        {"rule": "dp-mean", "clip_norm": 1.0, "noise_multiplier": 0.5, "sampling_rate": 0.5, "clients": 8}
    )
    found = [planned_event(params) for params in (generator, surrogate, share, server)]
    assert [(e.unit, e.steps, e.noise_multiplier, e.sampling_rate, e.trust) for e in found] == [
        ("record", 7, 2.0, 0.25, "nobody"), ("record", surrogate.accesses, 2.0, 0.25, "nobody"),
        ("client", 1, 0.5, 1.0, "aggregate"), ("client", 1, 0.5, 0.5, "server"),
    ]  # fmt: skip
    assert planned_event(ENCODERS.from_mapping({"method": "delta"})) is None


@pytest.mark.slow
def test_a_public_dataset_costs_nothing(tmp_path, fedsynth_json, digits):
    out = tmp_path / "tuned"
    proxy = tmp_path / "public/proxy.parquet"
    about = Metadata(kind="dataset", stage="ingest", custody="public", versions={}, params=dataset_params(digits))
    save_dataset(proxy, digits, about)
    found = fedsynth_json(*words("dp-sgd", RECORDS, *GRID, "--public", proxy, "--delta", 1e-5, "-o", out))
    assert found["chosen"] == {"train-client.learning_rate": 0.5}
    assert found["spent"] is None
    assert not (out / "clients").exists()
    tuned = read_mapping(out / "tuned.yaml")
    assert tuned["partition"]["source"] == "digits", "that of the recipe, not the proxy"
    assert tuned["train-client"]["learning_rate"] == 0.5


@pytest.mark.parametrize(
    ("name", "grid", "said"),
    [
        ("dp-sgd", "seed=0,1", "same clients"),
        ("dp-sgd", "partition.alpha=0.1,1", "same clients"),
        ("dp-fedsam-secure", "train-client.learning_rate=0.1,1", "--public"),
        ("fedavg", "train-client.learning_rate=0.1,1", "adds no noise"),
    ],
)
def test_what_cannot_be_tuned(tmp_path, fedsynth, name, grid, said):
    code, _, err = fedsynth("tune", name, "--grid", grid, "-o", tmp_path / "tuned")
    assert (code, said in err) == (2, True), err
