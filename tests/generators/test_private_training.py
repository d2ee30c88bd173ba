"""Differentially private `train-generator`: the gradient by hand, its sensitivity, its randomness, what is charged."""

import functools
import json
import math

import numpy as np
import pytest
import torch
from scipy import stats

import stages.methods.private_gradients as private_gradients_module
import stages.privacy.clipping as clipping
import stages.torch_setup
import stages.train_generator
from artifacts import keys, spend, tensors_file
from artifacts.errors import InputError, UsageError, VerificationError
from stages.data.images import LabelledImages, to_pixels
from stages.generator_file import CLASS_COUNTS, family_of
from stages.keygen import settle
from stages.methods.draws import Draw, drawn, secretly_drawn
from stages.methods.params.generator import GeneratorTraining
from stages.methods.private_gradients import SecretStreams, private_gradients
from stages.methods.vae import Vae
from stages.nets.generator_params import ImageShape
from stages.privacy.mechanism import CLIP_MARGIN, GaussianMechanism
from stages.privacy.streams import CONTEXT, SecretStream
from stages.train_generator import train_generator

FAMILIES = ["ddpm", "vae", "gan"]
SHAPE = ImageShape(channels=1, height=8, width=8, num_classes=10)
CLIP, EXPECTED = 0.05, 8.0
NOISY = {"noise_multiplier": 1.0, "sampling_rate": 0.3}
CHANCE = 1e-6  # the draws are fixed: a test that passes passes always


def stream(label, seed=0):
    return SecretStream(bytes(range(32)), dict.fromkeys(CONTEXT, seed), label)


@pytest.fixture(scope="module")
def setting(digits, quick):
    """A family, weights and records: enough of what a step sees."""

    def make(name, count=24):
        family = family_of(quick(name), SHAPE)
        weights = family.initial(torch.Generator().manual_seed(4))
        some = digits.take(np.arange(count))
        return family, weights, torch.from_numpy(to_pixels(some.images)), torch.from_numpy(some.labels)

    return make


def private_part(family, weights):
    (part,) = [part for part in family.parts if part.sees_images]
    return part, [name for name in weights if name.startswith(f"{part.name}.")]


# One step, by hand.


def by_hand(family, weights, images, labels, rows, draws, clip, *, clip_each_draw=False):
    """Σ over the rows of the clipped gradient of the mean loss over the draws: a plain loop with autograd."""
    part, names = private_part(family, weights)
    limit = clip * (1 - CLIP_MARGIN)
    live = {name: tensor.clone().requires_grad_(name in names) for name, tensor in weights.items()}

    def clipped(gradient):
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in gradient))
        return [g.double() * min(1.0, limit / norm) for g in gradient]

    total = [torch.zeros_like(weights[name], dtype=torch.float64) for name in names]
    for position, row in enumerate(rows):
        times = next(iter(draws.values())).shape[1]
        found = []
        for k in range(times):
            mine = {name: tensor[position, k][None] for name, tensor in draws.items()}
            loss = part.losses(live, images[row][None], labels[row][None], mine).sum()
            found.append(torch.autograd.grad(loss, [live[name] for name in names]))
        if clip_each_draw:
            found = [clipped(gradient) for gradient in found]
        mean = [sum(parts) / times for parts in zip(*found, strict=True)]
        total = [t + g for t, g in zip(total, mean if clip_each_draw else clipped(mean), strict=True)]
    return dict(zip(names, total, strict=True))


