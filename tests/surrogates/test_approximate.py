"""FedLAP's client: Algorithm 1 against a slow one that was written apart, the real batches, the calibrated radius."""

import math

import pytest
import torch

import stages.methods.fedlap as fedlap
import stages.methods.fedlap_radius as fedlap_radius
from stages.methods.augmentation import drawn_transformation
from stages.methods.fedlap import BatchGradient, Point, approximate
from stages.methods.fedlap_radius import calibrated_radius, layer_norms
from stages.methods.params.fedlap import FedLapEncoding
from stages.methods.surrogate_nets import LabelledSet, start_weights, stepped

RATE, MOMENTUM = 0.4, 0.5


def silent(*_):
    pass


def rows_at(access, count):
    """The batch of an access, for both ways: any rule that depends on its number alone."""
    return [(access * 5 + i * 3) % count for i in range(4)]


class Slow:
    """Algorithm 1 as it is printed, with loops, autograd from the pixels to the distance, and momentum by hand."""

    def __init__(self, module, data, gradient, distance):
        self.module, self.data, self.gradient, self.distance = module, data, gradient, distance
        self.accesses = []

    def batch(self, access, group):
        rows = rows_at(access, len(self.data))
        if group is not None:
            rows = [row for row in range(len(self.data)) if int(self.data.labels[row]) == group]
        return self.data.images[rows], self.data.labels[rows]

    def run(self, start, p, momentum=MOMENTUM):
        origin = {name: weight.detach().clone() for name, weight in self.module.named_parameters()}
        images, labels, speed = start.images.clone(), start.labels, torch.zeros_like(start.images)
        groups = sorted(set(labels.tolist())) if p.match == "class" else [None]
        for i in range(p.trajectories):
            w = {name: weight.clone() for name, weight in origin.items()}
            for t in range(p.points):
                if math.sqrt(sum(float(((w[n] - origin[n]) ** 2).sum()) for n in w)) >= p.radius:
                    break
                for n in range(p.batches):
                    access = 1 + n + p.batches * (t + p.points * i)
                    self.accesses.append(access)
                    real = {g: self.gradient(self.module, w, *self.batch(access, g)) for g in groups}
                    for _ in range(p.image_steps):
                        leaf = images.clone().requires_grad_()
                        loss = 0.0
                        for group in groups:
                            mine = slice(None) if group is None else labels == group
                            found = self.gradient(self.module, w, leaf[mine], labels[mine], create_graph=True)
                            loss = loss + self.distance(real[group], found, kind=p.distance, rows=p.rows)
                        speed = momentum * speed + torch.autograd.grad(loss, leaf)[0]
                        images = images - p.image_rate * speed
                for _ in range(p.model_steps if t + 1 < p.points else 0):  # no gradient is taken after them
                    slope = self.gradient(self.module, w, images, labels)
                    w = {name: weight - RATE * slope[name] for name, weight in w.items()}
        return images


CASES = [
    # R_i, points, N, R_b, R_l, r, class by class, distance
    (1, 3, 2, 1, 0, 10.0, "all", "cosine+mse"),
    (1, 1, 3, 2, 0, 10.0, "all", "mse"),
    (2, 3, 1, 2, 1, 100.0, "all", "cosine"),
    (2, 2, 2, 1, 2, 100.0, "all", "cosine+mse"),
    (2, 4, 2, 1, 1, 0.15, "all", "cosine+mse"),
    (3, 2, 1, 1, 1, 1e-9, "all", "cosine"),
    (1, 2, 1, 2, 1, 10.0, "class", "cosine"),
    (2, 3, 1, 1, 2, 0.3, "class", "cosine+mse"),
]


@pytest.mark.parametrize(("trajectories", "points", "batches", "steps", "model", "radius", "match", "kind"), CASES)
@pytest.mark.parametrize("arch", ["mlp", "convnet"])
def test_it_is_algorithm_1(
    arch, trajectories, points, batches, steps, model, radius, match, kind, net, some, slow_gradient, slow_distance
):
    module, data, start = net(arch), some(10), some(6, seed=4)
    params = FedLapEncoding(
        trajectories=trajectories, points=points, batches=batches, image_steps=steps, model_steps=model, radius=radius,
        match=match, distance=kind, image_rate=0.2, image_momentum=MOMENTUM,
        **({"rows": "sum"} if kind == "cosine" else {}),
    )  # fmt: skip
    slow = Slow(module, data, slow_gradient, slow_distance)
    asked = []

    def real(point, group):
        asked.append(point.access)
        return slow_gradient(module, point.weights, *slow.batch(point.access, group))

    reported = []
    found = approximate(
        module, start, real, params=params, rate=RATE, generator=torch.Generator(),
        report=lambda *done: reported.append(done),
    )  # fmt: skip
    expected = slow.run(start, params)
    torch.testing.assert_close(found.surrogate.images, expected, rtol=1e-8, atol=1e-9)
    assert torch.equal(found.surrogate.labels, start.labels)
    assert sorted(set(asked)) == slow.accesses
    assert reported == [(access, params.accesses) for access in slow.accesses]
    assert params.accesses == trajectories * points * batches
    early = radius < 1
    assert (len(slow.accesses) < params.accesses) == early, "the numbers of those not made stay unused"


