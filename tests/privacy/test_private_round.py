"""A differentially private round of `train-client` by hand, and where its randomness comes from."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import stages.methods.private_local_training as private_local_training
import stages.privacy.clipping as clipping
from artifacts.formats import tensors_file
from artifacts.identity import keys
from stages.data.images import LabelledImages, to_pixels
from stages.execution.torch_setup import arithmetic
from stages.execution.versions import versions
from stages.init_model import init_model
from stages.methods.private_gradients import SecretStreams
from stages.methods.private_local_training import private_gradients
from stages.models.file import to_module
from stages.nets.dropout import Dropout
from stages.privacy.mechanism import CLIP_MARGIN, GaussianMechanism
from stages.privacy.streams import CONTEXT, SecretStream
from stages.registry import ALGORITHMS, NETWORKS

DP = {"noise_multiplier": 0.5, "sampling_rate": 0.3, "local_steps": 3, "batch_size": 12, "learning_rate": 0.5}
CPU = torch.device("cpu")


# A round by hand.


def by_hand(client, update, params, *, variates=None, prox_in_loss=False, clip_each=False, divisor=None):
    """Abadi et al.'s Algorithm 1 as a loop, in the order of the paper; noise and coins drawn again from the key."""
    about = tensors_file.read(update).metadata
    context = {
        "inputs": [reference.to_json() for reference in about.inputs], "params": params.to_json(), "seed": 3,
        "stage": "train-client", "client": "00", "round": 1, "versions": versions("torch", "numpy", "scipy"),
        "device": "cpu", "arithmetic": arithmetic(CPU).removeprefix("cpu: "),
    }  # fmt: skip
    secret = keys.read(client.private("client.key")).secret
    coins, noise = (SecretStream(secret, context, label) for label in ("sampling", "noise"))
    module = to_module(tensors_file.read(client.model), CPU)
    weights = dict(module.named_parameters())
    start = {name: weight.detach().clone() for name, weight in weights.items()}
    momentum = {name: torch.zeros_like(weight) for name, weight in start.items()}
    content = client.digits.take(np.arange(40))
    images, labels = torch.from_numpy(to_pixels(content.images)), torch.from_numpy(content.labels)
    mechanism = GaussianMechanism(clip_norm=params.clip_norm, noise_multiplier=params.noise_multiplier, expected_size=1)
    limit = params.clip_norm * (1 - CLIP_MARGIN)
    mu = getattr(params, "mu", 0.0)
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
    # Of 120 coins with 0.3; by chance 1e-15.
    assert 3 <= sum(sizes) < 120, "the comparison needs records"
    return {name: (start[name] - weight.detach()).double() for name, weight in weights.items()}


def gap(update, wanted):
    found = tensors_file.read(update).tensors
    return max(float((torch.from_numpy(found[name].copy()).double() - wanted[name]).abs().max()) for name in wanted)


def rounding(params):
    """Half a cell of the public grid in each step, with room for what it does to later ones."""
    mechanism = GaussianMechanism(clip_norm=params.clip_norm, noise_multiplier=params.noise_multiplier, expected_size=1)
    return 2 * params.local_steps * params.learning_rate * mechanism.grid / params.batch_size


QUIET = {"noise_multiplier": 0.01, "clip_norm": 0.8}


def test_a_round_by_hand(client):
    params = ALGORITHMS.from_mapping(DP | QUIET | {"momentum": 0.5, "weight_decay": 0.01})
    update = client.train(**QUIET, momentum=0.5, weight_decay=0.01)
    assert gap(update, by_hand(client, update, params)) < rounding(params)
    assert gap(update, by_hand(client, update, params, clip_each=True)) > 10 * rounding(params)
    assert gap(update, by_hand(client, update, params, divisor=9)) > 10 * rounding(params)


def test_the_proximal_term_comes_after_clipping(client):
    """In the loss it would be clipped away with the gradient, record by record (rule 15)."""
    options = {**QUIET, "algorithm": "fedprox", "mu": 1.5}
    update = client.train(**options)
    params = ALGORITHMS.from_mapping(DP | options)
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
    params = ALGORITHMS.from_mapping(DP | options)
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
    torch.manual_seed(0)
    images, labels = torch.rand(count, 1, 8, 8) + 0.5, torch.from_numpy(some.labels)
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
    other = client.write(client.private("other.parquet"), content)
    later = client.root / "public/later.safetensors"
    init_model(client.data, later, params=NETWORKS.from_mapping({"arch": "mlp", "width": 6}), seed=2)
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
