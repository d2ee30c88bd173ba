"""Differentially private `train-client`: a round by hand, its randomness, its states and messages, what is charged."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import stages.methods.private_local_training as private_local_training
import stages.privacy.clipping as clipping
from artifacts import keys, spend, tensors_file
from artifacts.errors import UsageError, VerificationError
from artifacts.metadata import Metadata
from stages.account import account
from stages.aggregate import aggregate
from stages.audit import audit
from stages.data.dataset_images import dataset_params, save_dataset
from stages.data.images import LabelledImages, to_pixels
from stages.data.sources import load
from stages.encode import encode
from stages.init_model import init_model
from stages.keygen import settle
from stages.methods.params.aggregation import Aggregation
from stages.methods.params.encoding import Encoding
from stages.methods.params.local_training import LocalTraining
from stages.methods.private_gradients import SecretStreams
from stages.methods.private_local_training import private_gradients
from stages.model_file import to_module
from stages.nets.dropout import Dropout
from stages.nets.params import NetParams
from stages.privacy.accountant import epsilon, planned
from stages.privacy.mechanism import CLIP_MARGIN, GaussianMechanism
from stages.privacy.streams import CONTEXT, SecretStream
from stages.torch_setup import arithmetic
from stages.train_client import train_client
from stages.versions import versions

DP = {"noise_multiplier": 0.5, "sampling_rate": 0.3, "local_steps": 3, "batch_size": 12, "learning_rate": 0.5}
CPU = torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def digits():
    return load("digits").train


def write_data(path, content, **changes):
    fields = {"kind": "dataset", "stage": "partition", "custody": "private", "client": "00", "versions": {}}
    save_dataset(path, content, Metadata(**fields | {"params": dataset_params(content)} | changes), force=True)
    return path


class Client:
    """Client 00 of a run folder, with forty digits and a small network to train."""

    def __init__(self, root, digits):
        self.root, self.base = root, root / "clients/00"
        self.digits = digits
        settle(self.base / "private/client.key", keys.simulated(0, "client 00"), force=False)
        (self.base / "outbox").mkdir()
        self.data = write_data(self.private("data.parquet"), digits.take(np.arange(40)))
        self.model = root / "public/model-0000.safetensors"
        init_model(self.data, self.model, params=NetParams(arch="mlp", width=6), seed=1)

    def private(self, name):
        return self.base / "private" / name

    def train(self, number=1, model=None, data=None, force=True, **changes):
        options = {k: changes.pop(k) for k in ("state", "server_state", "key", "seed", "report") if k in changes}
        params = LocalTraining(**{**DP, **changes})
        out = self.private(f"update-{number:04}.safetensors")
        if params.algorithm == "scaffold":
            options["state_out"] = self.private(f"state-{number:04}.safetensors")
        train_client(
            model or self.model, data or [self.data], out, params=params, force=force, **{"seed": 3, **options}
        )
        return out

    def send(self, update, model=None, **params):
        out = self.base / "outbox" / f"{'state' if params else 'message'}-{update.stem[-4:]}.safetensors"
        previous = params.pop("previous", None)
        encode(model or self.model, update, out, params=Encoding(**params), previous=previous, force=True)
        return out

    def next_model(self, messages, number, model=None):
        out = self.root / f"server/outbox/model-{number:04}.safetensors"
        aggregate(model or self.model, messages, out, params=Aggregation())
        return out

    def ledger(self):
        return [json.loads(line) for line in spend.beside(self.private("client.key")).read_text().splitlines()]

    def charges(self):
        return [entry["events"][0] for entry in self.ledger() if entry["entry"] == "reserved"]


@pytest.fixture
def client(tmp_path, digits):
    return Client(tmp_path, digits)


def events(path):
    return tensors_file.read(path).metadata.privacy


# A round by hand.


def by_hand(client, update, params, *, variates=None, prox_in_loss=False, clip_each=False, divisor=None):
    """Abadi et al.'s Algorithm 1 as a loop, in the order of the paper; noise and coins drawn again from the key."""
    about = tensors_file.read(update).metadata
    context = {
        "inputs": [reference.to_json() for reference in about.inputs], "params": params.to_json(), "seed": 3,
        "stage": "train-client", "client": "00", "round": 1, "versions": versions("torch", "numpy", "scipy"),
        "device": "cpu", "arithmetic": arithmetic(CPU),
    }  # fmt: skip
    secret = keys.read(client.private("client.key")).secret
    coins, noise = (SecretStream(secret, context, label) for label in ("sampling", "noise"))
    module = to_module(tensors_file.read(client.model), CPU)
    weights = dict(module.named_parameters())
    start = {name: weight.detach().clone() for name, weight in weights.items()}
    momentum = {name: torch.zeros_like(weight) for name, weight in start.items()}
    content = client.digits.take(np.arange(40))
    images, labels = torch.from_numpy(to_pixels(content.images)), torch.from_numpy(content.labels)
    mechanism = GaussianMechanism(
        clip_norm=params.clip_length, noise_multiplier=params.noise_multiplier, expected_size=1
    )
    limit = params.clip_length * (1 - CLIP_MARGIN)
    mu = params.proximal_weight if params.algorithm == "fedprox" else 0.0
    sizes = []
    for step in range(1, params.local_steps + 1):
        rows = np.flatnonzero(coins.at(step).bernoulli(params.sampling_rate, 40))
        sizes.append(len(rows))
        total = {name: torch.zeros(weight.shape, dtype=torch.float64) for name, weight in weights.items()}
        for row in rows:
            loss = cross_entropy(module(images[row][None]), labels[row][None])
            if prox_in_loss:
                loss = loss + mu / 2 * sum((weights[n] - start[n]).square().sum() for n in weights)
            found = dict(zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True))
            norm = math.sqrt(sum(float(g.double().square().sum()) for g in found.values()))
            for name, gradient in found.items():
                length = float(gradient.double().norm()) if clip_each else norm
                total[name] += gradient.double() * min(1.0, limit / max(length, 1e-12))
        source = noise.at(step)
        for name in sorted(weights):
            total[name] += torch.from_numpy(source.gaussian(tuple(total[name].shape), mechanism.scale))
        for name, weight in weights.items():
            gradient = (total[name] / (divisor or params.batch_size)).float()
            if not prox_in_loss:
                gradient = gradient + mu * (weight.detach() - start[name])
            if variates is not None:
                gradient = gradient - variates[0][name] + variates[1][name]
            gradient = gradient + params.weight_decay * weight.detach()
            momentum[name] = params.momentum * momentum[name] + gradient
            weight.data -= params.learning_rate * momentum[name]
    assert min(sizes) >= 3, "the comparison needs records"
    assert max(sizes) < 40
    return {name: (start[name] - weight.detach()).double() for name, weight in weights.items()}


