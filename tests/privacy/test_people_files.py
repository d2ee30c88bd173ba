"""People through the files: `ingest --unit-column`, `partition`, `train-client --unit person`, what is said of it."""

import dataclasses
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from artifacts.errors import InputError, UsageError
from artifacts.formats import dataset_file
from stages.account import account
from stages.data.dataset_images import dataset_params, load_dataset
from stages.methods.private_local_training import private_gradients
from stages.privacy.accountant import epsilon, planned
from stages.privacy.events import PrivacyEvent

DELTA = 1e-5
NAMES = ["insel-4711", "insel-0815", "kanton-99", "kanton-7", "patient-é"]
WHOSE = [NAMES[row * row % 11 % 5] for row in range(40)]
DP = ("--noise-multiplier", 2, "--sampling-rate", 0.3, "--local-steps", 3, "--batch-size", 2, "--learning-rate", 0.5)


def png(image):
    sink = io.BytesIO()
    Image.fromarray(image).save(sink, "PNG")
    return {"bytes": sink.getvalue(), "path": None}


@pytest.fixture
def source(tmp_path, digits):
    """Forty scans of five patients, as a hospital would export them."""
    features = {"label": {"names": list(digits.class_names), "_type": "ClassLabel"}}
    table = pa.table({
        "image": [png(image[0]) for image in digits.images[:40]], "label": digits.labels[:40].tolist(),
        "patient_id": WHOSE,
    })  # fmt: skip
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, tmp_path / "scans.parquet")
    return tmp_path / "scans.parquet"


@pytest.fixture
def done(fedsynth):
    def call(*words):
        code, out, err = fedsynth(*words)
        assert code == 0, err
        return out

    return call


@pytest.fixture
def hospital(client, source, done):
    """Client 00 with its data ingested by person, by the command line."""
    public = client.root / "public/test.parquet"
    client.write(public, client.digits.take(np.arange(100, 110)), custody="public", client=None)
    client.data = client.private("people.parquet")
    done("ingest", source, "--unit-column", "patient_id", "--like", public, "-o", client.data)
    return client


def test_the_column_becomes_numbers_and_stays(hospital, source, fedsynth, done, tmp_path):
    found = load_dataset(hospital.data)
    order = list(dict.fromkeys(WHOSE))
    assert found.content.units.tolist() == [order.index(name) for name in WHOSE]
    assert found.metadata.params["unit"] == "person"
    assert pq.read_table(hospital.data).column_names == ["image", "label", "unit"], "any tool reads it"
    assert not any(name.encode() in hospital.data.read_bytes() for name in NAMES)
    assert "unit" in done("inspect", hospital.data)
    code, _, err = fedsynth("ingest", source, "--unit-column", "patient_id", "-o", tmp_path / "public/all.parquet")
    assert code == 2 and "stays private" in err
    code, _, err = fedsynth("ingest", source, "--unit-column", "patient", "-o", hospital.private("x.parquet"))
    assert code == 3 and "--unit-column" in err and "patient_id" in err


def test_whose_rows_they_are_is_never_outbound(hospital):
    """By the format itself: no such file can be written, whatever a stage asks for."""
    content = load_dataset(hospital.data).content
    for custody in ("outbound", "downlink", "public", "server"):
        with pytest.raises(InputError, match="only private data says whose a row is"):
            hospital.write(hospital.root / f"{custody}.parquet", content, custody=custody)
    wrong = dataclasses.replace(content, units=content.units + 1)
    path = hospital.write(hospital.private("wrong.parquet"), wrong)
    with pytest.raises(InputError, match="counted from 0"):
        load_dataset(path)
    path = hospital.write(hospital.private("other.parquet"), dataclasses.replace(content, units=content.units[::-1]))
    assert dataset_file.read_sealed(path).payload_sha256 != dataset_file.read_sealed(hospital.data).payload_sha256


