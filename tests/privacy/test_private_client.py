"""Differentially private `train-client`: what its updates, states and messages say, and what is charged."""

import dataclasses
import json

import numpy as np
import pytest

import stages.privacy.clipping as clipping
from artifacts.errors import VerificationError
from artifacts.formats import tensors_file
from stages.account import account
from stages.aggregate import aggregate
from stages.audit import audit
from stages.methods.params.aggregation import VariatesRule
from stages.privacy.accountant import epsilon, planned

# What leaves.


def test_an_update_its_message_and_what_they_say(client):
    update = client.train(clip_norm=0.7, delta=1e-5)
    about = tensors_file.read(update).metadata
    (event,) = about.privacy
    assert event | {"id": ""} == {
        "id": "", "unit": "record", "adjacency": "add-or-remove", "mechanism": "sampled-gaussian",
        "sampling": "poisson", "sampling_rate": 0.3, "noise_multiplier": 0.5, "clip_norm": 0.7, "steps": 3,
        "trust": "nobody", "shares": 1,
    }  # fmt: skip
    assert (about.counts, about.disclosures, about.simulation) == ({}, (), True)
    message = client.send(update)
    sent = tensors_file.read(message).metadata
    assert (sent.privacy, sent.disclosures, sent.counts) == (about.privacy, (), {})
    assert "sampling_rate" not in sent.params
    assert [r.commitment is None for r in sent.inputs] == [True, False]
    report = audit(client.base)
    assert report.passed, report.verdict
    (row,) = account([client.base], delta=1e-5)["clients"]
    cost = epsilon([planned(sampling_rate=0.3, noise_multiplier=0.5, steps=3)], delta=1e-5)
    assert (row["unit"], row["epsilon"]) == ("record", {"pld": cost.pld, "rdp": cost.rdp})
    model = client.next_model([message], 1)
    assert tensors_file.read(model).metadata.disclosures == ()


def test_how_many_records_there_are_is_reported_nowhere(client, fedsynth):
    stated = []
    update = client.train(report=lambda done, total, text: stated.append(text))
    assert set(stated) == {""}, "no loss"
    for flag in ("--tell-examples", "--tell-steps"):
        code, _, err = fedsynth(
            "encode", client.model, update, flag, "-o", client.base / "outbox/message-0001.safetensors"
        )
        assert (code, "does not say its" in err) == (3, True)
    fewer = client.write(client.private("fewer.parquet"), client.digits.take(np.arange(7)))
    same = [tensors_file.read(client.train(data=[path])).metadata for path in (client.data, fewer)]
    blank = [dataclasses.replace(about, inputs=(), privacy=()) for about in same]
    assert blank[0] == blank[1]


def test_update_and_state_are_one_release_and_bring_earlier_ones_with_them(client):
    """SCAFFOLD over two rounds: four files, two events."""
    options = {"algorithm": "scaffold"}
    first, states = client.train(1, **options), [client.private(f"state-{n:04}.safetensors") for n in (1, 2)]
    assert client.events(first) == client.events(states[0])
    client.send(first)
    client.send(states[0], method="state")
    model = client.next_model([client.base / "outbox/message-0001.safetensors"], 1)
    server = client.root / "server/outbox/state-0001.safetensors"
    aggregate(
        client.model, [client.base / "outbox/state-0001.safetensors"], server, params=VariatesRule(clients=1),
        result="state",
    )  # fmt: skip
    second = client.train(2, model, **options, state=states[0], server_state=server)
    assert client.events(second) == client.events(states[1])
    assert [event["id"] == client.events(first)[0]["id"] for event in client.events(second)] == [True, False]
    sent = [client.send(second, model), client.send(states[1], model, method="state", previous=states[0])]
    assert all(client.events(path) == client.events(second) for path in sent)
    assert all(tensors_file.read(path).metadata.disclosures == () for path in sent)
    (row,) = account([client.base], delta=1e-5)["clients"]
    two = epsilon([planned(sampling_rate=0.3, noise_multiplier=0.5, steps=6)], delta=1e-5)
    assert (row["files"], row["events"], row["epsilon"]["pld"]) == (4, 2, two.pld)
    report = audit(client.root)
    assert report.passed, report.findings