@pytest.mark.parametrize(("name", "clip"), [("ddpm", CLIP), ("vae", CLIP), ("gan", CLIP), ("vae", 300.0)])
def test_a_step_is_the_noised_sum_of_clipped_means(setting, name, clip):
    family, weights, images, labels = setting(name)
    times, step = 3, 7
    mechanism = GaussianMechanism(clip_norm=clip, noise_multiplier=1e-3, expected_size=EXPECTED)
    gradients = private_gradients(
        family, images, labels, num_classes=10, sampling_rate=0.25, mechanism=mechanism, multiplicity=times,
        streams=SecretStreams(sampling=stream("sampling"), examples=stream("examples"), noise=stream("noise")),
        public_of=lambda step: torch.Generator().manual_seed(step),
    )  # fmt: skip
    part, names = private_part(family, weights)
    found, loss = gradients(step)(part, weights, names)
    assert loss is None, "the loss of a private batch is never computed"

    rows = np.flatnonzero(stream("sampling").at(step).bernoulli(0.25, len(labels)))
    assert 3 <= len(rows) < len(labels)
    draws = secretly_drawn(family.draws, len(rows), times, stream("examples").at(step))
    total = by_hand(family, weights, images, labels, rows, draws, clip)
    source = stream("noise").at(step)
    noise = {n: torch.from_numpy(source.gaussian(tuple(total[n].shape), mechanism.scale)) for n in sorted(total)}
    wanted = {n: (total[n] + noise[n]) / EXPECTED for n in names}
    spacing = mechanism.grid / EXPECTED
    for n, gradient in zip(names, found, strict=True):
        assert gradient.dtype == torch.float32
        assert torch.allclose(gradient.double(), wanted[n], rtol=0, atol=spacing), n

    # The comparison is fine enough to tell the draws clipped one by one from their clipped mean, and a missing record.
    apart = by_hand(family, weights, images, labels, rows, draws, clip, clip_each_draw=True)
    fewer = by_hand(family, weights, images, labels, rows[:-1], {n: t[:-1] for n, t in draws.items()}, clip)
    for wrong in (apart, fewer) if clip == CLIP else (fewer,):  # a clip that nobody reaches leaves all as it is
        gaps = [float(((wrong[n] - total[n]) / EXPECTED).abs().max()) for n in names]
        assert max(gaps) > 5 * spacing


def test_a_gans_generator_learns_from_public_labels_and_codes(setting):
    """Its gradient by hand, from a generator that everyone may know; records and streams are not even there."""
    family, weights, _, _ = setting("gan")
    nothing = {"images": torch.empty(0, 1, 8, 8), "labels": torch.empty(0, dtype=torch.int64)}
    gradients = private_gradients(
        family, **nothing, num_classes=10, sampling_rate=0.25, multiplicity=2,
        mechanism=GaussianMechanism(clip_norm=CLIP, noise_multiplier=1.0, expected_size=300.0),
        streams=SecretStreams(sampling=stream("sampling"), examples=stream("examples"), noise=stream("noise")),
        public_of=lambda step: torch.Generator().manual_seed(step),
    )  # fmt: skip
    (part,) = [part for part in family.parts if not part.sees_images]
    live = {name: tensor.clone().requires_grad_(True) for name, tensor in weights.items()}
    names = [name for name in weights if name.startswith("generator.")]
    found, loss = gradients(5)(part, live, names)
    assert loss is None
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(10, (300,), generator=generator)
    assert stats.chisquare(torch.bincount(labels, minlength=10)).pvalue > CHANCE
    draws = drawn(family.draws, 300, generator)
    mean = part.losses(live, torch.empty(300, 0), labels, draws).mean()
    wanted = torch.autograd.grad(mean, [live[name] for name in names])
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


# Sensitivity.


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
        # Whoever leaves takes his own gradient and changes no bit of the others', wherever they stand then.
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

    def by_frequency(family, part, weights, names, num_classes, mechanism, generator):
        count = round(mechanism.expected_size)
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


# The laws of the draws.


def has_scale(draws, scale):
    square = float(np.square(draws / scale).sum())
    return min(stats.chi2.cdf(square, draws.size), stats.chi2.sf(square, draws.size)) > CHANCE


