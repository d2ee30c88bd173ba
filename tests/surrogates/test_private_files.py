"""FedLAP-DP and FedDM-DP as files: what they say, what is charged and when, where the noise comes from."""

import dataclasses
import json

import numpy as np
import pytest

import stages.charging.private_training as private_training
import stages.methods.feddm as feddm
import stages.privacy.clipping as clipping
from artifacts.errors import BudgetError, InputError, UsageError, VerificationError
from stages.account import account
from stages.charging.spending import record_event
from stages.data.images import LabelledImages
from stages.privacy.accountant import epsilon, planned
from stages.privacy.events import PrivacyEvent
from stages.recipes.recipe import load_recipe
from stages.registry import ENCODERS

METHODS = ["fedlap", "feddm"]
STEPS = {"fedlap": 2, "feddm": 3}


def events(artifact):
    return [PrivacyEvent.from_json(event) for event in artifact.metadata.privacy]


@pytest.mark.parametrize("method", METHODS)
def test_the_file_and_the_ledger_say_what_was_done(federation, method, read):
    stated = federation.root / "clients/00/private/matching.json"
    path = federation.noisy("00", method, clip_norm=0.7, metrics=stated)
    found = read(path)
    about, (event,) = found.metadata, found.metadata.privacy
    assert event | {"id": ""} == {
        "id": "", "unit": "record", "adjacency": "add-or-remove", "mechanism": "sampled-gaussian",
        "sampling": "poisson", "sampling_rate": 0.3, "noise_multiplier": 1.0, "clip_norm": 0.7,
        "steps": STEPS[method], "trust": "nobody", "shares": 1,
    }  # fmt: skip
    assert (about.disclosures, about.counts, about.seed, about.simulation) == ((), {}, None, True)
    assert set(found.tensors) == {"images", "labels"}, "no radius, no norms"
    assert [(r.role, r.commitment is None) for r in about.inputs] == [("model", True), ("data", False)]
    opened, reserved, released = federation.ledger()
    assert (opened["entry"], reserved["entry"], released["entry"]) == ("opened", "reserved", "released")
    assert reserved["events"] == [event | {"id": "0" * 64}]
    assert set(json.loads(stated.read_text())) == {"custody", "client", "round", "method", "matching_loss"}
    (row,) = account([federation.root / "clients/00"], delta=1e-5)["clients"]
    cost = epsilon([planned(sampling_rate=0.3, noise_multiplier=1.0, steps=STEPS[method])], delta=1e-5)
    assert row["epsilon"] == {"pld": cost.pld, "rdp": cost.rdp}


@pytest.mark.parametrize("method", METHODS)
def test_nothing_but_the_noised_sums_decides_the_file(federation, method, monkeypatch, read):
    """Other records, the same releases: the same file, but for what the key alone can open and the event's id."""
    data = federation.client("00")
    other = federation.write(data.with_name("other.parquet"), federation.digits.take(np.arange(100, 109)))
    none = federation.write(data.with_name("none.parquet"), federation.digits.take(np.arange(0)))
    calls = []

    def same(total, mechanism, _noise):
        calls.append(1)
        rng = np.random.default_rng(len(calls))
        return {n: rng.normal(size=t.shape).astype(np.float32) * 4 for n, t in sorted(total.items())}

    for place in (clipping, feddm):
        monkeypatch.setattr(place, "noisy_mean", same)
    found = []
    for source in (data, other, none):
        calls.clear()
        found.append(read(federation.noisy("00", method, data=source)))
    assert len({one.tensors["images"].tobytes() + one.tensors["labels"].tobytes() for one in found}) == 1
    assert len({repr(dataclasses.replace(one.metadata, inputs=(), privacy=())) for one in found}) == 1
    assert len({one.metadata.privacy[0]["id"] for one in found}) == 3
    assert len({one.metadata.inputs[1].commitment for one in found}) == 3