def test_from_ingest_to_the_report(hospital, done, fedsynth, monkeypatch):
    """One round for people: event, ledger, account, audit, report and budget say so, and no id leaves."""
    seen = []
    real = private_gradients

    def watched(module, images, labels, *, units, **rest):
        seen.append(units.tolist())
        return real(module, images, labels, units=units, **rest)

    monkeypatch.setattr("stages.methods.private_local_training.private_gradients", watched)
    budget = hospital.private("budget.yaml")
    budget.write_text(f"epsilon: 1.5\ndelta: {DELTA}\nunit: person\n")
    update = hospital.private("update-0001.safetensors")
    words = ["train-client", hospital.model, hospital.data, *DP, "--seed", 3, "-o", update]
    code, _, err = fedsynth(*words)
    assert code == 4 and "per person" in err and "inf" in err, "noise for records is none for people"
    done(*words, "--unit", "person")
    assert seen == [load_dataset(hospital.data).content.units.tolist()]
    message = hospital.send(update)
    (event,) = hospital.events(message)
    assert (event["unit"], event["adjacency"], event["sampling_rate"], event["steps"]) == (
        "person", "add-or-remove", 0.3, 3,
    )  # fmt: skip
    assert hospital.charges()[-1]["unit"] == "person"
    cost = epsilon([planned(sampling_rate=0.3, noise_multiplier=2.0, steps=3)], delta=DELTA).pld
    assert cost <= 1.5
    (row,) = account([hospital.base], delta=DELTA)["clients"]
    assert (row["unit"], row["epsilon"]["pld"]) == ("person", cost)
    units = {row["unit"]: row for row in account([hospital.base], delta=DELTA, person=True)["units"]}
    half = epsilon([planned(sampling_rate=0.3, noise_multiplier=1.0, steps=3)], delta=DELTA).pld
    assert units["person"]["epsilon"]["pld"] == cost and units["record"]["epsilon"]["pld"] == half > cost
    assert units["client"]["epsilon"]["pld"] == "inf"
    code, out, _ = fedsynth("audit", hospital.root, "--delta", DELTA, "--json")
    assert code == 0, out
    assert '"person"' in out
    page = hospital.root / "report.html"
    done("report", hospital.root, "--delta", DELTA, "-o", page)
    assert "a person" in page.read_text() or "one person" in page.read_text()
    left = [path for path in hospital.root.rglob("*") if path.is_file() and "outbox" in path.parts]
    assert left
    for path in [*left, page]:
        assert not any(name.encode() in path.read_bytes() for name in NAMES), path
    code, _, err = fedsynth(*words[:-2], "--unit", "person", "--batch-size", 3, "-o", hospital.private("u.safetensors"))
    assert code == 4 and "per person does not allow this" in err, "the budget is spent"


def test_how_many_people_there_are_is_reported_nowhere(hospital):
    """The same command on half the people: only tensors, ids and commitments differ."""
    content = load_dataset(hospital.data).content
    few = hospital.write(hospital.private("few.parquet"), content.take(np.flatnonzero(content.units < 2)))
    texts = []
    for data in (hospital.data, few):
        message = hospital.send(hospital.train(data=[data], unit="person", noise_multiplier=2.0))
        (event,) = hospital.events(message)
        texts.append({name: value for name, value in event.items() if name != "id"})
    assert texts[0] == texts[1]


def test_one_record_each_gives_the_same_event_but_for_the_unit(client):
    content = client.digits.take(np.arange(40))
    data = client.write(client.private("each.parquet"), dataclasses.replace(content, units=np.arange(40)))
    (record,), (person,) = (client.events(client.train(data=[data], unit=unit)) for unit in ("record", "person"))
    same = {name for name in record if record[name] == person[name]}
    assert record.keys() - same == {"id", "unit"}


# What is refused.


def test_data_that_does_not_say_whose_it_is_has_no_epsilon_for_people(client):
    with pytest.raises(InputError, match="does not say whose its records are"):
        client.train(unit="person")
    assert client.charges() == [], "nothing was charged"