def gap(update, wanted):
    found = tensors_file.read(update).tensors
    return max(float((torch.from_numpy(found[name].copy()).double() - wanted[name]).abs().max()) for name in wanted)


def rounding(params):
    """Half a cell of the public grid in each step, with room for what it does to later ones."""
    mechanism = GaussianMechanism(
        clip_norm=params.clip_length, noise_multiplier=params.noise_multiplier, expected_size=1
    )
    return 2 * params.local_steps * params.learning_rate * mechanism.grid / params.batch_size


QUIET = {"noise_multiplier": 0.01, "clip_norm": 0.8}


def test_a_round_by_hand(client):
    params = LocalTraining(**DP | QUIET, momentum=0.5, weight_decay=0.01)
    update = client.train(**QUIET, momentum=0.5, weight_decay=0.01)
    assert gap(update, by_hand(client, update, params)) < rounding(params)
    assert gap(update, by_hand(client, update, params, clip_each=True)) > 10 * rounding(params)
    assert gap(update, by_hand(client, update, params, divisor=9)) > 10 * rounding(params)


def test_the_proximal_term_comes_after_clipping(client):
    """In the loss it would be clipped away with the gradient, record by record (rule 15)."""
    options = {**QUIET, "algorithm": "fedprox", "mu": 1.5}
    update = client.train(**options)
    params = LocalTraining(**DP | options)
    assert gap(update, by_hand(client, update, params)) < 2 * rounding(params)
    assert gap(update, by_hand(client, update, params, prox_in_loss=True)) > 10 * rounding(params)


def test_the_variates_come_after_clipping_and_the_state_is_made_of_noised_steps(client, forge):
    """SCAFFOLD, option II: c⁺ = c_i − c + (x − y)/(K·η), with an earlier state that carries its event."""
    options = {**QUIET, "algorithm": "scaffold"}
    first = client.train(1, **options)
    server = client.root / "server/outbox/state-0001.safetensors"
    shift = {n: np.full_like(t, 0.02) for n, t in tensors_file.read(first).tensors.items()}
    forge.write_tensors(server, shift, kind="state", custody="downlink", round=1)
    mine = client.private("state-0001.safetensors")
    kept = {n: t * 30 for n, t in tensors_file.read(mine).tensors.items()}  # large, so that it shows
    about = tensors_file.read(mine).metadata
    tensors_file.write(mine, kept, about, force=True)
    update = client.train(2, **options, state=mine, server_state=server)
    params = LocalTraining(**DP | options)
    variates = [{n: torch.from_numpy(t.copy()) for n, t in part.items()} for part in (kept, shift)]
    assert gap(update, by_hand(client, update, params, variates=variates)) < 2 * rounding(params)
    assert gap(update, by_hand(client, update, params)) > 10 * rounding(params)
    state = tensors_file.read(client.private("state-0002.safetensors")).tensors
    for name, change in tensors_file.read(update).tensors.items():
        np.testing.assert_allclose(state[name], kept[name] - shift[name] + change / (3 * 0.5), atol=1e-5)