@pytest.mark.parametrize("micro_batch", [None, 2])
@pytest.mark.parametrize(("arch", "layers", "kept"), [("mlp", 1, 2), ("convnet", 1, 2), ("convnet", 2, 4)])
def test_of_some_last_layers_only_their_gradients_are_matched(
    arch, layers, kept, micro_batch, net, some, slow_gradient, slow_distance
):
    module, data, start = net(arch), some(10), some(6, seed=4)
    names = list(start_weights(module))[-kept:]
    params = FedLapEncoding(
        points=1, batches=2, image_steps=2, image_rate=0.2, last_layers=layers, micro_batch=micro_batch
    )

    def part(*arguments, **options):
        found = slow_gradient(*arguments, **options)
        return {name: found[name] for name in names}

    slow = Slow(module, data, part, slow_distance)
    found = approximate(
        module, start, lambda point, group: part(module, point.weights, *slow.batch(point.access, group)),
        params=params, rate=RATE, generator=torch.Generator(), report=silent,
    )  # fmt: skip
    torch.testing.assert_close(found.surrogate.images, slow.run(start, params), rtol=1e-8, atol=1e-9)
    whole = Slow(module, data, slow_gradient, slow_distance).run(start, params)
    assert (found.surrogate.images - whole).abs().max() > 1e-4
    own = BatchGradient(module, data, 10, torch.Generator(), names=names)(
        Point(start_weights(module), 1, drawn_transformation((), None)), None
    )
    assert list(own) == names


def test_no_model_step_is_made_that_no_look_follows(net, some, slow_gradient, monkeypatch):
    """Two walks of three points with two steps between them: four steps a walk."""
    module, data = net(), some(10)
    made = []
    monkeypatch.setattr(fedlap, "stepped", lambda *given: made.append(1) or stepped(*given))
    approximate(
        module, some(6, seed=4), lambda p, g: slow_gradient(module, p.weights, data.images, data.labels),
        params=FedLapEncoding(trajectories=2, points=3, batches=1, image_steps=1, model_steps=2, image_rate=0.1),
        rate=RATE, generator=torch.Generator(), report=silent,
    )  # fmt: skip
    assert len(made) == 2 * 4


def test_the_harness_would_notice_a_missing_momentum(net, some, slow_gradient, slow_distance):
    module, data, start = net(), some(10), some(6, seed=4)
    slow = Slow(module, data, slow_gradient, slow_distance)
    params = FedLapEncoding(points=1, batches=2, image_steps=2, image_rate=0.2)
    assert (slow.run(start, params) - slow.run(start, params, momentum=0.0)).abs().max() > 1e-6


def test_images_without_bound_are_told(net, some, slow_gradient):
    module, data = net(), some(6)
    params = FedLapEncoding(points=1, batches=4, image_steps=9, image_rate=1e300, distance="mse")
    with pytest.raises(ValueError, match="pixels grew to"):
        approximate(
            module, some(6, seed=4), lambda p, g: slow_gradient(module, p.weights, data.images, data.labels),
            params=params, rate=RATE, generator=torch.Generator(), report=silent,
        )  # fmt: skip


# The real batches.


def at(module, access=1, names=(), seed=0):
    return Point(start_weights(module), access, drawn_transformation(names, torch.Generator().manual_seed(seed)))


def test_a_batch_is_drawn_without_repetition_and_transformed(net, some, slow_gradient):
    module, data = net(), some(9)
    point = at(module, names=["colour"])
    found = BatchGradient(module, data, 4, torch.Generator().manual_seed(3))(point, None)
    rows = torch.randperm(9, generator=torch.Generator().manual_seed(3))[:4]
    expected = slow_gradient(module, point.weights, point.transformation(data.images[rows]), data.labels[rows])
    for name in expected:
        torch.testing.assert_close(found[name], expected[name])
    one = BatchGradient(module, data, 4, torch.Generator().manual_seed(3))(at(module), 2)
    mine = data.of_class(2)
    expected = slow_gradient(module, point.weights, mine.images, mine.labels)
    for name in expected:
        torch.testing.assert_close(one[name], expected[name])


