"""Neighbouring data, one record or client apart: all that leaves is alike, as `audit --neighbours` compares it.

The mechanism releases noise of a fixed stream alone there, so every byte that leaves with an ε must be equal. By
default one small recipe, in which one planted difference is all that is found; in the slow tests all recipes that
promise an ε.
"""

import io
import json
import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import stages.methods.feddm as feddm
import stages.privacy.mechanism as mechanism_module
import stages.train_client as train_client_stage
from stages.methods.merf import Merf
from stages.privacy.mechanism import GaussianMechanism, noise_alone, noisy_mean
from stages.recipes.layers import names
from stages.recipes.recipe import change, load_recipe
from stages.trials.neighbours import compare_neighbours

SOFTMAX = ["init-model.arch=softmax", "init-model.width=null", "init-model.depth=null"]
MLP = ["init-model.arch=mlp", "init-model.depth=null"]
SMALL = {"dp-sgd": SOFTMAX, "dp-fedavg": SOFTMAX[:1], "feddm-dp": MLP}
# The noise is given: to look for the noise of a target ε takes longer than all else.
NOISE = [
    "train-client.noise_multiplier=1", "train-client.target_epsilon=null", "train-client.delta=null",
    "train-client.privacy_rounds=null",
]  # fmt: skip
WHOLE = [
    "dp-fedavg", "dp-fedavg-blur", "dp-fedavg-blurs", "dp-fedsam", "dp-fedsam-moved", "dp-fedsam-secure",
    "dp-fedsam-topk", "dp-sgd", "dp-sgd-fedprox", "dp-sgd-scaffold", "fed-smp-moved", "fed-smp-randk", "fed-smp-topk",
    "feddm-dp", "fedlap-dp", "fedlap-dp-last", "fedlap-dp-one-client", "fedssyn-dp", "fedssyn-dp-steps", "fedssyn-merf",
    "psg",
]  # fmt: skip
RECORDS = [
    "one record more", "a record of a class that nobody had", "an outlier", "an image that cannot be decoded",
    "no records at all", "a gradient that is not finite",
]  # fmt: skip
PEOPLE = [*RECORDS[:3], "one person more, with several records", *RECORDS[3:]]
CLIENTS = [*RECORDS[:5], "an update that is not finite", "one client less"]


SMALLEST = [word for setting in (*SOFTMAX, "partition.clients=1", "rounds=1") for word in ("--set", setting)]


def compared(name, folder, settings=(), rounds=None):
    return compare_neighbours(change(load_recipe(name), list(settings), rounds), folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_one_record_or_client_more_changes_noised_values_alone(tmp_path, name):
    found = compared(name, tmp_path, [*SMALL[name], "partition.clients=2"], 1)
    assert found.differences == []
    assert found.neighbours == (CLIENTS if found.units == ["client"] else RECORDS)
    assert found.files >= len(found.neighbours) - 1, "something leaves with an ε; of huge weights the form is compared"


@pytest.fixture
def scans(tmp_path):
    """Records of people, three each."""
    rng, rows = np.random.default_rng(0), []
    for number in range(120):
        sink = io.BytesIO()
        Image.fromarray(rng.integers(0, 255, (8, 8), np.uint8)).save(sink, "PNG")
        picture = {"bytes": sink.getvalue(), "path": None}
        rows.append({"image": picture, "label": number % 3, "patient_id": f"p{number // 3}"})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "scans.parquet")
    return ["partition.unit_column=patient_id", f"partition.source={tmp_path / 'scans.parquet'}", "partition.clients=2"]


def of_people(command):
    return [f"{command}.{word}" for word in ("unit=person", "target_epsilon=null", "delta=null", "noise_multiplier=1")]


