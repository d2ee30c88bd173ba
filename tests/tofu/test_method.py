"""TOFU's maths: Algorithms 1 and 2 against slow, separately written forms."""

import math

import pytest
import torch
from torch import nn
from torch.func import functional_call

from stages.methods import tofu
from stages.methods.params.tofu import TofuEncoding
from stages.methods.residuals import Residuals, centred, of_labels
from stages.methods.row_cosines import RowCosines, flat
from stages.nets.build import build, initialise
from stages.nets.params import InputShape
from stages.registry import NETWORKS

SHAPE = InputShape(channels=1, height=8, width=8, num_classes=10)


@pytest.fixture(scope="module", params=[{"arch": "mlp", "width": 8}, {"arch": "convnet", "width": 4, "depth": 2}])
def net(request):
    module = build(NETWORKS.from_mapping(request.param), SHAPE)
    initialise(module, torch.Generator().manual_seed(0))
    return module


@pytest.fixture
def update(net):
    """What two steps on random images change: a direction that images can have."""
    random = torch.Generator().manual_seed(1)
    leaves = {name: weight.detach().requires_grad_() for name, weight in net.named_parameters()}
    images, labels = torch.randn(16, 1, 8, 8, generator=random), torch.randint(10, (16,), generator=random)
    loss = nn.functional.cross_entropy(functional_call(net, leaves, (images,)), labels)
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def first(count=6, seed=2):
    random = torch.Generator().manual_seed(seed)
    sizes = ((count, 1, 8, 8), (count, 10), (count,))
    return tuple(torch.randn(size, generator=random) for size in sizes)


def encoded(net, update, **params):
    params = TofuEncoding(**{"images": 6, "iterations": 40} | params)
    return tofu.encode(
        net, update, first(params.images), params=params, sent=lambda images: images, report=lambda *_: None
    )


def test_decoding_is_the_weighted_sum_of_the_gradients_of_single_images(net):
    """Algorithm 2 with soft labels and ratios, image by image; the proxy holds what these amount to."""
    images, labels, free = first()
    scales = torch.arange(1.0, 1 + len(list(net.parameters())))
    ratios = torch.softmax(free, 0)
    residuals = of_labels(net(images).detach(), labels, ratios)
    found = tofu.decode(net, tofu.Proxy(images, residuals, scales))
    by_hand = {name: torch.zeros_like(weight) for name, weight in net.named_parameters()}
    for image, label, ratio in zip(images, labels, ratios, strict=True):
        leaves = {name: weight.detach().requires_grad_() for name, weight in net.named_parameters()}
        logits = functional_call(net, leaves, (image[None],))[0]
        loss = -sum(p * q for p, q in zip(label.softmax(0), logits.log_softmax(0), strict=True))
        for name, part in zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True):
            by_hand[name] += ratio * part
    for scale, (name, part) in zip(scales, by_hand.items(), strict=True):
        torch.testing.assert_close(found[name], scale * part, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("solver", ["paper", "residuals"])
def test_what_the_encoder_measured_is_what_the_decoder_gets_to_the_last_bit(net, update, solver):
    made = encoded(net, update, solver=solver)
    again = flat(list(tofu.decode(net, made.proxy).values()))
    assert tofu.cosine_of(again, flat(list(update.values()))) == made.cosine
    assert made.cosine > 0.6 and made.cosine > made.cosines[0]


def test_every_layer_gets_the_length_that_it_has(net, update):
    made = encoded(net, update)
    for name, part in tofu.decode(net, made.proxy).items():
        torch.testing.assert_close(part.norm(), update[name].norm(), rtol=1e-4, atol=1e-6)


def test_the_decoded_cosine_is_what_the_default_objective_raises(net, update):
    """Σ‖U_l‖²·cos_l / ‖U‖²: the cosine after every layer was given its length."""
    target = flat(list(update.values()))
    lengths = [part.numel() for part in update.values()]
    params = TofuEncoding()
    found = torch.randn(len(target), generator=torch.Generator().manual_seed(3))
    loss, _ = tofu._angle(target, lengths, params).distance(found)
    scaled = torch.cat(
        [f * (t.norm() / f.norm()) for f, t in zip(found.split(lengths), target.split(lengths), strict=True)]
    )
    assert 1 - float(loss) == pytest.approx(tofu.cosine_of(scaled, target), abs=1e-5)


def test_the_slope_is_autograds(net, update):
    target = flat(list(update.values())).double()
    for lengths, shares in (([len(target)], [1.0]), ([10, len(target) - 10], [0.3, 0.7])):
        found = torch.randn(len(target), generator=torch.Generator().manual_seed(4), dtype=torch.float64)
        loss, slope = RowCosines(target, lengths, shares, least=0.0).distance(found)
        leaf = found.clone().requires_grad_()
        rows = zip(leaf.split(lengths), target.split(lengths), shares, strict=True)
        by_hand = sum(share * (1 - nn.functional.cosine_similarity(a, b, dim=0)) for a, b, share in rows)
        assert float(loss) == pytest.approx(float(by_hand), rel=1e-9)
        torch.testing.assert_close(slope, torch.autograd.grad(by_hand, leaf)[0], rtol=1e-6, atol=1e-12)


def test_phase_two_shortens_the_update_by_its_cosine(net, update):
    plain, short = encoded(net, update), encoded(net, update, scale_by_cosine=True)
    assert short.cosine == plain.cosine
    torch.testing.assert_close(short.proxy.scales, plain.proxy.scales * plain.cosine)


def test_it_stops_at_the_target(net, update):
    start = encoded(net, update, iterations=1).cosines[0]
    target = (1 + 3 * start) / 4
    made = encoded(net, update, iterations=200, target_cosine=target)
    assert made.cosines[-1] >= target > made.cosines[-2] and len(made.cosines) < 200


def test_the_papers_schedule():
    params = TofuEncoding(solver="paper")
    assert (params.iterations, params.image_rate, params.label_rate, params.ratio_rate) == (1000, 0.1, 0.1, 0.1)
    shares = [params.share(step) for step in (0, 374, 375, 624, 625, 874, 875, 999)]
    assert shares == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01, 1e-3, 1e-3])