@pytest.mark.parametrize("method", METHODS)
def test_the_stage_adds_noise_of_the_scale_that_its_event_says(federation, method, monkeypatch, has_scale):
    noise = []
    for place in (clipping, feddm):

        def noted(total, mechanism, stream, original=place.noisy_mean):
            released = original(total, mechanism, stream)
            noise.extend((released[n] * mechanism.expected_size - total[n]).ravel() for n in total)
            return released

        monkeypatch.setattr(place, "noisy_mean", noted)
    federation.noisy("00", method, clip_norm=0.5, noise_multiplier=1.7)
    draws = np.concatenate(noise)
    assert has_scale(draws, 0.85)
    assert not has_scale(draws, 0.85 * 2 / 3) and not has_scale(draws, 0.85 * 3 / 2)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("augment", [None, "rotate,scale"])
def test_nobody_there_and_nobody_drawn_are_no_errors(federation, method, augment, read):
    data = federation.client("00")
    none = federation.write(data.with_name("none.parquet"), federation.digits.take(np.arange(0)))
    options = {"augment": augment} if augment and method == "fedlap" else {}
    found = [
        read(federation.noisy("00", method, data=none, **options)),
        read(federation.noisy("00", method, sampling_rate=1e-9, **options)),
    ]
    assert all(one.metadata.privacy[0]["steps"] == STEPS[method] for one in found)
    assert not np.array_equal(found[0].tensors["images"][:4], found[1].tensors["images"][:4])


@pytest.mark.parametrize("method", METHODS)
def test_own_classes_are_declared_even_if_there_are_none(federation, method, read):
    data = federation.client("00")
    mine = read(federation.noisy("00", method, classes="own"))
    assert mine.metadata.disclosures == ("class_set",)
    assert set(mine.tensors["labels"].tolist()) <= {0, 1}
    none = federation.write(data.with_name("none.parquet"), federation.digits.take(np.arange(0)))
    empty = read(federation.noisy("00", method, classes="own", data=none))
    assert (len(empty.tensors["labels"]), empty.metadata.disclosures) == (0, ("class_set",))


def test_the_event_charges_all_accesses_however_early_the_loop_ends(federation, monkeypatch, read):
    accesses, original = [], clipping.noisy_mean
    monkeypatch.setattr(clipping, "noisy_mean", lambda *a: accesses.append(1) or original(*a))
    path = federation.noisy(trajectories=2, points=3, batches=2, model_steps=1, radius=1e-9)
    assert len(accesses) == 4, "one point of each walk"
    assert read(path).metadata.privacy[0]["steps"] == 12 == federation.charges()[0]["steps"]


def test_the_papers_epsilon_from_a_file(federation, read):
    """Sec. 5.1 and Table 2: 200 accesses a round, ε 2.79 after one and 10.18 after fifteen, by Rényi."""
    paper = load_recipe("fedlap-dp", "paper").section("encode")
    params = ENCODERS.from_mapping(paper)
    assert params.accesses == 200
    small = {"image_steps": 1, "images_per_class": 1, "image_rate": 0.01, "init": "noise"}
    (event,) = events(read(federation.encode("00", **paper | small)))
    assert dataclasses.replace(event, id="0" * 64) == record_event(params, params.accesses)
    rounds = [dataclasses.replace(event, id=f"{number:064x}") for number in range(15)]
    for known, published in (([event], 2.787), (rounds, 10.183)):
        on_their_orders = epsilon(known, delta=1e-5, orders="papers").rdp
        assert on_their_orders == pytest.approx(published, abs=5e-4)
        assert published - 4e-3 < epsilon(known, delta=1e-5).rdp < on_their_orders, "finer orders, a lower bound"


