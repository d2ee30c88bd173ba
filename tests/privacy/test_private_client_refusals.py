"""Differentially private `train-client`: odd data, inputs that bring a cost with them, and what it refuses."""

import dataclasses
import math

import numpy as np
import pytest
from torch import nn

import stages.privacy.clipping as clipping
from artifacts.errors import UsageError
from artifacts.formats import tensors_file
from artifacts.identity import keys
from artifacts.ledgers import spend
from stages.init_model import init_model
from stages.privacy.accountant import planned
from stages.registry import NETWORKS


def test_a_client_without_records_sends_noise_and_pays(client, has_scale):
    empty = client.write(client.private("empty.parquet"), client.digits.take(np.arange(0)))
    model = client.root / "public/wide.safetensors"
    init_model(
        client.data, model, params=NETWORKS.from_mapping({"arch": "mlp", "width": 80}), seed=1
    )  # 6,010 numbers tell 0.8 from 1
    update = client.train(model=model, data=[empty], noise_multiplier=2.0, local_steps=40, learning_rate=0.1)
    noise = np.concatenate([t.ravel().astype(np.float64) for t in tensors_file.read(update).tensors.values()])
    assert has_scale(noise, math.sqrt(40) * 0.1 * 2.0 / 12)
    assert not has_scale(noise, math.sqrt(40) * 0.1 * 2.0 / 12 * 0.8)
    assert client.charges()[0]["steps"] == 40


def test_every_record_is_one_row(client, fedsynth, tmp_path):
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(client.data.read_bytes())
    for second in (client.data, copy):
        with pytest.raises(UsageError, match="each record would count twice"):
            client.train(data=[client.data, second])
    other = client.write(client.private("more.parquet"), client.digits.take(np.arange(40, 60)))
    client.train(data=[client.data, other])
    assert len(client.charges()) == 1


def test_batch_norm_is_refused_before_anything_is_charged(client, fedsynth, monkeypatch):
    """VGG-13 has it; a small stand-in here. ResNet-18 has group norm, and is welcome."""
    import stages.train_client as module

    def with_norm(start, where):
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(72, 10))

    monkeypatch.setattr(module, "to_module", with_norm)
    with pytest.raises(UsageError, match="batch norm in training"):
        client.train()
    assert not client.charges()
    from stages.nets.build import skeleton
    from stages.nets.params import InputShape

    shape = InputShape(channels=3, height=32, width=32, num_classes=10)
    clipping.refuse_batch_norm(skeleton(NETWORKS.from_mapping({"arch": "resnet18"}), shape).train())
    with pytest.raises(ValueError, match="batch norm"):
        clipping.refuse_batch_norm(skeleton(NETWORKS.from_mapping({"arch": "vgg13"}), shape).train())


def test_what_was_made_without_privacy_is_no_input(client, fedsynth):
    """A state, a synthetic set, a model of the client's own, and its state in the place of the server's."""
    plain = {"noise_multiplier": None, "sampling_rate": None}
    update = client.train(1, algorithm="scaffold", **plain)
    state = client.private("state-0001.safetensors").rename(client.private("plain-state.safetensors"))
    made = client.write(
        client.private("synthetic.parquet"), client.digits.take(np.arange(5)), stage="synthesize",
        disclosures=("derived_images",),
    )  # fmt: skip
    mine = client.private("model-0001.safetensors")
    message = client.send(update)
    assert fedsynth("decode", client.model, message, "--apply", "-o", mine)[0] == 0
    options = ["--noise-multiplier", 1, "--sampling-rate", 0.3, "--local-steps", 2]
    scaffold = ["--algorithm", "scaffold", "--state-out", client.private("new-state.safetensors")]
    for words in (
        [client.model, client.data, *scaffold, "--state", state],
        [client.model, client.data, *scaffold, "--server-state", state],
        [client.model, client.data, made],
        [mine, client.data],
    ):
        out = client.private("new.safetensors")
        code, _, err = fedsynth("train-client", *words, *options, "-o", out)
        assert (code, "without differential privacy" in err, out.exists()) == (3, True, False), err
    assert not client.charges()