def test_two_rounds_compose(client):
    first = client.send(client.train(1))
    model = client.next_model([first], 1)
    second = client.send(client.train(2, model), model)
    assert client.events(first)[0]["id"] != client.events(second)[0]["id"]
    (row,) = account([client.base], delta=1e-5)["clients"]
    two = epsilon([planned(sampling_rate=0.3, noise_multiplier=0.5, steps=6)], delta=1e-5)
    assert (row["events"], row["epsilon"]["pld"], row["epsilon"]["rdp"]) == (2, two.pld, two.rdp)
    assert len(client.charges()) == 2


# What is charged.


def test_an_identical_round_is_free_and_any_other_is_not(client):
    update = client.train(algorithm="scaffold")
    before = update.read_bytes(), client.private("state-0001.safetensors").read_bytes()
    client.train(algorithm="scaffold")
    assert before == (update.read_bytes(), client.private("state-0001.safetensors").read_bytes())
    assert [entry["entry"] for entry in client.ledger()] == ["opened", "reserved", "released"]
    client.train(algorithm="scaffold", seed=4)
    client.train(algorithm="scaffold", learning_rate=0.4)
    assert len(client.charges()) == 3
    assert client.charges()[0] == client.events(update)[0] | {"id": "0" * 64}


def test_it_is_charged_before_a_record_is_read(client, monkeypatch):
    import stages.train_client as stage

    class Read(Exception):
        pass

    def load_described(paths, described, **options):
        raise Read

    monkeypatch.setattr(stage, "load_described", load_described)
    with pytest.raises(Read):
        client.train()
    assert len(client.charges()) == 1


def test_another_result_under_the_same_noise_is_destroyed(client, monkeypatch):
    update = client.train()
    update.unlink()
    whole = clipping.clipped_sum

    def unsteady(*arguments, **options):
        return {name: total + 1e-2 for name, total in whole(*arguments, **options).items()}

    monkeypatch.setattr(clipping, "clipped_sum", unsteady)
    with pytest.raises(VerificationError, match="the same noise"):
        client.train()
    assert not update.exists()


def test_the_target_lasts_for_its_rounds(client):
    options = {"noise_multiplier": None, "target_epsilon": 2.0, "delta": 1e-5, "privacy_rounds": 4}
    (event,) = client.events(client.train(**options))
    spent = [
        epsilon([planned(sampling_rate=0.3, noise_multiplier=event["noise_multiplier"], steps=steps)], delta=1e-5).pld
        for steps in (3, 12, 13)
    ]
    assert spent[0] < spent[1] <= 2.0 < spent[2]
    assert spent[1] > 1.99
    assert event["steps"] == 3


def test_a_budget_refuses_before_anything_is_read(client, fedsynth):
    cost = epsilon([planned(sampling_rate=0.3, noise_multiplier=1.0, steps=3)], delta=1e-5).pld
    budget = {"epsilon": cost * 1.01, "delta": 1e-5, "unit": "record"}
    client.private("budget.yaml").write_text(json.dumps(budget))
    command = [
        "train-client", client.model, client.data, "--noise-multiplier", 1, "--sampling-rate", 0.3, "--local-steps", 3,
        "-o", client.private("update-0001.safetensors"),
    ]  # fmt: skip
    assert fedsynth(*command)[0] == 0
    assert fedsynth(*command, "--force")[0] == 0, "again, it costs nothing"
    code, _, err = fedsynth(*command, "--force", "--seed", 9)
    assert (code, "does not allow this" in err) == (4, True)
    assert len(client.charges()) == 1
    plain = client.private("plain.safetensors")
    assert fedsynth("train-client", client.model, client.data, "-o", plain)[0] == 0, "it stays private"
    code, _, err = fedsynth("encode", client.model, plain, "-o", client.base / "outbox/message-0001.safetensors")
    assert (code, "without noise" in err) == (4, True)