def test_secret_draws_have_their_laws_and_no_others():
    declared = {
        "noise": Draw(law="normal", shape=(5, 4)),
        "time": Draw(law="integer", below=7),
        "mask": Draw(law="keep", shape=(11,), probability=0.8),
    }
    found = secretly_drawn(declared, 2000, 3, stream("examples"))
    assert {name: tuple(t.shape) for name, t in found.items()} == {
        "noise": (2000, 3, 5, 4), "time": (2000, 3), "mask": (2000, 3, 11),
    }  # fmt: skip
    assert [found[n].dtype for n in ("noise", "time", "mask")] == [torch.float32, torch.int64, torch.bool]
    noise = found["noise"].double().numpy().ravel()
    assert has_scale(noise, 1.0)
    assert not has_scale(noise, 1.02)
    assert not has_scale(noise, 0.98)
    assert stats.kstest(noise, stats.norm.cdf).pvalue > CHANCE
    times = np.bincount(found["time"].numpy().ravel(), minlength=7)
    assert len(times) == 7
    assert stats.chisquare(times).pvalue > CHANCE
    assert stats.chisquare([*times[:-1].tolist(), times[-1] + 400, 0]).pvalue < CHANCE
    kept = int(found["mask"].sum())
    assert stats.binomtest(kept, found["mask"].numel(), 0.8).pvalue > CHANCE
    assert stats.binomtest(kept, found["mask"].numel(), 0.79).pvalue < CHANCE
    # No two examples, and no two draws of one, share a number.
    assert len(np.unique(noise)) > 0.999 * noise.size
    again = secretly_drawn(declared, 2000, 3, stream("examples"))
    assert all(torch.equal(found[name], again[name]) for name in found)
    other = secretly_drawn(declared, 2000, 3, stream("examples", seed=1))
    assert abs(float(np.corrcoef(noise, other["noise"].double().numpy().ravel())[0, 1])) < 0.02
    assert all(len(tensor) == 0 for tensor in secretly_drawn(declared, 0, 3, stream("examples")).values())


# The command's own course.


class Stopped(Exception):
    """What a test raises in the middle of a training."""


def stop_at(step):
    def report(done, total, text):
        assert text == "", "the loss of a private batch is not told"
        if done == step:
            raise Stopped

    return report


def train(data, out, params, **options):
    return train_generator([data], out, params=params, **{"seed": 3, **options})


@pytest.fixture
def noisy(quick):
    return lambda family="vae", **changed: quick(family, **{**NOISY, "steps": 4, **changed})


def ledger_of(data):
    return [json.loads(line) for line in spend.beside(data.with_name("client.key")).read_text().splitlines()]


def kinds_of(data):
    return [entry["entry"] for entry in ledger_of(data)]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_file_and_the_ledger_say_what_was_done(client, noisy, name):
    out = client.with_name("generator.safetensors")
    summary = train(client, out, noisy(name, delta=1e-5, clip_norm=0.7))
    found = tensors_file.read(out, kind="generator")
    about = found.metadata
    (event,) = about.privacy
    assert event.items() >= {
        "unit": "record", "adjacency": "add-or-remove", "mechanism": "sampled-gaussian", "sampling": "poisson",
        "sampling_rate": 0.3, "noise_multiplier": 1.0, "clip_norm": 0.7, "steps": 4, "trust": "nobody",
    }.items()  # fmt: skip
    assert (about.custody, about.counts, about.disclosures, about.simulation) == ("private", {}, (), True)
    assert CLASS_COUNTS not in found.tensors
    assert about.versions.keys() >= {"fedsynth", "torch", "numpy", "scipy"}
    assert "images" not in summary, "how many there were is not told"
    assert "epsilon" in summary
    opened, reserved, released = ledger_of(client)
    assert (opened["entry"], reserved["entry"], released["entry"]) == ("opened", "reserved", "released")
    assert reserved["events"] == [event | {"id": "0" * 64}]
    assert reserved["data"] == [reference.sha256 for reference in about.inputs]
    assert released["context"] == reserved["context"]