@pytest.mark.parametrize("names", [(), ("flip",), ("crop", "flip")])
def test_what_is_kept_is_what_would_be_computed_again(names, net, some, monkeypatch):
    """All data in one batch: a point's gradient is computed once, and nothing else changes."""
    module, data = net(), some(7)
    params = FedLapEncoding(
        trajectories=2, points=2, batches=3, image_steps=1, model_steps=1, augment=",".join(names) or None, radius=50.0,
    )  # fmt: skip
    counted, original = [], fedlap.gradient

    def counting(*arguments, **options):
        counted.append(options.get("graph", False))
        return original(*arguments, **options)

    monkeypatch.setattr(fedlap, "gradient", counting)

    def run(real):
        counted.clear()
        found = approximate(
            module, some(6, seed=2), real, params=params, rate=RATE, generator=torch.Generator().manual_seed(1),
            report=silent,
        )  # fmt: skip
        return found.surrogate.images, counted.count(False) - 2  # the model's own steps, one in each walk

    class Forgetful(BatchGradient):
        def __call__(self, point, group):
            self._known.clear()
            return super().__call__(point, group)

    kept, few = run(BatchGradient(module, data, 99, torch.Generator()))
    again, many = run(Forgetful(module, data, 99, torch.Generator()))
    assert torch.equal(kept, again)
    assert many == 12
    generator = torch.Generator().manual_seed(1)
    drawn = [drawn_transformation(names, generator)(data.images) is not data.images for _ in range(14)]
    changed = drawn[:3] + drawn[4:10] + drawn[11:]  # between the points of a walk one is drawn for the model's step
    where = [place for place in ("start", "first walk", "start", "second walk") for _ in range(3)]
    plain = [place for place, moved in zip(where, changed, strict=True) if not moved]
    assert few == sum(changed) + len(set(plain)), "what nothing transforms: once at each place"
    assert few < many


# The radius.


def pixel(*labelled):
    """A set of one-pixel images: (x, label)."""
    images = torch.tensor([x for x, _ in labelled], dtype=torch.float64).reshape(-1, 1, 1, 1)
    return LabelledSet(images, torch.tensor([label for _, label in labelled]))


PUSH = pixel((1.0, 0))  # makes w grow for ever
THREE_TO_ONE = pixel((1.0, 0), (1.0, 0), (1.0, 0), (1.0, 1))  # the loss on these is least at w = ln 3


def weights_by_hand(steps, rate):
    """On PUSH w grows by η·σ(−w)."""
    found = [0.0]
    while len(found) <= steps:
        found.append(found[-1] + rate / (1 + math.exp(found[-1])))
    return found


def real_loss(w):
    """On THREE_TO_ONE."""
    return math.log1p(math.exp(-w)) + w / 4


# The turn comes after 35 steps, on a stride, or beside one, at the start, at the end and never.
@pytest.mark.parametrize(("rate", "most"), [(0.1, 100), (0.103, 100), (0.097, 100), (4.0, 100), (0.1, 34), (0.01, 57)])
def test_the_radius_is_where_the_loss_on_real_data_turns(one_weight, rate, most):
    params = FedLapEncoding(radius=10.0, radius_steps=most)
    radius, curve = calibrated_radius(one_weight(), PUSH, THREE_TO_ONE, params=params, rate=rate)
    expected = weights_by_hand(most, rate)
    assert radius == pytest.approx(min(expected, key=real_loss)), "the best of all steps"
    for point in curve:
        w = expected[point.steps]
        assert point.distance == pytest.approx(w)
        assert point.synthetic_loss == pytest.approx(math.log1p(math.exp(-w)))
        assert point.real_loss == pytest.approx(real_loss(w))
    looks = [point.steps for point in curve]
    assert looks == sorted(set(looks)) and set(range(0, most + 1, 5)) <= set(looks)
    assert len(looks) <= most // 5 + 12, "far fewer than all"
    if (rate, most) == (0.1, 100):
        assert radius == pytest.approx(math.log(3), abs=0.02), "within half a step"


def test_the_radius_is_at_most_r(one_weight):
    radius, curve = calibrated_radius(
        one_weight(), PUSH, THREE_TO_ONE, params=FedLapEncoding(radius=0.5, radius_steps=100), rate=0.1
    )
    assert radius == 0.5, "the loss still falls there"
    assert [point.distance > 0.5 for point in curve] == [False] * (len(curve) - 1) + [True], "one look beyond"


def test_a_first_step_beyond_r_is_no_reason_to_say_that_a_set_is_good_for_nothing(one_weight):
    params = FedLapEncoding(radius=0.1, radius_steps=100)
    radius, curve = calibrated_radius(one_weight(), PUSH, THREE_TO_ONE, params=params, rate=1.0)
    assert (radius, len(curve)) == (0.1, 2)
    assert curve[1].real_loss < curve[0].real_loss
    wrong, _ = calibrated_radius(one_weight(), PUSH, pixel((1.0, 1)), params=params, rate=1.0)
    assert wrong == 0


def test_the_radius_is_zero_where_the_set_leads_the_wrong_way(one_weight):
    params = FedLapEncoding(radius=0.5, radius_steps=10)
    assert calibrated_radius(one_weight(), PUSH, pixel((1.0, 1)), params=params, rate=0.1)[0] == 0


def test_a_descent_that_diverges_ends_the_curve(one_weight):
    params = FedLapEncoding(radius=1e300, radius_steps=10)
    radius, curve = calibrated_radius(one_weight(), pixel((1e200, 1)), PUSH, params=params, rate=1e200)
    assert radius == 0 and all(math.isfinite(point.distance) for point in curve)


def test_layer_norms_are_those_of_all_data_at_once(net, some, slow_gradient, monkeypatch):
    module, data = net("convnet"), some(11)
    monkeypatch.setattr(fedlap_radius, "_CHUNK", 4)
    expected = slow_gradient(module, start_weights(module), data.images, data.labels)
    torch.testing.assert_close(layer_norms(module, data), torch.stack([part.norm() for part in expected.values()]))