def test_a_target_lasts_for_its_rounds(federation, read):
    options = {"noise_multiplier": None, "target_epsilon": 3.0, "delta": 1e-5, "privacy_rounds": 4}
    found = read(federation.noisy(**options))
    sigma = found.metadata.privacy[0]["noise_multiplier"]
    after = [epsilon([planned(sampling_rate=0.3, noise_multiplier=sigma, steps=n)], delta=1e-5).pld for n in (2, 8, 9)]
    assert after[0] < after[1] <= 3.0 < after[2]
    assert "target_epsilon" not in found.metadata.params


# Spending.


@pytest.mark.parametrize("method", METHODS)
def test_an_identical_rerun_is_free_and_anything_else_has_other_noise(federation, method, monkeypatch, digits):
    path = federation.noisy("00", method)
    first = path.read_bytes()
    assert federation.noisy("00", method).read_bytes() == first
    assert [entry["entry"] for entry in federation.ledger()] == ["opened", "reserved", "released"]
    words, original = [], private_training.secret_streams

    def noted(spending):
        streams = original(spending)
        words.append(tuple(streams.noise.at(1).uniform_bits(4)) + tuple(streams.sampling.at(1).uniform_bits(4)))
        return original(spending)

    import stages.surrogates.private

    monkeypatch.setattr(stages.surrogates.private, "secret_streams", noted)
    labels = digits.labels[:24].copy()
    labels[0] = 9 - labels[0]
    base = federation.write(federation.client("00").with_name("base.parquet"), digits.take(np.arange(24)))
    relabelled = federation.write(
        base.with_name("relabelled.parquet"), LabelledImages(digits.images[:24], labels, digits.class_names)
    )
    changes = [
        {}, {"data": base}, {"data": relabelled}, {"clip_norm": 1.5}, {"noise_multiplier": 1.5},
        {"sampling_rate": 0.31}, {"image_rate": 0.11}, {"classes": "0,1"}, {"images_per_class": 3},
    ]  # fmt: skip
    for change in changes:
        federation.noisy("00", method, **change)
    assert len({word[:4] for word in words}) == len({word[4:] for word in words}) == len(changes)
    assert len(federation.charges()) == len(changes)


@pytest.mark.parametrize("method", METHODS)
def test_another_result_under_the_same_noise_is_destroyed(federation, method, monkeypatch):
    path = federation.noisy("00", method)
    path.unlink()
    for place in (clipping, feddm):
        monkeypatch.setattr(place, "noisy_mean", lambda *a, f=place.noisy_mean: {n: t + 0.25 for n, t in f(*a).items()})
    with pytest.raises(VerificationError, match="the same noise"):
        federation.noisy("00", method)
    assert not path.exists()


@pytest.mark.parametrize("method", METHODS)
def test_a_budget_refuses_before_data_is_read_and_a_file_without_noise_altogether(federation, method, monkeypatch):
    import stages.surrogates.client as stage

    data = federation.client("00")
    cost = epsilon([planned(sampling_rate=0.3, noise_multiplier=1.0, steps=STEPS[method])], delta=1e-5).pld
    budget = data.with_name("budget.yaml")
    budget.write_text(f"epsilon: {cost / 2}\ndelta: 1.0e-5\nunit: record\n")
    read = []
    monkeypatch.setattr(stage, "load_described", lambda *a, f=stage.load_described, **o: read.append(1) or f(*a, **o))
    for given in ({}, {"classes": "own"}):
        with pytest.raises(BudgetError):
            federation.noisy("00", method, **given)
    with pytest.raises(BudgetError, match="derived_images"):
        federation.encode("00", method)
    assert (read, federation.charges()) == ([], [])
    assert not federation.surrogate("00", 1).exists()
    budget.write_text(f"epsilon: {cost * 1.01}\ndelta: 1.0e-5\nunit: record\n")
    federation.noisy("00", method)
    with pytest.raises(BudgetError):
        federation.noisy("00", method, clip_norm=2.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"classes": "0,11"}, "label 11 is out of range"),
        ({"classes": "3:0"}, "names no class"),
        ({"classes": ""}, "there is no class ''"),
    ],
)
def test_wrong_wishes_are_refused_before_they_are_charged(federation, given, said):
    with pytest.raises(UsageError, match=said):
        federation.noisy(**given)
    assert federation.charges() == []