def test_the_same_key_gives_the_same_bytes_and_another_key_others(client, noisy):
    paths = [client.with_name(f"{n}.safetensors") for n in range(3)]
    train(client, paths[0], noisy())
    train(client, paths[1], noisy())
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert kinds_of(client).count("reserved") == 1, "an identical rerun is free"
    settle(client.with_name("client.key"), keys.generate(), force=True)
    train(client, paths[2], noisy())
    first, other = (tensors_file.read(path) for path in (paths[0], paths[2]))
    assert all(not np.array_equal(first.tensors[n], other.tensors[n]) for n in first.tensors)
    assert first.metadata.privacy[0]["id"] != other.metadata.privacy[0]["id"]
    assert not other.metadata.simulation
    assert kinds_of(client).count("reserved") == 2


@pytest.fixture
def first_draws(monkeypatch):
    """The first words of the three streams that a training draws from."""

    def of(data, params, **options):
        seen = {}

        def seize(family, images, labels, *, streams, **rest):
            for name in ("sampling", "examples", "noise"):
                seen[name] = tuple(getattr(streams, name).at(1).uniform_bits(4).tolist())
            raise Stopped

        with monkeypatch.context() as patch:
            patch.setattr(private_gradients_module, "private_gradients", seize)
            with pytest.raises(Stopped):
                train(data, data.with_name("never.safetensors"), params, **options)
        return seen

    return of


