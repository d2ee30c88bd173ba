"""FedLAP-DP and FedDM-DP: what one record can move, whatever it is, wherever it is, whatever the model.

Coins and records go together: a record has the same coin in both of two neighbouring datasets. Each bound is reached,
and the harness notices each of the mistakes that papers and their code make.
"""

import functools
import math

import numpy as np
import pytest
import torch

import stages.methods.feddm as feddm
import stages.methods.fedlap as fedlap
import stages.privacy.clipping as clipping
from stages.methods.augmentation import drawn_transformation
from stages.methods.private_gradients import SecretStreams
from stages.methods.surrogate_nets import LabelledSet, last_layers, start_weights
from stages.privacy.mechanism import GaussianMechanism

CLIP, EXPECTED, CLASSES = 0.8, 6.0, 3
METHODS = ["fedlap", "fedlap-last", "feddm"]
NEIGHBOURS = [([*range(12)], removed) for removed in (0, 5, 11)] + [([3], 3), ([*range(7, 24)], 9)]


class Coupled:
    """Everybody whose number is not a multiple of five is drawn: one coin for each record, not for each place."""

    def __init__(self, ids):
        self.ids = ids

    def at(self, _step):
        return self

    def bernoulli(self, _probability, count):
        assert count == len(self.ids)
        return np.array([i % 5 != 0 or i == 0 for i in self.ids], bool)


@pytest.fixture(scope="module")
def records(some):
    """Ordinary images, large ones, huge ones and such as are no numbers."""
    data = some(24, size=8, dtype=torch.float32)
    images = data.images.clone()
    images[1::4] *= 100
    images[9], images[3] = 3e38, -1e20
    images[6, 0, 2, 2], images[11, 0, 0, 0], images[17, 0, 1, 1] = math.nan, math.inf, -math.inf
    return LabelledSet(images, torch.from_numpy(np.random.default_rng(0).integers(0, CLASSES, 24)))


@pytest.fixture
def total_of(monkeypatch, net, records):
    """What a look or an access hands to the mechanism for some of the records."""

    def of(method, ids, module=None, names=(), data=records, weights=None, transformation=None):
        module = module or net("mlp", size=8, dtype=torch.float32)
        weights = weights or start_weights(module)
        sums, ids = [], list(ids)

        def noisy_mean(total, mechanism, noise):
            sums.append({n: np.array(t) for n, t in total.items()})
            return {n: np.zeros(t.shape, np.float32) for n, t in total.items()}

        for place in (clipping, feddm):
            monkeypatch.setattr(place, "noisy_mean", noisy_mean)
        mine = LabelledSet(data.images[ids], data.labels[ids])
        streams = SecretStreams(sampling=Coupled(ids), examples=Coupled(ids), noise=Coupled(ids))
        common = {"sampling_rate": 0.5, "streams": streams}
        if method.startswith("fedlap"):
            mechanism = GaussianMechanism(clip_norm=CLIP, noise_multiplier=1.0, expected_size=EXPECTED)
            transformation = transformation or drawn_transformation(names, torch.Generator().manual_seed(1))
            point = fedlap.Point(weights, 1, transformation)
            part = last_layers(module, 1 if method == "fedlap-last" else None)
            fedlap.NoisyGradient(module, mine, mechanism=mechanism, names=part, **common)(point, None)
        else:
            mechanism = GaussianMechanism(clip_norm=CLIP, noise_multiplier=1.0, expected_size=1)
            feddm.NoisyMeans(
                module, mine, num_classes=CLASSES, count_share=0.25, mechanism=mechanism, **common
            )(weights, 1)  # fmt: skip
        (total,) = sums
        return total

    return of


def norm(tensors):
    return math.sqrt(sum(float(np.square(tensor).sum()) for tensor in tensors.values()))


def minus(first, *others):
    return {n: first[n] - sum(other[n] for other in others) for n in first}


def moves(total_of, method, **options):
    return [
        norm(minus(total_of(method, ids, **options), total_of(method, [i for i in ids if i != gone], **options)))
        for ids, gone in NEIGHBOURS
    ]


@pytest.mark.parametrize("arch", ["softmax", "mlp", "convnet"])
@pytest.mark.parametrize("method", METHODS)
def test_a_record_moves_the_sums_by_the_clip_at_most(method, arch, net, total_of, recwarn):
    module = net(arch, size=8, dtype=torch.float32)
    found = moves(total_of, method, module=module)
    assert max(found) <= CLIP
    assert max(found) > 0.999 * CLIP, "the bound is reached: nothing is spent for nothing"
    assert not recwarn.list