def test_people_of_two_files_cannot_be_told_from_each_other(hospital):
    content = load_dataset(hospital.data).content
    other = hospital.write(hospital.private("more.parquet"), content.take(np.arange(5)))
    with pytest.raises(UsageError, match="nobody knows who is in both"):
        hospital.train(data=[hospital.data, other], unit="person")


def test_rows_that_were_dealt_out_are_each_their_own(hospital, monkeypatch):
    """Beside a client's own people, what came down is nobody's; a copy of a private row among it stays, too."""
    content = load_dataset(hospital.data).content
    dealt = dataclasses.replace(content.take(np.arange(3)), units=None)
    path = hospital.root / "server/outbox/part.parquet"
    path.parent.mkdir(parents=True)
    hospital.write(path, dealt, custody="downlink", stage="shuffle", client=None)
    seen = []

    def nobody(_streams, _step, _rate, _count, units):
        seen.append(units.tolist())
        return torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)

    monkeypatch.setattr("stages.methods.private_gradients.SecretStreams.sample", nobody)
    hospital.train(data=[hospital.data, path], unit="person")
    people = int(content.units.max()) + 1
    assert seen[0] == [*content.units.tolist(), people, people + 1, people + 2]


def test_a_unit_without_noise_means_nothing(fedsynth, hospital):
    code, _, err = fedsynth(
        "train-client", hospital.model, hospital.data, "--unit", "person", "-o", hospital.private("u.safetensors")
    )
    assert code == 2 and "--unit" in err


def test_an_event_for_records_is_none_for_people(hospital):
    """Data with people in it, trained on record by record, claims nothing about them."""
    hospital.send(hospital.train(unit="record"))
    units = {row["unit"]: row["epsilon"]["pld"] for row in account([hospital.base], delta=DELTA, person=True)["units"]}
    assert units["person"] == "inf" and units["record"] != "inf"
    (event,) = hospital.events(hospital.private("update-0001.safetensors"))
    assert PrivacyEvent.from_json(event).unit == "record"


# Simulations.


@pytest.mark.parametrize("scheme", [("iid", "--clients", 2), ("dirichlet", "--clients", 2, "--alpha", 1)])
def test_partition_never_splits_a_person(source, done, tmp_path, scheme):
    run = tmp_path / "run"
    done("partition", source, "--scheme", *scheme, "--unit-column", "patient_id", "--held-out", 0.5, "-o", run)
    order = {image.tobytes(): name for image, name in zip(load_images(source), WHOSE, strict=True)}
    homes = {}
    for path in sorted(run.rglob("*.parquet")):
        found = load_dataset(path)
        assert ("unit" in found.metadata.params) == (found.metadata.custody == "private")
        names = [order[image.tobytes()] for image in found.content.images]
        for name in names:
            homes.setdefault(name, set()).add(path)
        if found.content.units is not None:
            assert len(set(zip(names, found.content.units.tolist(), strict=True))) == len(set(names))
    assert homes.keys() == set(WHOSE) and all(len(paths) == 1 for paths in homes.values())


def load_images(source):
    for one in pq.read_table(source)["image"].to_pylist():
        yield np.asarray(Image.open(io.BytesIO(one["bytes"])))[None]


def test_partition_refuses_a_client_that_has_half_of_a_person(source, fedsynth, tmp_path):
    table = pq.read_table(source).append_column("ward", pa.array(["a", "b", "c", "d"] * 10))
    pq.write_table(table, source)
    words = ("--scheme", "natural", "--id-column", "ward", "--unit-column", "patient_id", "-o", tmp_path / "run")
    code, _, err = fedsynth("partition", source, *words)
    assert code == 2 and "would go to two clients" in err


def test_the_parameters_say_person(client):
    content = dataclasses.replace(client.digits.take(np.arange(3)), units=np.array([0, 0, 1]))
    assert dataset_params(content)["unit"] == "person"
    assert "unit" not in dataset_params(client.digits)
