"""Gradients taken at the same weights, averaged before they are matched: post-processing of the same releases."""

import numpy as np
import pytest
import torch

import stages.privacy.clipping as clipping
from stages.methods.augmentation import drawn_transformation
from stages.methods.fedlap import GradientTarget, approximate
from stages.methods.params.fedlap import FedLapEncoding
from stages.methods.surrogate_nets import start_weights

MEAN = {"targets": "mean"}


def near(a, b):
    return all(torch.allclose(a[name], b[name], rtol=0, atol=1e-12) for name in a)


class Asked:
    """A real gradient that is other at each access, and which ones were asked for, where."""

    def __init__(self, module):
        self.origin, self.points = start_weights(module), []

    def found(self, access):
        generator = torch.Generator().manual_seed(access)
        return {n: torch.randn(w.shape, generator=generator, dtype=w.dtype) for n, w in self.origin.items()}

    def __call__(self, point, group):
        assert group is None
        self.points.append(point)
        return self.found(point.access)

    def mean(self, accesses):
        parts = [self.found(access) for access in accesses]
        return {name: sum(part[name] for part in parts) / len(parts) for name in self.origin}


@pytest.fixture
def run(net, some, monkeypatch):
    def of(**given):
        module, start = net("mlp"), some(6, seed=4)
        real, targets = Asked(module), []

        class Noted(GradientTarget):
            def __init__(self, found, params):
                targets.append(found)
                super().__init__(found, params)

        monkeypatch.setattr("stages.methods.fedlap.GradientTarget", Noted)
        params = FedLapEncoding(**{"image_rate": 0.01, "radius": 100.0, **MEAN, **given})
        matched = approximate(
            module, start, real, params=params, rate=0.1, generator=torch.Generator().manual_seed(0),
            report=lambda *_: None,
        )  # fmt: skip
        return real, targets, matched, params

    return of


def test_looks_at_the_models_weights_are_averaged_over_points_and_walks(run):
    real, targets, matched, params = run(trajectories=2, points=2, batches=3, image_steps=2, model_steps=0)
    assert [point.access for point in real.points] == list(range(1, 13)), "each look once, none more"
    assert len(targets) == 4
    for number, target in enumerate(targets, start=1):
        assert near(target, real.mean(range(1, 3 * number + 1)))
    assert len(matched.losses) == params.accesses * params.image_steps, "as many steps of the images as without"


def test_a_walk_that_has_moved_averages_its_own_looks_and_returns_to_those_of_the_start(run):
    real, targets, _, _ = run(trajectories=2, points=2, batches=3, image_steps=1, model_steps=1)
    expected = [(1, 2, 3), (4, 5, 6), (1, 2, 3, 7, 8, 9), (10, 11, 12)]
    assert all(near(target, real.mean(looks)) for target, looks in zip(targets, expected, strict=True))
    assert [point.access for point in real.points] == list(range(1, 13))


def test_looks_of_images_transformed_in_another_way_are_not_averaged(run):
    real, targets, _, _ = run(
        trajectories=1, points=2, batches=3, image_steps=1, model_steps=0, augment="crop", image_rate=1e-4
    )
    assert near(targets[0], real.mean((1, 2, 3))) and near(targets[1], real.mean((4, 5, 6)))
    first, second = real.points[:3], real.points[3:]
    assert len({id(point.transformation) for point in first}) == len({id(p.transformation) for p in second}) == 1


def test_one_batch_a_point_that_moves_on_is_the_same_as_without(run):
    """Nothing shares its weights but the start of the only walk: bit for bit the paper's."""
    options = {"trajectories": 1, "points": 3, "batches": 1, "image_steps": 2, "model_steps": 1}
    assert torch.equal(run(**options)[2].surrogate.images, run(**options, targets="each")[2].surrogate.images)


def test_a_file_is_charged_the_same_and_made_of_the_same_number_of_releases(federation, monkeypatch, read):
    releases, original = [], clipping.noisy_mean

    def noted(total, mechanism, noise):
        releases.append(mechanism)
        return original(total, mechanism, noise)

    monkeypatch.setattr(clipping, "noisy_mean", noted)
    found = {}
    for targets in ("each", "mean"):
        releases.clear()
        path = federation.noisy("00", points=3, batches=2, trajectories=2, model_steps=0, targets=targets)
        (event,) = read(path).metadata.privacy
        found[targets] = {**event, "id": ""}, len(releases), set(map(repr, releases))
    assert found["each"] == found["mean"]
    assert found["mean"][0]["steps"] == found["mean"][1] == 12
    charges = federation.charges()
    assert charges[0] == charges[1], "and so is the ledger"