def test_what_was_made_with_privacy_brings_its_events(client):
    event = dataclasses.replace(planned(sampling_rate=0.1, noise_multiplier=1.0, steps=5), id=f"{5:064}").to_json()
    made = client.write(
        client.private("synthetic.parquet"), client.digits.take(np.arange(5)), stage="synthesize", privacy=(event,)
    )
    found = client.events(client.train(data=[client.data, made]))
    assert found[0] == event
    assert len(found) == 2
    dealt = client.write(
        client.root / "server/outbox/dealt.parquet", client.digits.take(np.arange(5, 9)), custody="downlink",
        client=None, stage="shuffle", disclosures=("derived_images",),
    )  # fmt: skip
    assert len(client.events(client.train(data=[client.data, dealt]))) == 1, "what the server dealt out has left before"


@pytest.mark.parametrize("wrong", ["missing", "mode", "ledger", "other ledger"])
def test_keys_that_are_not_in_order(client, fedsynth, wrong):
    key = client.private("client.key")
    if wrong == "missing":
        key.unlink()
    elif wrong == "mode":
        key.chmod(0o640)
    elif wrong == "ledger":
        spend.beside(key).unlink()
    else:
        keys.write(key, keys.generate(), force=True)
    out = client.private("update-0001.safetensors")
    code, _, err = fedsynth(
        "train-client", client.model, client.data, "--noise-multiplier", 1, "--sampling-rate", 0.1, "--local-steps", 1,
        "-o", out,
    )  # fmt: skip
    said = {"missing": "keygen", "mode": "0640", "ledger": "no spend ledger", "other ledger": "another key"}[wrong]
    assert (code, said in err, out.exists()) == (3, True, False), err


GOOD = ["--noise-multiplier", "1", "--sampling-rate", "0.1", "--local-steps", "2"]
TARGET = ["--target-epsilon", "1", "--delta", "1e-5", "--sampling-rate", "0.1", "--local-steps", "2"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *(([*GOOD, "--noise-multiplier", sigma], "noise") for sigma in ("0", "-1", "nan", "inf", "1e-5", "1e7")),
        ([*GOOD, "--noise-multiplier", "900000"], "too many"),
        *(([*GOOD, "--sampling-rate", q], "sampling") for q in ("0", "1.1", "nan", "1e-15", "-0.1")),
        *(([*GOOD, "--clip-norm", clip], "clip") for clip in ("0", "-1", "inf", "nan")),
        *(([*TARGET, "--target-epsilon", e], "target") for e in ("0", "-1", "nan", "inf")),
        *(([*TARGET, "--delta", delta], "delta") for delta in ("0", "1", "-1", "nan")),
        ([*TARGET, "--privacy-rounds", "0"], "privacy-rounds"),
        ([*GOOD, "--privacy-rounds", "3"], "--privacy-rounds goes with --target-epsilon"),
        ([*GOOD, "--target-epsilon", "1"], "exclude each other"),
        (["--target-epsilon", "1", "--sampling-rate", "0.1", "--local-steps", "2"], "--delta needs a value"),
        (["--target-epsilon", "1e-9", *TARGET[2:]], "no noise multiplier"),
        (["--noise-multiplier", "1", "--local-steps", "2"], "--sampling-rate needs a value"),
        (["--noise-multiplier", "1", "--sampling-rate", "0.1"], "--local-steps needs a value"),
        (["--noise-multiplier", "1", "--sampling-rate", "0.1", "--local-epochs", "1"], "--local-steps needs a value"),
        (["--sampling-rate", "0.1"], "goes with --noise-multiplier"),
        (["--clip-norm", "1"], "--clip-norm goes with --noise-multiplier"),
        *(([*GOOD, "--algorithm", name], "one of fedavg") for name in ("fedpvr", "feddyn", "fednova")),
        ([*GOOD, "--algorithm", "fedsgd"], "--local-steps goes with --algorithm fedavg"),
        ([*GOOD, "--sam-rho", "0.5"], "two releases"),
        ([*GOOD, "--local-steps", "2000000000"], "steps"),
    ],
)
def test_numbers_out_of_range_are_refused_and_charge_nothing(client, fedsynth, words, said):
    out = client.private("update-0001.safetensors")
    code, _, err = fedsynth("train-client", client.model, client.data, *words, "-o", out)
    assert (code, said in err, out.exists()) == (2, True, False), err
    assert not client.charges()