# Randomness.


class Dropping(nn.Module):
    """Inputs dropped, then a linear layer: the gradient shows which."""

    def __init__(self):
        super().__init__()
        self.drop, self.linear = Dropout(0.5), nn.Linear(64, 10)

    def forward(self, x):
        return self.linear(self.drop(x.flatten(1)))


def dropped_inputs(digits, seed=0, count=150):
    """The inputs without a gradient in each of three steps, over three chunks of examples."""
    some = digits.take(np.arange(count))
    images, labels = torch.rand(count, 1, 8, 8) + 0.5, torch.from_numpy(some.labels)
    torch.manual_seed(0)
    module = Dropping()
    streams = [
        SecretStream(bytes(32), dict.fromkeys(CONTEXT, seed), label) for label in ("sampling", "examples", "noise")
    ]
    steps = private_gradients(
        module, images, labels, steps=3, sampling_rate=1.0,
        mechanism=GaussianMechanism(clip_norm=100.0, noise_multiplier=1e-6, expected_size=1),
        streams=SecretStreams(sampling=streams[0], examples=streams[1], noise=streams[2]),
    )  # fmt: skip
    found = []
    for step in steps:
        step()
        found.append(tuple((module.linear.weight.grad.abs().amax(0) < 0.01).tolist()))
    return found


def test_all_records_of_a_step_share_one_secret_dropout_mask(digits, monkeypatch):
    masks = dropped_inputs(digits)
    assert all(15 < sum(mask) < 50 for mask in masks), "half of 64, in all three chunks the same"
    assert len(set(masks)) == 3, "each step has its own"
    assert dropped_inputs(digits) == masks
    assert dropped_inputs(digits, seed=1) != masks, "it comes from the secret stream"

    # A mask for each chunk, and none is left that all share.
    whole = clipping.clipped_sum

    def by_chunks(loss, weights, examples, *, shared, **options):
        parts = []
        for start in range(0, len(examples[0]), 64):
            shared.manual_seed(start)
            parts.append(
                whole(loss, weights, [part[start : start + 64] for part in examples], shared=shared, **options)
            )
        return {name: sum(part[name] for part in parts) for name in weights}

    monkeypatch.setattr(clipping, "clipped_sum", by_chunks)
    assert all(sum(mask) < 15 for mask in dropped_inputs(digits))


def test_whatever_changes_changes_the_noise(client, monkeypatch):
    """Coins, masks and noise: three streams that share nothing, and none of which comes back in another round."""
    seen = []

    class Seized(Exception):
        pass

    def seize(*arguments, streams, **options):
        seen.append([tuple(getattr(streams, n).at(1).uniform_bits(4)) for n in ("sampling", "examples", "noise")])
        raise Seized

    monkeypatch.setattr(private_local_training, "private_gradients", seize)
    touched = client.digits.images[:40].copy()
    touched[7, 0, 3, 3] ^= 1
    content = LabelledImages(touched, client.digits.labels[:40], client.digits.class_names)
    other = write_data(client.private("other.parquet"), content)
    later = client.root / "public/later.safetensors"
    init_model(client.data, later, params=NetParams(arch="mlp", width=6), seed=2)
    runs = [
        {}, {"data": [other]}, {"model": later}, {"seed": 4}, {"learning_rate": 0.4}, {"noise_multiplier": 0.6},
        {"sampling_rate": 0.31}, {"local_steps": 4}, {"clip_norm": 2.0}, {"batch_size": 13}, {"update_bound": 1.0},
        {"algorithm": "fedprox"}, {"algorithm": "scaffold"},
    ]  # fmt: skip
    for changes in [*runs, {}]:
        with pytest.raises(Seized):
            client.train(**changes)
    words = [words for each in seen[:-1] for words in each]
    assert len(set(words)) == 3 * len(runs)
    assert seen[-1] == seen[0]


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


def test_how_many_records_there_are_is_told_nowhere(client, fedsynth):
    told = []
    update = client.train(report=lambda done, total, text: told.append(text))
    assert set(told) == {""}, "no loss"
    for flag in ("--tell-examples", "--tell-steps"):
        code, _, err = fedsynth(
            "encode", client.model, update, flag, "-o", client.base / "outbox/message-0001.safetensors"
        )
        assert (code, "does not say its" in err) == (3, True)
    fewer = write_data(client.private("fewer.parquet"), client.digits.take(np.arange(7)))
    same = [tensors_file.read(client.train(data=[path])).metadata for path in (client.data, fewer)]
    blank = [dataclasses.replace(about, inputs=(), privacy=()) for about in same]
    assert blank[0] == blank[1]


