"""A generator that protects people: what one person moves, who is drawn, what is charged and refused."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import stages.privacy.clipping as clipping
from artifacts.errors import InputError
from artifacts.formats import tensors_file
from stages.generators.private import PrivateTraining
from stages.methods.private_gradients import SecretStreams, private_gradients
from stages.privacy.mechanism import GaussianMechanism
from stages.train_generator import train_generator

CLIP = 0.05
WHOSE = np.array([0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 2])


class ByRecord:
    """Stands in for a stream: everybody is drawn, and each record has draws of its own, whoever else is there."""

    def __init__(self, ids):
        self.ids, self.calls = ids, 0

    def at(self, _step):
        return ByRecord(self.ids)

    def bernoulli(self, probability, count):
        if count % len(self.ids) or not self.calls:
            return np.ones(count, bool)
        return self._each((len(self.ids), count // len(self.ids)), lambda rng, s: rng.random(s) < probability).ravel()

    def gaussian(self, shape, scale):
        return self._each(shape, lambda rng, size: rng.standard_normal(size) * scale)

    def randint(self, below, shape):
        return self._each(shape, lambda rng, size: rng.integers(below, size=size))

    def _each(self, shape, draw):
        self.calls += 1
        return np.stack([draw(np.random.default_rng([record, self.calls]), shape[1:]) for record in self.ids])


@pytest.mark.parametrize("name", ["ddpm", "vae", "gan"])
def test_a_person_moves_the_sum_by_the_clip_at_most(setting, monkeypatch, name):
    family, weights, images, labels = setting(name, len(WHOSE))

    def summed(ids, *, people=True):
        sums = []
        monkeypatch.setattr(
            clipping, "noisy_mean",
            lambda total, *_: (sums.append(total), {n: np.zeros(t.shape, np.float32) for n, t in total.items()})[1],
        )  # fmt: skip
        _, units = np.unique(WHOSE[ids], return_inverse=True)
        gradients = private_gradients(
            family, images[ids], labels[ids], units=torch.from_numpy(units) if people else None, num_classes=10,
            sampling_rate=0.5, mechanism=GaussianMechanism(clip_norm=CLIP, noise_multiplier=1.0, expected_size=2),
            multiplicity=1, streams=SecretStreams(**{n: ByRecord(ids) for n in ("sampling", "examples", "noise")}),
            public_of=lambda step: torch.Generator().manual_seed(step),
        )(1)  # fmt: skip
        part = next(part for part in family.parts if part.sees_images)
        names = [n for n in weights if n.startswith(f"{part.name}.")]
        gradients(part, {n: tensor.clone().requires_grad_(True) for n, tensor in weights.items()}, names)
        return sums[0]

    everyone = list(range(len(WHOSE)))
    for person in range(3):
        rest = [row for row in everyone if WHOSE[row] != person]
        first, second = summed(everyone), summed(rest)
        assert 0.99 * CLIP < math.sqrt(sum(float(np.square(first[n] - second[n]).sum()) for n in first)) <= CLIP
    first, second = (summed(ids, people=False) for ids in (everyone, everyone[:5]))
    assert math.sqrt(sum(float(np.square(first[n] - second[n]).sum()) for n in first)) > CLIP, "record by record"


def test_the_file_and_the_ledger_say_person(tmp_path, digits, quick, make_client, ledger_of, monkeypatch):
    content = dataclasses.replace(digits.take(np.arange(24)), units=np.repeat(np.arange(6), 4))
    data = make_client(tmp_path, content)
    dp = {"noise_multiplier": 1.0, "sampling_rate": 0.5, "steps": 2, "batch_size": 3, "data_fraction": 0.5}
    params = quick("vae", **dp, unit="person")
    kept = []
    subset = PrivateTraining.subset

    def watched(self, units, share):
        kept.append(units[subset(self, units, share)])
        return subset(self, units, share)

    monkeypatch.setattr(PrivateTraining, "subset", watched)
    out = data.with_name("vae.safetensors")
    train_generator([data], out, params=params, seed=1)
    (event,) = tensors_file.read(out).metadata.privacy
    assert (event["unit"], event["steps"], event["adjacency"]) == ("person", 2, "add-or-remove")
    assert [entry["events"][0]["unit"] for entry in ledger_of(data) if entry["entry"] == "reserved"] == ["person"]
    assert all(count in (0, 4) for count in np.bincount(kept[0], minlength=6)), "the share is of people, whole"
    bare = make_client(tmp_path, digits.take(np.arange(24)), "01")
    with pytest.raises(InputError, match="does not say whose its records are"):
        train_generator([bare], bare.with_name("vae.safetensors"), params=params, seed=1)
