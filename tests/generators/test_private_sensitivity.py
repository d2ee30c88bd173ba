"""By how much one record moves what a differentially private generator learns from."""

import functools
import math

import numpy as np
import pytest
import torch

import stages.methods.private_gradients as private_gradients_module
import stages.privacy.clipping as clipping
from stages.methods.draws import drawn
from stages.methods.private_gradients import SecretStreams, private_gradients
from stages.privacy.mechanism import GaussianMechanism

FAMILIES = ["ddpm", "vae", "gan"]
CLIP, EXPECTED = 0.05, 8.0


class Coupled:
    """Stands in for a stream: each record has draws of its own, whoever else is in the batch."""

    def __init__(self, ids):
        self.ids, self.calls = ids, 0

    def at(self, _step):
        return Coupled(self.ids)

    def bernoulli(self, probability, count):
        if count == len(self.ids) and not self.calls:  # the coins
            self.calls = 1
            return np.ones(count, bool)
        shape = (len(self.ids), count // max(1, len(self.ids)))
        return self._each(shape, lambda rng, size: rng.random(size) < probability).reshape(count)

    def gaussian(self, shape, scale):
        return self._each(shape, lambda rng, size: rng.standard_normal(size) * scale)

    def randint(self, below, shape):
        return self._each(shape, lambda rng, size: rng.integers(below, size=size))

    def _each(self, shape, draw):
        self.calls += 1
        drawn = [draw(np.random.default_rng([record, self.calls]), shape[1:]) for record in self.ids]
        return np.stack(drawn) if drawn else np.zeros(shape, np.int64)


class Examples(Coupled):
    def at(self, _step):
        fresh = Examples(self.ids)
        fresh.calls = 1  # no coins
        return fresh


@pytest.fixture
def released(setting, monkeypatch):
    """What a step hands to the mechanism for some records, and the gradients of all parts."""

    def of(name, ids):
        family, weights, images, labels = setting(name)
        sums = []

        def noisy_mean(total, mechanism, noise):
            sums.append(total)
            return {n: np.zeros(t.shape, np.float32) for n, t in total.items()}

        monkeypatch.setattr(clipping, "noisy_mean", noisy_mean)
        ids = list(ids)
        of.labels = labels[ids]
        gradients = private_gradients(
            family, images[ids], labels[ids], num_classes=10, sampling_rate=0.5,
            mechanism=GaussianMechanism(clip_norm=CLIP, noise_multiplier=1.0, expected_size=EXPECTED), multiplicity=2,
            streams=SecretStreams(sampling=Coupled(ids), examples=Examples(ids), noise=Coupled(ids)),
            public_of=lambda step: torch.Generator().manual_seed(step),
        )(1)  # fmt: skip
        public = {}
        for part in family.parts:
            names = [n for n in weights if n.startswith(f"{part.name}.")]
            live = {n: tensor.clone().requires_grad_(True) for n, tensor in weights.items()}
            found, _ = gradients(part, live, names)
            if not part.sees_images:
                public |= dict(zip(names, found, strict=True))
        (total,) = sums
        return total, public

    return of


def move(first, second):
    return math.sqrt(sum(float(np.square(first[name] - second[name]).sum()) for name in first))


NEIGHBOURS = [([*range(9)], removed) for removed in (0, 4, 8)] + [([3], 3), ([*range(5, 24)], 11)]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_record_moves_the_sum_by_the_clip_at_most_and_the_rest_not_at_all(released, name):
    moves = []
    for ids, removed in NEIGHBOURS:
        total, public = released(name, ids)
        less, public_less = released(name, [i for i in ids if i != removed])
        alone, _ = released(name, [removed])
        moves.append(move(total, less))
        # Whoever leaves takes his own gradient and changes no bit of the others', wherever they are then.
        assert move({n: total[n] - less[n] for n in total}, alone) < 1e-12
        assert all(torch.equal(public[n], public_less[n]) for n in public)
        assert (name == "gan") == bool(public)
    assert max(moves) <= CLIP
    assert max(moves) > 0.999 * CLIP, "the bound is reached: nothing is spent for nothing"


def largest_move(released, name):
    moves = []
    for ids, removed in NEIGHBOURS:
        total, public = released(name, ids)
        less, public_less = released(name, [i for i in ids if i != removed])
        same = all(torch.equal(public[n], public_less[n]) for n in public)
        moves.append(move(total, less) if same else math.inf)
    return max(moves)


def tensor_by_tensor(true_sum, loss, weights, examples, **options):
    parts = {}
    for name in weights:
        rest = {n: t for n, t in weights.items() if n != name}

        def one(own, *parts, rest=rest):
            return loss({**rest, **own}, *parts)

        parts |= true_sum(one, {name: weights[name]}, examples, **options)
    return parts


def by_the_realised_size(true_sum, loss, weights, examples, **options):
    total = true_sum(loss, weights, examples, **options)
    return {n: t * EXPECTED / max(1, len(examples[0])) for n, t in total.items()}


def all_draws_apart(true_sum, loss, weights, examples, **options):
    """Each draw clipped and added up, not averaged."""
    images, labels, draws = examples
    times = next(iter(draws.values())).shape[1]
    sums = [
        true_sum(loss, weights, (images, labels, {n: t[:, k : k + 1] for n, t in draws.items()}), **options)
        for k in range(times)
    ]
    return {n: sum(total[n] for total in sums) for n in weights}


@pytest.mark.parametrize("bug", [tensor_by_tensor, by_the_realised_size, all_draws_apart])
def test_the_harness_catches_a_wrong_sum(released, monkeypatch, bug):
    monkeypatch.setattr(clipping, "clipped_sum", functools.partial(bug, clipping.clipped_sum))
    assert largest_move(released, "vae") > 1.2 * CLIP


def test_the_harness_catches_labels_of_the_data_in_the_public_part(released, monkeypatch):
    assert largest_move(released, "gan") <= CLIP

    def by_frequency(family, part, weights, names, num_classes, count, generator):
        mine = released.labels if len(released.labels) else torch.arange(num_classes)
        labels = mine[torch.randint(len(mine), (count,), generator=generator)]
        draws = drawn(family.draws, count, generator)
        loss = part.losses(weights, torch.empty(count, 0), labels, draws).mean()
        return torch.autograd.grad(loss, [weights[name] for name in names]), None

    monkeypatch.setattr(private_gradients_module, "_public_gradient", by_frequency)
    assert largest_move(released, "gan") == math.inf


@pytest.mark.parametrize("name", FAMILIES)
def test_a_gradient_that_is_not_finite_counts_as_nothing_without_a_word(setting, released, monkeypatch, recwarn, name):
    ids = [*range(7)]
    family, _, _, labels = setting(name)
    kind = type(family)
    losses = "discriminator_losses" if name == "gan" else "losses"
    original = getattr(kind, losses)
    without, _ = released(name, [i for i in ids if labels[i] != labels[2]])
    warned = len(recwarn)
    for bad in (math.nan, math.inf):

        def crafted(self, weights, images, these, draws, bad=bad):
            return original(self, weights, images, these, draws) * torch.where(these == labels[2], bad, 1.0)

        monkeypatch.setattr(kind, losses, crafted)
        total, _ = released(name, ids)
        assert move(total, without) < 1e-12
    assert len(recwarn) == warned