@pytest.mark.parametrize("method", METHODS)
def test_random_neighbours(method, total_of):
    rng = np.random.default_rng(1)
    for _ in range(10):
        ids = rng.permutation(24)[: rng.integers(1, 24)].tolist()
        total, less = (total_of(method, part) for part in (ids, ids[1:]))
        assert norm(minus(total, less)) <= CLIP


@pytest.mark.parametrize("names", [("rotate",), ("colour",), ("scale",)])
def test_augmentation_is_no_randomness_of_the_record(names, total_of):
    found = moves(total_of, "fedlap", names=names)
    assert max(found) <= CLIP
    assert norm(total_of("fedlap", [], names=names)) == 0, "nobody is there, and nothing is said"


@pytest.mark.parametrize("method", METHODS)
def test_who_leaves_takes_his_own_part_and_no_bit_of_another(method, total_of, records, some):
    data = LabelledSet(some(24, size=8, dtype=torch.float32).images, records.labels)
    for ids, gone in NEIGHBOURS:
        rest = [i for i in ids if i != gone]
        total, less, alone = (total_of(method, part, data=data) for part in (ids, rest, [gone]))
        assert norm(minus(total, less, alone)) < 1e-12


def crafted(net, width):
    """Weights in whose sums the order of the terms decides: 10⁹ − 10⁹ + 20 is 20, and −10⁹ + 20 + 10⁹ is 0 or 64."""
    module = net("mlp", size=8, width=width, dtype=torch.float32)
    generator = torch.Generator().manual_seed(width)
    with torch.no_grad():
        last = module.classifier[-1]
        for row in last.weight:
            row.zero_()
            places = torch.randperm(width, generator=generator)
            row[places[0]], row[places[1]], row[places[2]] = 1e9, -1e9, 20.0
    return module


@pytest.mark.parametrize("width", [5, 6, 7, 9])
def test_feddm_where_a_record_stands_decides_nothing_even_with_crafted_weights(width, net, total_of, some):
    """In a batch, rows of 20 or 28 bytes are added up in another order each: a record that leaves moved all others."""
    data = some(24, size=8, dtype=torch.float32)
    for module in (crafted(net, width), net("mlp", size=8, width=width, dtype=torch.float32)):
        total, less, alone = (
            total_of("feddm", ids, module=module, data=data) for ids in (range(24), range(1, 24), [0])
        )
        assert norm(minus(total, less, alone)) < 1e-12


def test_feddm_a_record_without_features_keeps_its_count(total_of, records):
    (sums,) = total_of("feddm", [6]).values()
    label, limit = int(records.labels[6]), CLIP * (1 - 2.0**-20)
    assert sums[label, -1] == pytest.approx(0.25 * limit)
    assert np.count_nonzero(sums) == 1


@pytest.mark.parametrize("arch", ["mlp", "convnet"])
@pytest.mark.parametrize("method", ["fedlap", "fedlap-last"])
def test_fedlap_sums_by_hand(method, arch, net, total_of, some, slow_gradient):
    """Eq. 12: each record by itself, as the augmentation shows it, at the weights of the point, clipped, then added.

    With the last layer alone its part of the gradient is clipped by its own length, and nothing else is in the sum.
    """
    module, elsewhere = (net(arch, size=8, dtype=torch.float32, seed=seed) for seed in (0, 5))
    data, weights = some(12, size=8, dtype=torch.float32), start_weights(elsewhere)
    scaled = LabelledSet(data.images * torch.linspace(0.01, 2, 12)[:, None, None, None], data.labels)

    def mirrored(images):
        return 0.2 - images.flip(3) / 2

    found = total_of(method, range(12), module=module, data=scaled, weights=weights, transformation=mirrored)
    kept = list(weights)[-2:] if method == "fedlap-last" else list(weights)  # weight and bias of the classifier
    expected, lengths = {name: np.zeros(weights[name].shape) for name in kept}, []
    for i in (0, 1, 2, 3, 4, 6, 7, 8, 9, 11):  # the coins leave out 5 and 10
        parts = slow_gradient(module, weights, mirrored(scaled.images[i : i + 1]), scaled.labels[i : i + 1])
        parts = {name: parts[name] for name in kept}
        lengths.append(math.sqrt(sum(float(part.double().square().sum()) for part in parts.values())))
        for name, part in parts.items():
            expected[name] += part.double().numpy() * min(1.0, CLIP * (1 - 2.0**-20) / lengths[-1])
    assert max(lengths) > CLIP
    assert (min(lengths) < CLIP) == (arch == "mlp"), "where no norm layer scales them, some are not clipped"
    assert set(found) == set(kept)
    for name, total in expected.items():
        np.testing.assert_allclose(found[name], total, atol=1e-5, err_msg=name)