def test_nothing_but_the_noised_sums_decides_the_images(federation, monkeypatch, read):
    data = federation.client("00")
    other = federation.write(data.with_name("other.parquet"), federation.digits.take(np.arange(100, 109)))
    calls = []

    def same(total, _mechanism, _noise):
        calls.append(1)
        rng = np.random.default_rng(len(calls))
        return {n: rng.normal(size=t.shape).astype(np.float32) for n, t in sorted(total.items())}

    monkeypatch.setattr(clipping, "noisy_mean", same)
    images = []
    for source in (data, other):
        calls.clear()
        images.append(read(federation.noisy("00", data=source, batches=3, **MEAN)).tensors["images"].tobytes())
    assert images[0] == images[1]


# Augmentation of the model's own steps, of the radius and of the server.


def test_the_models_steps_see_transformed_images(net, some, slow_gradient):
    module, start = net("mlp"), some(6, seed=4)
    points = []

    def real(point, _group):
        points.append(point)
        return start_weights(module)

    approximate(
        module, start, real, rate=0.1, generator=torch.Generator().manual_seed(5), report=lambda *_: None,
        params=FedLapEncoding(points=2, batches=1, image_steps=1, model_steps=2, image_rate=1e-300, augment="crop"),
    )  # fmt: skip
    generator = torch.Generator().manual_seed(5)
    drawn_transformation(("crop",), generator)  # of the first look
    weights = start_weights(module)
    for _ in range(2):
        seen = drawn_transformation(("crop",), generator)(start.images)
        slope = slow_gradient(module, weights, seen, start.labels)
        weights = {name: weight - 0.1 * slope[name] for name, weight in weights.items()}
    assert near(points[1].weights, weights)
    assert not near(points[1].weights, points[0].weights)


def test_radius_and_server_descend_on_transformed_images(net, some, slow_gradient):
    from stages.methods.fedlap_radius import calibrated_radius
    from stages.methods.fedlap_server import Contribution, optimise

    module, own, data = net("mlp"), some(6, seed=4), some(9)
    generator, weights = torch.Generator().manual_seed(3), start_weights(module)
    found, trace = optimise(
        module, [Contribution(own, 1.0)], radius=None, steps=4, rate=0.05, augmentations=("crop", "colour"),
        generator=torch.Generator().manual_seed(3),
    )  # fmt: skip
    distances = [0.0]
    for _ in range(4):
        seen = drawn_transformation(("crop", "colour"), generator)(own.images)
        slope = slow_gradient(module, weights, seen, own.labels)
        weights = {name: weight - 0.05 * slope[name] for name, weight in weights.items()}
        start = start_weights(module)
        distances.append(sum(float(((weights[n] - start[n]) ** 2).sum()) for n in weights) ** 0.5)
    assert near(found, weights)
    assert [step.distance for step in trace] == pytest.approx(distances[1:])
    params = FedLapEncoding(radius=50.0, radius_steps=4, augment="crop,colour")
    _, curve = calibrated_radius(
        module, own, data, params=params, rate=0.05, generator=torch.Generator().manual_seed(3)
    )
    assert [point.distance for point in curve] == pytest.approx([distances[point.steps] for point in curve])
    assert len(curve) == 5


# Networks that were never trained.


def test_walks_from_fresh_weights_begin_anew_each_time(net, some):
    module, start = net("mlp"), some(6, seed=4)
    fresh = [start_weights(net("mlp", seed=number)) for number in (5, 6)]
    points, beginnings = [], iter(fresh)

    def real(point, _group):
        points.append(point)
        return start_weights(module)

    params = FedLapEncoding(
        trajectories=2, points=2, batches=1, image_steps=1, model_steps=1, begin="fresh", radius=1e-9, image_rate=1e-9
    )
    approximate(
        module, start, real, params=params, rate=0.1, generator=torch.Generator(), report=lambda *_: None,
        beginning=lambda: next(beginnings),
    )  # fmt: skip
    assert [point.access for point in points] == [1, 3], "a walk ends by its distance from its own beginning"
    assert all(near(point.weights, begun) for point, begun in zip(points, fresh, strict=True))


def test_a_set_for_any_network_brings_no_radius_and_is_judged_by_a_fresh_one(federation, read):
    path = federation.encode("00", begin="fresh", radius_steps=None)
    found = read(path)
    assert set(found.tensors) == {"images", "labels"}
    assert "radius" not in found.metadata.disclosures and "derived_images" in found.metadata.disclosures
    options = {"begin": "fresh", "strategy": "fixed", "radius": None, "learning_rate": 1e-12, "server_steps": 1}
    model = read(federation.aggregate([path], **options).path)
    start = read(federation.model)
    weights = [name for name in start.tensors if name.endswith("weight")]
    assert all(np.abs(model.tensors[name] - start.tensors[name]).max() > 1e-3 for name in weights)
    with pytest.raises(ValueError, match="--strategy fixed"):
        federation.aggregate([path], begin="fresh")