def test_update_and_state_are_one_release_and_bring_earlier_ones_with_them(client):
    """SCAFFOLD over two rounds: four files, two events."""
    options = {"algorithm": "scaffold"}
    first, states = client.train(1, **options), [client.private(f"state-{n:04}.safetensors") for n in (1, 2)]
    assert events(first) == events(states[0])
    client.send(first)
    client.send(states[0], method="state")
    model = client.next_model([client.base / "outbox/message-0001.safetensors"], 1)
    server = client.root / "server/outbox/state-0001.safetensors"
    aggregate(
        client.model, [client.base / "outbox/state-0001.safetensors"], server, params=Aggregation(clients=1),
        result="state",
    )  # fmt: skip
    second = client.train(2, model, **options, state=states[0], server_state=server)
    assert events(second) == events(states[1])
    assert [event["id"] == events(first)[0]["id"] for event in events(second)] == [True, False]
    sent = [client.send(second, model), client.send(states[1], model, method="state", previous=states[0])]
    assert all(events(path) == events(second) for path in sent)
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
    assert events(first)[0]["id"] != events(second)[0]["id"]
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
    assert client.charges()[0] == events(update)[0] | {"id": "0" * 64}


def test_it_is_charged_before_a_record_is_read(client, monkeypatch):
    import stages.train_client as module

    class Read(Exception):
        pass

    def load_dataset(path):
        raise Read

    monkeypatch.setattr(module, "load_dataset", load_dataset)
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
    (event,) = events(client.train(**options))
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


# Edge cases.


def test_a_client_without_records_sends_noise_and_pays(client, has_scale):
    empty = write_data(client.private("empty.parquet"), client.digits.take(np.arange(0)))
    model = client.root / "public/softmax.safetensors"
    init_model(client.data, model, params=NetParams(arch="softmax"), seed=1)
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
    other = write_data(client.private("more.parquet"), client.digits.take(np.arange(40, 60)))
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
    clipping.refuse_batch_norm(skeleton(NetParams(arch="resnet18"), shape).train())
    with pytest.raises(ValueError, match="batch norm"):
        clipping.refuse_batch_norm(skeleton(NetParams(arch="vgg13"), shape).train())


def test_what_was_made_without_privacy_is_no_input(client, fedsynth):
    """A state, a synthetic set, a model of the client's own, and its state in the place of the server's."""
    plain = {"noise_multiplier": None, "sampling_rate": None}
    update = client.train(1, algorithm="scaffold", **plain)
    state = client.private("state-0001.safetensors").rename(client.private("plain-state.safetensors"))
    made = write_data(
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
    made = write_data(
        client.private("synthetic.parquet"), client.digits.take(np.arange(5)), stage="synthesize", privacy=(event,)
    )
    found = events(client.train(data=[client.data, made]))
    assert found[0] == event
    assert len(found) == 2
    dealt = write_data(
        client.root / "server/outbox/dealt.parquet", client.digits.take(np.arange(5, 9)), custody="downlink",
        client=None, stage="shuffle", disclosures=("derived_images",),
    )  # fmt: skip
    assert len(events(client.train(data=[client.data, dealt]))) == 1, "what the server dealt out has left before"


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
        ([*GOOD, "--privacy-rounds", "3"], "--target-epsilon only"),
        ([*GOOD, "--target-epsilon", "1"], "exclude each other"),
        (["--target-epsilon", "1", "--sampling-rate", "0.1", "--local-steps", "2"], "--delta needs a value"),
        (["--target-epsilon", "1e-9", *TARGET[2:]], "no noise multiplier"),
        (["--noise-multiplier", "1", "--local-steps", "2"], "--sampling-rate needs a value"),
        (["--noise-multiplier", "1", "--sampling-rate", "0.1"], "--local-steps needs a value"),
        (["--noise-multiplier", "1", "--sampling-rate", "0.1", "--local-epochs", "1"], "--local-steps needs a value"),
        (["--sampling-rate", "0.1"], "given with --noise-multiplier"),
        (["--clip-norm", "1"], "given with --noise-multiplier"),
        *(([*GOOD, "--algorithm", name], "one of fedavg") for name in ("fedpvr", "feddyn", "fednova", "fedsgd")),
        ([*GOOD, "--sam-rho", "0.5"], "two releases"),
        ([*GOOD, "--local-steps", "2000000000"], "steps"),
    ],
)
def test_numbers_out_of_range_are_refused_and_charge_nothing(client, fedsynth, words, said):
    out = client.private("update-0001.safetensors")
    code, _, err = fedsynth("train-client", client.model, client.data, *words, "-o", out)
    assert (code, said in err, out.exists()) == (2, True, False), err
    assert not client.charges()