@pytest.mark.parametrize(("name", "which"), [("image_rate", 0), ("label_rate", 1), ("ratio_rate", 2)])
def test_images_labels_and_ratios_have_step_sizes_of_their_own(net, update, monkeypatch, name, which):
    """Adam's first step is as long as its step size in every coordinate with a slope."""
    made = []
    adam = torch.optim.Adam

    def kept(groups, **settings):
        made.append([group["params"][0] for group in groups])
        return adam(groups, **settings)

    monkeypatch.setattr(torch.optim, "Adam", kept)
    rates = {"image_rate": 0.1, "label_rate": 0.1, "ratio_rate": 0.1} | {name: 0.3}
    encoded(net, update, solver="paper", iterations=1, **rates)
    moved = [float((now - was).abs().max()) for now, was in zip(made[0], first(), strict=True)]
    assert moved == pytest.approx([0.3 if position == which else 0.1 for position in range(3)], rel=1e-3)


def test_a_file_states_every_parameter_of_its_solver_and_no_other():
    paper, ours = (TofuEncoding(solver=solver).to_json() for solver in ("paper", "residuals"))
    assert {"iterations", "image_rate", "label_rate", "ratio_rate"} <= paper.keys() and "residual_rate" not in paper
    assert (ours["iterations"], ours["image_rate"], ours["residual_rate"]) == (125, 0.2, 0.1)
    assert not {"label_rate", "ratio_rate"} & ours.keys()
    with pytest.raises(ValueError, match="--label-rate goes with --solver paper"):
        TofuEncoding.from_mapping({"label_rate": 0.1})


def jacobian(net, images):
    """∂z/∂θ, row by row: [images · classes, parameters]."""
    leaves = {name: weight.detach().requires_grad_() for name, weight in net.named_parameters()}
    logits = functional_call(net, leaves, (images,))
    rows = [torch.autograd.grad(z, list(leaves.values()), retain_graph=True) for z in logits.flatten()]
    return logits.detach(), torch.stack([flat(row) for row in rows])