def test_whatever_changes_changes_the_noise(client, digits, noisy, first_draws, make_client, tmp_path, monkeypatch):
    images = digits.images[:40].copy()
    images[7, 0, 3, 3] ^= 1
    touched = make_client(tmp_path / "touched", LabelledImages(images, digits.labels[:40], digits.class_names))
    relabelled = digits.labels[:40].copy()
    relabelled[0] = 9 - relabelled[0]
    other = make_client(tmp_path / "other", LabelledImages(digits.images[:40], relabelled, digits.class_names))
    fewer = make_client(tmp_path / "fewer", digits.take(np.arange(39)))
    found = [
        first_draws(client, noisy()),
        first_draws(touched, noisy()),
        first_draws(other, noisy()),
        first_draws(fewer, noisy()),
        first_draws(client, noisy(), seed=4),
        first_draws(client, noisy(), client="07"),
        first_draws(client, noisy(learning_rate=0.5)),
        first_draws(client, noisy(steps=5)),
        first_draws(client, noisy(noise_multiplier=1.5)),
        first_draws(client, noisy(clip_norm=2.0)),
        first_draws(client, noisy(sampling_rate=0.31)),
        first_draws(client, noisy(noise_multiplicity=2)),
        first_draws(client, noisy(data_fraction=0.5)),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(stages.train_generator, "versions", lambda *names: dict.fromkeys(("fedsynth", *names), "9"))
        found.append(first_draws(client, noisy()))
    with monkeypatch.context() as patch:
        patch.setattr(stages.torch_setup, "arithmetic", lambda device: "float32 by hand")
        found.append(first_draws(client, noisy()))
    assert first_draws(client, noisy()) == found[0]
    words = [draws for each in found for draws in each.values()]
    assert len(set(words)) == 3 * len(found), "and the three purposes never share a stream"


@pytest.mark.parametrize("name", FAMILIES)
def test_killed_and_resumed_it_ends_with_the_same_bytes_and_is_charged_once(client, noisy, name):
    params = noisy(name)
    whole, out = client.with_name("whole.safetensors"), client.with_name("stopped.safetensors")
    with pytest.raises(Stopped):
        train(client, out, params, checkpoint_every=2, report=stop_at(3))
    assert kinds_of(client) == ["opened", "reserved"]
    assert train(client, out, params)["resumed_from"] == 2
    train(client, whole, params, checkpoint_every=0)
    assert out.read_bytes() == whole.read_bytes()
    assert kinds_of(client) == ["opened", "reserved", "released"]


@pytest.mark.parametrize("changed", ["key", "machine"])
def test_a_training_does_not_go_on_under_other_noise(client, noisy, monkeypatch, changed):
    """Half of it under one noise, half under another: a second result under the second noise."""
    out = client.with_name("stopped.safetensors")
    with pytest.raises(Stopped):
        train(client, out, noisy(), checkpoint_every=2, report=stop_at(3))
    if changed == "key":
        settle(client.with_name("client.key"), keys.generate(), force=True)
    else:
        monkeypatch.setattr(stages.torch_setup, "arithmetic", lambda device: "float32 by hand")
    with pytest.raises(InputError, match="with other key or machine"):
        train(client, out, noisy())
    assert train(client, out, noisy(), force=True)["resumed_from"] == 0
    fresh = client.with_name("fresh.safetensors")
    train(client, fresh, noisy())
    assert fresh.read_bytes() == out.read_bytes()


def test_generators_kept_on_the_way(client, noisy):
    out, params = client.with_name("generator.safetensors"), noisy("gan")
    train(client, out, params, keep_at=[2, 3])
    with pytest.raises(Stopped):
        train(client, client.with_name("again.safetensors"), params, checkpoint_every=2, report=stop_at(3))
    state = tensors_file.read(client.with_name("again.safetensors.checkpoint")).tensors
    kept = tensors_file.read(client.with_name("generator-00002.safetensors"), kind="generator")
    for name, tensor in kept.tensors.items():
        assert np.array_equal(tensor, state[f"average.{name}"]), "the longer training as it stood after two steps"
    events = [
        tensors_file.read(client.with_name(f"generator{suffix}.safetensors")).metadata.privacy[0]
        for suffix in ("-00002", "-00003", "")
    ]
    assert [event["steps"] for event in events] == [2, 3, 4]
    assert len({event["id"] for event in events}) == 3
    assert kept.metadata.params["steps"] == 2
    assert [entry.get("part") for entry in ledger_of(client)] == [None, None, "step 2", "step 3", "step 4"]
    shorter = client.with_name("shorter.safetensors")
    train(client, shorter, noisy("gan", steps=2))
    other = tensors_file.read(shorter).tensors
    assert all(not np.array_equal(other[n], kept.tensors[n]) for n in other), "a shorter training has noise of its own"


@pytest.fixture
def unsteady(monkeypatch):
    """Arithmetic that gives other last bits each time, as some GPUs' does."""
    original, calls = clipping.clipped_sum, []

    def wrong(*arguments, **options):
        calls.append(1)
        return {n: t + 1e-3 * len(calls) for n, t in original(*arguments, **options).items()}

    return lambda: monkeypatch.setattr(clipping, "clipped_sum", wrong)


@pytest.mark.parametrize("first", [[], [2]])
def test_another_result_under_the_same_noise_is_destroyed(client, noisy, unsteady, first):
    out, again = client.with_name("generator.safetensors"), client.with_name("again.safetensors")
    train(client, out, noisy(), keep_at=first)
    before = set(client.parent.iterdir())
    unsteady()
    with pytest.raises(VerificationError, match="the same noise"):
        train(client, again, noisy(), keep_at=[2], checkpoint_every=1)
    assert set(client.parent.iterdir()) == before
    assert kinds_of(client).count("reserved") == 1


def test_no_data_is_data_too(tmp_path, digits, noisy, make_client):
    """Nobody can tell from a refusal that there are no records; what comes out is noise."""
    empty = make_client(tmp_path / "empty", digits.take(np.arange(0)))
    for name in FAMILIES:
        out = empty.with_name(f"{name}.safetensors")
        train(empty, out, noisy(name, steps=2))
        assert tensors_file.read(out).metadata.privacy[0]["steps"] == 2


def test_a_step_without_records_costs_and_releases_noise(client, noisy):
    """A rate at which nobody is ever drawn: the weights move all the same, by noise alone."""
    paths = [client.with_name(f"{steps}.safetensors") for steps in (1, 2)]
    for steps, path in zip((1, 2), paths, strict=True):
        train(client, path, noisy(sampling_rate=1e-9, steps=steps))
    first, second = (tensors_file.read(path) for path in paths)
    assert all(not np.array_equal(first.tensors[n], second.tensors[n]) for n in first.tensors)
    assert second.metadata.privacy[0]["steps"] == 2


def test_what_sampling_needs_follows_from_the_weights_alone(client, noisy, monkeypatch):
    shown = []
    original = Vae.finished

    def finished(self, weights, images, labels):
        shown.append((len(images), len(labels)))
        return original(self, weights, images, labels)

    monkeypatch.setattr(Vae, "finished", finished)
    train(client, client.with_name("generator.safetensors"), noisy(), keep_at=[2])
    assert shown == [(0, 0), (0, 0)]


def test_a_record_counts_once(client, noisy):
    """The same file twice would be two rows for each record, and two clipped gradients at the price of one."""
    copy = client.with_name("copy.parquet")
    copy.write_bytes(client.read_bytes())
    out = client.with_name("generator.safetensors")
    for data in ([client, client], [client, copy]):
        with pytest.raises(UsageError, match="each record would count twice"):
            train_generator(data, out, params=noisy(), seed=3)
    assert kinds_of(client) == ["opened"]
    train_generator([client, copy], out, params=GeneratorTraining(**noisy().to_json() | WITHOUT), seed=3)


WITHOUT = {"noise_multiplier": None, "sampling_rate": None, "delta": None, "clip_norm": None}


def test_images_made_from_records_are_no_records(client, noisy, fedsynth, fedsynth_json):
    """One record may stand behind all images of a generator without noise: an ε for each image says nothing of it."""
    plain, made = client.with_name("plain.safetensors"), client.with_name("made.parquet")
    train(client, plain, GeneratorTraining(**noisy().to_json() | WITHOUT))
    fedsynth_json("synthesize", plain, "--count", 8, "-o", made)
    with pytest.raises(InputError, match="was made from records and holds none"):
        train(made, client.with_name("laundered.safetensors"), noisy())
    fedsynth_json("synthesize", plain, "--count", 8, "-o", client.parents[1] / "outbox/made.parquet")
    with pytest.raises(InputError, match="was made from records"):
        train(client.parents[1] / "outbox/made.parquet", client.with_name("laundered.safetensors"), noisy())
    noised = client.with_name("noised.safetensors")
    train(client, noised, noisy())
    fedsynth_json("synthesize", noised, "--count", 8, "-o", client.with_name("noised.parquet"))
    with pytest.raises(InputError, match="was made from records"):
        train(client.with_name("noised.parquet"), client.with_name("laundered.safetensors"), noisy())


# What the command line refuses, before anything is charged.

SMALL = ["--family", "vae", "--filters", 4, "--hidden-size", 16, "--batch-size", 8]
STEPS = [*SMALL, "--steps", 3]
DP = ["--noise-multiplier", 1, "--sampling-rate", 0.2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([*STEPS, *DP, "--target-epsilon", 3, "--delta", 1e-5], "--noise-multiplier and --target-epsilon exclude"),
        ([*STEPS, "--target-epsilon", 3, "--sampling-rate", 0.2], "--delta needs a value with --target-epsilon"),
        ([*STEPS, "--noise-multiplier", 1], "--sampling-rate needs a value"),
        ([*STEPS, "--target-epsilon", 3, "--delta", 1e-5], "--sampling-rate needs a value"),
        ([*STEPS, "--noise-multiplier", 1, "--sampling-rate", 0], "--sampling-rate must be above 0"),
        ([*STEPS, "--noise-multiplier", 1, "--sampling-rate", 1.01], "--sampling-rate must be above 0 and at most 1"),
        ([*STEPS, "--noise-multiplier", 1, "--sampling-rate", "nan"], "--sampling-rate"),
        ([*STEPS, "--noise-multiplier", 1, "--sampling-rate", 1e-13], "sampling_rate of a privacy event"),
        ([*STEPS, "--noise-multiplier", 0, "--sampling-rate", 0.2], "--noise-multiplier must be above 0"),
        ([*STEPS, "--noise-multiplier", "inf", "--sampling-rate", 0.2], "--noise-multiplier must be of type float"),
        ([*STEPS, "--noise-multiplier", 1e-4, "--sampling-rate", 0.2], "noise_multiplier of a privacy event"),
        ([*STEPS, *DP, "--clip-norm", 0], "--clip-norm must be above 0"),
        ([*STEPS, *DP, "--clip-norm", "inf"], "--clip-norm"),
        ([*STEPS, *DP, "--delta", 1], "--delta must be between 0 and 1"),
        ([*STEPS, *DP, "--noise-multiplicity", 0], "--noise-multiplicity must be at least 1"),
        ([*STEPS, *DP, "--keep-at", "3"], "--keep-at 3"),
        ([*STEPS, *DP, "--conditioning", "class-mean"], "--conditioning class-mean is refused"),
        ([*STEPS, *DP, "--scale", "paper"], "--conditioning class-mean is refused"),
        ([*SMALL, *DP, "--epochs", 2], "epochs would tell how many images"),
        (["--scale", "paper", *DP], "epochs would tell how many images"),
        ([*STEPS, "--target-epsilon", 1e-9, "--delta", 1e-9, "--sampling-rate", 1], "--target-epsilon: no noise"),
        ([*STEPS, "--delta", 1e-5], "--delta must be given with --noise-multiplier or --target-epsilon"),
        ([*STEPS, "--sampling-rate", 0.5], "--sampling-rate must be given with"),
        ([*STEPS, "--clip-norm", 1], "--clip-norm must be given with"),
        ([*STEPS, "--noise-multiplicity", 2], "--noise-multiplicity must be given under DP only"),
    ],
)
def test_wrong_wishes(client, fedsynth, options, said):
    out = client.with_name("generator.safetensors")
    code, _, err = fedsynth("train-generator", client, *options, "-o", out)
    assert code == 2, err
    assert said in err
    assert not out.exists()
    assert kinds_of(client) == ["opened"], "nothing was charged"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda key: key.unlink(), "no key at"),
        (lambda key: key.chmod(0o640), "can be read by others (mode 0640)"),
        (lambda key: key.write_bytes(bytes(31)), "exactly 32 bytes, found 31 bytes"),
        (lambda key: key.write_bytes(bytes(33)), "more than 32 bytes"),
        (lambda key: key.write_bytes(bytes(32)), "the spend ledger of another key"),
    ],
)
def test_a_key_that_will_not_do(client, fedsynth, damage, said):
    out = client.with_name("generator.safetensors")
    damage(client.with_name("client.key"))
    code, _, err = fedsynth("train-generator", client, *STEPS, *DP, "-o", out)
    assert code == 3, err
    assert said in err
    assert not out.exists()
    assert kinds_of(client) == ["opened"]
    if "another" not in said:  # without noise no key is needed
        assert fedsynth("train-generator", client, *STEPS, "-o", out)[0] == 0


def test_whose_key(client, fedsynth, tmp_path):
    out = tmp_path / "generator.safetensors"
    code, _, err = fedsynth("train-generator", client, *STEPS, *DP, "--client", "00", "-o", out)
    assert code == 2
    assert "Give --key" in err
    options = ["--client", "00", "--key", client.with_name("client.key"), "-o", out]
    assert fedsynth("train-generator", client, *STEPS, *DP, *options)[0] == 0
    assert kinds_of(client) == ["opened", "reserved", "released"]


def test_a_target_becomes_its_noise(client, fedsynth_json):
    """The file holds the noise, not the wish: it says what was done."""
    out = client.with_name("generator.safetensors")
    options = ["--target-epsilon", 4, "--delta", 1e-5, "--sampling-rate", 0.3]
    summary = fedsynth_json("train-generator", client, *STEPS, *options, "-o", out)
    about = tensors_file.read(out).metadata
    assert summary["epsilon"]["pld"] <= 4
    assert about.privacy[0]["noise_multiplier"] == about.params["noise_multiplier"] == summary["noise_multiplier"]
    assert "target_epsilon" not in about.params