@pytest.mark.parametrize(
    ("method", "given", "said"),
    [
        ("fedlap", {"init": "real"}, "--init real would send altered real images"),
        ("feddm", {"init": "real"}, "--init real would send altered real images"),
        ("feddm", {"iterations": 0, "image_rate": None}, "--iterations 0"),
        ("fedlap", {"tell_examples": True}, "--tell-examples"),
        ("fedlap", {"calibrate": True}, "--calibrate"),
        ("fedlap", {"match": "class"}, "--match class"),
        ("fedlap", {"sampling_rate": None}, "--sampling-rate needs a value"),
        ("feddm", {"count_share": 1.0}, "--count-share"),
        ("feddm", {"privacy_rounds": 2}, "--privacy-rounds"),
    ],
)
def test_what_no_noise_covers_is_refused(federation, method, given, said):
    with pytest.raises(ValueError, match=said):
        federation.noisy("00", method, **given)


# The set of the round before.


@pytest.mark.parametrize("method", METHODS)
def test_a_set_brings_the_events_of_the_one_before(federation, method, read):
    first = federation.noisy("00", method)
    model = federation.aggregate([first], method).path
    assert read(model).metadata.disclosures == ()
    second = federation.noisy("00", method, model=model, init="previous", previous=first)
    ids = [[event["id"] for event in read(path).metadata.privacy] for path in (first, second)]
    assert (len(ids[1]), ids[1][0]) == (2, ids[0][0])
    (row,) = account([federation.root / "clients/00"], delta=1e-5)["clients"]
    both = epsilon([planned(sampling_rate=0.3, noise_multiplier=1.0, steps=2 * STEPS[method])], delta=1e-5)
    assert (row["events"], row["epsilon"]["rdp"]) == (2, pytest.approx(both.rdp))


def test_a_set_without_noise_has_no_say_in_a_noised_one(federation, read, forge):
    first = federation.encode("00")
    model = federation.aggregate([first]).path
    with pytest.raises(InputError, match="without differential privacy"):
        federation.noisy("00", model=model, init="previous", previous=first)
    silent = first.with_name("silent.safetensors")
    silent.write_bytes(forge.forge_tensors(first.read_bytes(), fields=lambda about: about.update(disclosures=[])))
    with pytest.raises(InputError, match="without differential privacy"):
        federation.noisy("00", model=model, init="previous", previous=silent)
    assert federation.charges() == []


def test_feddm_keeps_the_classes_that_stand_out_and_begins_the_others_anew(federation, read, monkeypatch):
    """Almost no noise: of all ten classes the client's two are left, and in the next round all are tried again.

    A class is there by a count of 1: 0.013 is the standard deviation of the noise, and 3·12 coins of 0.9 would have to
    fall wrong.
    """
    options = {"noise_multiplier": 0.02, "sampling_rate": 0.9, "clip_norm": 5.0}
    first = federation.noisy("00", "feddm", **options)
    assert set(read(first).tensors["labels"].tolist()) == {0, 1}
    model = federation.aggregate([first], "feddm").path
    second = federation.noisy("00", "feddm", model=model, init="previous", previous=first, **options)
    assert set(read(second).tensors["labels"].tolist()) == {0, 1}
    # Under real noise one of ten counts is three standard deviations out once in 75 draws: here none is.
    monkeypatch.setattr(feddm, "noisy_mean", lambda total, *_: {n: np.zeros(t.shape, "f4") for n, t in total.items()})
    silent = federation.noisy("00", "feddm", noise_multiplier=50.0)
    assert set(read(silent).tensors["labels"].tolist()) == set(range(10)), "where none stands out, all are sent"