PEOPLES = {
    "dp-sgd": [*SOFTMAX, *of_people("train-client"), "train-client.privacy_rounds=null"],
    "feddm-dp": [*MLP, *of_people("encode"), "encode.privacy_rounds=null"],
    "fedlap-dp": [*SOFTMAX, *of_people("encode"), "encode.privacy_rounds=null"],
    "fedssyn-dp": of_people("train-generator"),
    "fedssyn-merf": of_people("train-generator"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PEOPLES)
def test_one_person_more_changes_noised_values_alone(tmp_path, scans, name):
    found = compared(name, tmp_path, [*scans, *PEOPLES[name]], 1)
    assert (found.units, found.differences) == (["person"], [])
    assert found.neighbours == PEOPLE
    assert found.files >= len(found.neighbours) - 1


@pytest.mark.slow
def test_what_depends_on_the_number_of_a_persons_records_is_seen(tmp_path, scans, monkeypatch):
    whole, counts = train_client_stage.PrivateRound.released, []
    original = train_client_stage.PrivateRound.gradients

    def gradients(self, module, images, labels, units):
        counts.append(np.bincount(units).max(initial=0))
        return original(self, module, images, labels, units)

    def released(self, update, state):
        return tuple({**event, "steps": event["steps"] + int(counts[-1] == 3)} for event in whole(self, update, state))

    monkeypatch.setattr(train_client_stage.PrivateRound, "gradients", gradients)
    monkeypatch.setattr(train_client_stage.PrivateRound, "released", released)
    found = compared("dp-sgd", tmp_path, [*scans, *PEOPLES["dp-sgd"], "partition.clients=1"], 1)
    assert {d.neighbour for d in found.differences} == {"one person more, with several records"}


def test_the_list_of_recipes_with_an_epsilon_is_complete():
    keys = ("noise_multiplier", "target_epsilon")
    with_noise = {
        name
        for name in names()
        if not load_recipe(name).sweep  # several runs of a recipe that is on the list
        if any(section.get(key) is not None for section in load_recipe(name).stages.values() for key in keys)
    }
    others = {"fedlap-dp-mnist", "fedlap-dp-cifar10"}  # fedlap-dp with other data
    assert with_noise - others <= set(WHOLE)


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_every_recipe_with_an_epsilon(tmp_path, name):
    found = compared(name, tmp_path)
    assert found.differences == []
    assert found.files > 0


@pytest.mark.slow
def test_noise_in_shares_without_masks(tmp_path):
    found = compared("dp-fedsam-secure", tmp_path, ["secure=false"])
    assert found.differences == []
    assert "message" not in found.form_only, "messages with a share of noise are compared byte by byte"


@pytest.mark.slow
def test_clients_that_are_trained_together(tmp_path):
    found = compared("dp-fedavg", tmp_path, [*SOFTMAX[:1], "train-client.together=2"], 1)
    assert (found.differences, found.neighbours) == ([], CLIENTS)


@pytest.mark.slow
def test_an_adaptive_clip(tmp_path):
    """The next clip depends on the clients by a noised count alone."""
    found = compared("dp-fedavg", tmp_path, [*SOFTMAX[:1], "encode.adaptive_clip=true"], 2)
    assert found.differences == []
    assert found.neighbours == CLIENTS
    assert found.files >= len(found.neighbours) - 1


# What the comparison is for.


def test_a_refusal_because_of_one_image_is_seen(fedsynth, monkeypatch):
    whole = train_client_stage.load_described
    monkeypatch.setattr(train_client_stage, "load_described", lambda paths, described, **_: whole(paths, described))
    noise = [word for setting in NOISE for word in ("--set", setting)]
    code, out, _ = fedsynth("audit", "--neighbours", "dp-sgd", *SMALLEST, *noise, "--json")
    found = json.loads(out)
    (difference,) = found["differences"]
    assert found["neighbours"] == RECORDS
    assert (code, difference["neighbour"]) == (5, "an image that cannot be decoded")
    assert "exit code 0" in difference["what"] and "exit code 3: /clients/00/private/data.parquet" in difference["what"]


@pytest.mark.slow
def test_a_line_in_a_log_because_of_one_image_is_seen(tmp_path, fedsynth, monkeypatch):
    """Through the command line, whose own handler would show it on a terminal and nowhere else."""
    whole = train_client_stage.load_described

    def load(paths, described, **options):
        datasets = whole(paths, described, **options)
        logging.getLogger("fedsynth").warning("%d images", sum(len(dataset.content) for dataset in datasets))
        return datasets

    monkeypatch.setattr(train_client_stage, "load_described", load)
    noise = [word for setting in NOISE for word in ("--set", setting)]
    code, out, _ = fedsynth("audit", "--neighbours", "dp-sgd", *SMALLEST, *noise, "--json")
    assert code == 5
    assert {d["neighbour"] for d in json.loads(out)["differences"]} >= {"one record more", "no records at all"}


@pytest.mark.slow
def test_a_number_of_records_in_the_metadata_is_seen(tmp_path, monkeypatch):
    whole = train_client_stage.PrivateRound.released
    count = []

    def gradients(self, module, images, labels, units):
        count.append(len(labels))
        return original(self, module, images, labels, units)

    def released(self, update, state):
        return tuple({**event, "steps": event["steps"] + count[-1] % 2} for event in whole(self, update, state))

    original = train_client_stage.PrivateRound.gradients
    monkeypatch.setattr(train_client_stage.PrivateRound, "gradients", gradients)
    monkeypatch.setattr(train_client_stage.PrivateRound, "released", released)
    found = compared("dp-sgd", tmp_path, [*SOFTMAX, "partition.clients=1"], 1)
    assert {d.neighbour for d in found.differences} >= {"one record more", "an outlier"}
    assert any("privacy[0].steps" in d.what for d in found.differences)


@pytest.mark.slow
@pytest.mark.parametrize("loud", [True, False])
def test_means_of_feddm_beside_the_noise_are_seen(tmp_path, monkeypatch, loud):
    """Only classes that stand out of the noise are matched. With noise of its own size hardly one does: not seen."""
    whole = feddm.NoisyMeans.__call__

    def leaking(self, weights, look):
        return {label: mean + 1e-2 * len(self._data) for label, mean in whole(self, weights, look).items()}

    monkeypatch.setattr(feddm.NoisyMeans, "__call__", leaking)
    if not loud:
        monkeypatch.setattr(mechanism_module, "_LOUD", 1.0)
    found = compared("feddm-dp", tmp_path, [*MLP, "partition.clients=1"], 1)
    assert ("one record more" in {d.neighbour for d in found.differences}) == loud


@pytest.mark.slow
def test_means_of_merf_beside_the_noise_are_seen(tmp_path, monkeypatch):
    """The generator that is trained on them stays; what it makes leaves."""
    sums_of, targets_of, count = Merf.class_sums, Merf.targets, []

    def class_sums(self, weights, images, labels, **options):
        count.append(len(labels))
        return sums_of(self, weights, images, labels, **options)

    def targets(self, sums, **options):
        return {name: means * (1 + 0.1 * (count[-1] % 7)) for name, means in targets_of(self, sums, **options).items()}

    monkeypatch.setattr(Merf, "class_sums", class_sums)
    monkeypatch.setattr(Merf, "targets", targets)
    found = compared("fedssyn-merf", tmp_path, ["partition.clients=1"], 1)
    assert "one record more" in {d.neighbour for d in found.differences}


def test_a_recipe_without_noise_has_nothing_to_compare(fedsynth):
    code, _, err = fedsynth("audit", "--neighbours", "fedavg", *SMALLEST)
    assert (code, "promises no ε" in err) == (2, True), err


@pytest.mark.parametrize(
    "words", [[], ["--neighbours", "dp-sgd", "."], ["--empirical", "dp-sgd"], [".", "--canaries", "5"]]
)
def test_usage_errors(fedsynth, words):
    assert fedsynth("audit", *words)[0] == 2


def test_noise_alone_holds_nothing_of_the_sum(stream_of):
    mechanism = GaussianMechanism(clip_norm=1.0, noise_multiplier=1.0, expected_size=2.0)
    sums = [{"a": np.zeros(5)}, {"a": np.full(5, 0.3)}]
    found = []
    for total in sums:
        with noise_alone(stream_of(seed=1)):
            found.append(noisy_mean(total, mechanism, stream_of())["a"])
    assert np.array_equal(*found)
    real = [noisy_mean(total, mechanism, stream_of())["a"] for total in sums]
    assert not np.array_equal(*real), "and afterwards it is as before"