def test_the_best_residuals_are_those_of_least_squares(net, update):
    """Conjugate gradients without J against a dense solver on all of J, the rows of r summing to zero."""
    images, _, _ = first()
    target = flat(list(update.values()))
    _, rows = jacobian(net, images)
    basis = torch.eye(10).sub(0.1)[:, :9]  # residuals of an image sum to zero
    columns = torch.einsum("ncp,ck->nkp", rows.view(6, 10, -1), basis).reshape(54, -1).T.double()
    best = columns @ torch.linalg.lstsq(columns, target.double(), driver="gelsd").solution[:, None].squeeze(1)
    traced, leaves = tofu.traced(net, images)
    found = Residuals(traced, leaves).solve(torch.zeros(6, 10), target, torch.ones_like(target), 200)
    torch.testing.assert_close(found.sum(1), torch.zeros(6), atol=1e-4, rtol=0)
    got = (found.flatten() @ rows).double()
    assert (got - target).norm() == pytest.approx(float((best - target).norm()), rel=1e-3)


def test_a_layer_that_would_point_backwards_is_left_out(net, update):
    """The last layer's bias is turned round: no cosine of the whole can be lowered by a layer."""
    images, labels, _ = first()
    residuals = centred(labels)
    names = list(update)
    plain = tofu.decode(net, tofu.Proxy(images, residuals, torch.ones(len(names))))
    wanted = {name: (-1.0 if name == names[-1] else 1.0) * part for name, part in plain.items()}
    proxy, cosine = tofu._scaled(net, flat(list(wanted.values())), images, residuals)
    # A bias before a normalisation has no gradient but rounding, whose direction is the processor's.
    whole = flat(list(plain.values())).norm()
    counts = torch.tensor([bool(part.norm() > 1e-5 * whole) for part in plain.values()])
    assert float(proxy.scales[-1]) == 0 and bool((proxy.scales[:-1] > 0)[counts[:-1]].all())
    assert counts.sum() >= len(names) - 2
    rest = sum(float(part.square().sum()) for part in list(wanted.values())[:-1])
    whole = sum(float(part.square().sum()) for part in wanted.values())
    assert cosine == pytest.approx(math.sqrt(rest / whole), rel=1e-5)


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_an_update_without_direction_is_refused(net, update, value):
    with pytest.raises(ValueError, match="points nowhere"):
        encoded(net, {name: torch.full_like(part, value) for name, part in update.items()})


def test_batch_norm_takes_the_proxys_statistics_and_keeps_its_own():
    """Encoder and decoder see the same, and the running averages of the model stay as they are."""
    layers = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    before = {name: buffer.clone() for name, buffer in layers.named_buffers()}
    images, labels, _ = first()
    residuals = centred(labels)
    proxy = tofu.Proxy(images, residuals, torch.ones(6))
    a, b = (tofu.decode(layers, proxy) for _ in range(2))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert all(torch.equal(buffer, before[name]) for name, buffer in layers.named_buffers())
    shifted = tofu.decode(layers, tofu.Proxy(3 * images, residuals, torch.ones(6)))
    torch.testing.assert_close(shifted["4.weight"], a["4.weight"], rtol=1e-3, atol=1e-4)


def test_a_layer_that_has_no_gradient_and_no_part_in_the_update_has_no_slope():
    """As the blocks of a vision transformer whose last layer begins with zeros."""
    target, found = torch.tensor([3.0, 4.0, 0.0, 0.0]), torch.tensor([4.0, 3.0, 0.0, 0.0])
    loss, slope = RowCosines(target, [2, 2], [1.0, 0.0], least=1e-30).distance(found)
    assert float(loss) == pytest.approx(1 - 24 / 25)
    # d(1 − cos)/db = cos·b/|b|² − a/(|a|·|b|)
    torch.testing.assert_close(slope, torch.tensor([0.96 * 4 / 25 - 3 / 25, 0.96 * 3 / 25 - 4 / 25, 0.0, 0.0]))