def test_feddm_sums_by_hand(net, total_of, some):
    """Blocks of all classes: [h; z] of each record scaled to C·√(1 − f²), and C·f for its count; at drawn weights."""
    start, module = (net("mlp", size=8, dtype=torch.float32, seed=seed) for seed in (0, 5))
    data, weights = some(6, size=8, dtype=torch.float32), start_weights(module)
    (sums,) = total_of("feddm", [1, 2, 4], data=data, module=start, weights=weights).values()
    expected = np.zeros((CLASSES, 8 + CLASSES + 1))
    limit = CLIP * (1 - 2.0**-20)
    for i in (1, 2, 4):
        with torch.no_grad():
            h = module.features(data.images[i : i + 1])
            vector = torch.cat([h, module.head(h)], dim=1)[0].double().numpy()
        share = min(1.0, limit * math.sqrt(1 - 0.0625) / np.linalg.norm(vector))
        expected[i % CLASSES] += [*(vector * share), 0.25 * limit]
    np.testing.assert_allclose(sums, expected, atol=1e-6)


# Mistakes that the harness must notice.


def unclipped(true, *arguments, clip_norm, **options):
    return true(*arguments, clip_norm=1e3 * clip_norm, **options)


def tensor_by_tensor(true, loss, weights, examples, **options):
    parts = {}
    for name in weights:
        rest = {n: t for n, t in weights.items() if n != name}
        parts |= true(lambda own, *e, r=rest: loss({**r, **own}, *e), {name: weights[name]}, examples, **options)
    return parts


def by_the_realised_size(true, loss, weights, examples, **options):
    total = true(loss, weights, examples, **options)
    return {n: t * EXPECTED / max(1, len(examples[0])) for n, t in total.items()}


@pytest.mark.parametrize("bug", [unclipped, tensor_by_tensor, by_the_realised_size])
def test_fedlap_the_harness_catches(bug, total_of, monkeypatch):
    monkeypatch.setattr(clipping, "clipped_sum", functools.partial(bug, clipping.clipped_sum))
    assert max(moves(total_of, "fedlap")) > 1.2 * CLIP


def features_and_count_apart(true, module, weights, batch, *, clip_norm, count_share, **options):
    """Each clipped to C by itself: √2 C together."""
    both = true(module, weights, batch, clip_norm=clip_norm * 1e6, count_share=1e-6, **options) / 1e6
    alone = true(module, weights, batch, clip_norm=clip_norm, count_share=1e-6, **options)
    alone[:, -1] = both[:, -1] * 1e6 * 1e6
    return alone


def class_by_class(true, module, weights, batch, *, clip_norm, **options):
    """The sum of a class clipped, as the paper's Algorithm 2 does; nobody in it is."""
    total = true(module, weights, batch, clip_norm=1e6, **options | {"count_share": 1e-9})
    lengths = total.norm(dim=1, keepdim=True)
    return total * (clip_norm / lengths.clamp(min=clip_norm))


def means_of_the_realised(true, module, weights, batch, *, clip_norm, count_share, **options):
    total = true(module, weights, batch, clip_norm=clip_norm, count_share=count_share, **options)
    counts = total[:, -1:] / (clip_norm * count_share)
    return EXPECTED * total / counts.clamp(min=1)


@pytest.mark.parametrize("bug", [unclipped, features_and_count_apart, class_by_class, means_of_the_realised])
def test_feddm_the_harness_catches(bug, total_of, monkeypatch, some, net):
    monkeypatch.setattr(feddm, "clipped_class_sums", functools.partial(bug, feddm.clipped_class_sums))
    # Record 9 is longer than the others of its class together, and points the other way.
    data = some(24, size=8, dtype=torch.float32, seed=9)
    images = data.images.abs()
    images[9] *= -300
    moved = moves(
        total_of, "feddm", data=LabelledSet(images, data.labels), module=net("softmax", size=8, dtype=torch.float32)
    )
    assert max(moved) > 1.2 * CLIP
