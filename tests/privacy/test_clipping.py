"""Clipped sums: against a plain loop and against Opacus; their sensitivity, by a harness that planted bugs fail."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

from stages.nets.build import build, initialise
from stages.nets.params import InputShape
from stages.privacy import clipping
from stages.privacy.clipping import clipped_sum, default_chunk_size, noisy_gradient, refuse_batch_norm
from stages.privacy.mechanism import GaussianMechanism
from stages.registry import NETWORKS

SHAPE = InputShape(channels=1, height=28, width=28, num_classes=10)
CLIP = 1.0
MARGIN = 2.0**-20


def small_net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))


def net_of(**params):
    module = build(NETWORKS.from_mapping(params), SHAPE)
    initialise(module, torch.Generator().manual_seed(1))
    return module


def weights_of(module, scale=1.0):
    return {name: tensor.detach() * scale for name, tensor in module.named_parameters()}


def loss_of(module):
    def loss(weights, image, label):
        return nn.functional.cross_entropy(functional_call(module, weights, (image[None],)), label[None])

    return loss


def data(count, shape=(1, 4, 4), classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, *shape, generator=generator) * 3, torch.randint(classes, (count,), generator=generator)


def example_gradients(loss, weights, *examples):
    """One plain backward pass an example: what the clipped sum is held against."""
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
    for row in zip(*examples, strict=True):
        yield dict(zip(leaves, torch.autograd.grad(loss(leaves, *row), list(leaves.values())), strict=True))


def plain_sum(loss, weights, *examples, clip=CLIP):
    total = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in weights.items()}
    for gradient in example_gradients(loss, weights, *examples):
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in gradient.values()))
        for name, g in gradient.items():
            total[name] += g.double() * min(1.0, clip / norm)
    return total


def flat(tensors):
    return torch.cat([torch.as_tensor(t).double().ravel() for t in tensors.values()])


@pytest.mark.parametrize("clip", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("chunk", [None, 1, 3, 8])
def test_against_a_plain_loop(clip, chunk):
    module = small_net()
    loss, weights, (images, labels) = loss_of(module), weights_of(module), data(13)
    found = clipped_sum(loss, weights, (images, labels), clip_norm=clip, chunk_size=chunk)
    assert list(found) == list(weights)
    assert all(found[name].shape == weights[name].shape and found[name].dtype == torch.float64 for name in weights)
    expected = flat(plain_sum(loss, weights, images, labels, clip=clip))
    torch.testing.assert_close(flat(found), expected, rtol=1e-5, atol=1e-6 * clip)


def test_against_opacus():
    """Opacus' hooks and its optimiser without noise."""
    grad_sample = pytest.importorskip("opacus.grad_sample")
    from opacus.optimizers import DPOptimizer

    module = net_of(arch="convnet", width=8, depth=3)
    weights, loss = weights_of(module), loss_of(module)
    images, labels = data(20, (1, 28, 28), 10)
    found = clipped_sum(loss, weights, (images, labels), clip_norm=0.7)
    wrapped = grad_sample.GradSampleModule(module, loss_reduction="sum")
    plain = torch.optim.SGD(wrapped.parameters(), lr=0.0)
    optimiser = DPOptimizer(plain, noise_multiplier=0.0, max_grad_norm=0.7, expected_batch_size=1, loss_reduction="sum")
    nn.functional.cross_entropy(wrapped(images), labels, reduction="sum").backward()
    optimiser.clip_and_accumulate()
    theirs = torch.cat([p.summed_grad.double().ravel() for p in wrapped.parameters()])
    torch.testing.assert_close(flat(found), theirs, rtol=1e-4, atol=1e-5)


def test_draws_are_handed_to_each_example():
    """Dropout masks as draws by name: the sum is that of the masked losses."""

    def loss(weights, image, draws):
        return (weights["w"] * image * draws["keep"]).sum() * draws["factor"]

    weights = {"w": torch.ones(4)}
    images, _ = data(5, (4,))
    draws = {"keep": torch.randint(2, (5, 4)).bool(), "factor": torch.arange(5.0)}
    found = clipped_sum(loss, weights, (images, draws), clip_norm=1e9, chunk_size=2)
    torch.testing.assert_close(
        found["w"], (images * draws["keep"] * draws["factor"][:, None]).sum(0).double(), rtol=1e-5, atol=1e-5
    )


def test_randomness_inside_the_loss_is_an_error():
    def loss(weights, image):
        return (weights["w"] * torch.rand(4) * image).sum()

    with pytest.raises(RuntimeError, match="random"):
        clipped_sum(loss, {"w": torch.ones(4)}, (torch.ones(3, 4),), clip_norm=1.0)


def linear(weights, image):
    """Its gradient is the image itself, to the last bit."""
    return sum((weights[name] * part).sum() for name, part in zip("ab", image.split([2, 3]), strict=True))


FLAT = {"a": torch.zeros(2), "b": torch.zeros(3)}
values = st.lists(st.floats(width=32) | st.sampled_from([3.4e38, -3.4e38, 1e-45]), min_size=5, max_size=5)


@settings(max_examples=200)
@given(st.lists(values, max_size=4), values, st.floats(1e-5, 1e5))
def test_one_example_never_moves_the_sum_by_more_than_the_clip(others, one, clip):
    """Whatever the gradient: huge, denormal, infinite, NaN."""
    rows = torch.tensor([*others, one], dtype=torch.float32).reshape(-1, 5)
    with_one = clipped_sum(linear, FLAT, (rows,), clip_norm=clip, chunk_size=4)
    without = clipped_sum(linear, FLAT, (rows[:-1],), clip_norm=clip, chunk_size=4)
    moved = (flat(with_one) - flat(without)).tolist()
    assert math.sqrt(math.fsum(x * x for x in moved)) <= clip
    if not all(math.isfinite(x) for x in one):
        assert not any(moved), "a gradient that is not finite counts as zero"


def test_an_example_that_is_not_finite_counts_as_zero_without_a_word(recwarn):
    module = small_net()
    loss, weights, (images, labels) = loss_of(module), weights_of(module), data(9)
    bad = images.clone()
    bad[3], bad[8] = math.nan, math.inf
    keep = [i for i in range(9) if i not in (3, 8)]
    found = clipped_sum(loss, weights, (bad, labels), clip_norm=CLIP, chunk_size=4)
    expected = plain_sum(loss, weights, images[keep], labels[keep])
    torch.testing.assert_close(flat(found), flat(expected), rtol=1e-5, atol=1e-6)
    assert not [w for w in recwarn.list if "privacy" in str(w.filename)]


def test_an_empty_batch_is_legal_and_releases_noise(stream_of):
    module = small_net()
    images, labels = data(4)
    total = clipped_sum(loss_of(module), weights_of(module), (images[:0], labels[:0]), clip_norm=CLIP)
    assert not flat(total).any()
    mechanism = GaussianMechanism(clip_norm=CLIP, noise_multiplier=1.0, expected_size=8.0)
    noise = noisy_gradient(
        loss_of(module), weights_of(module), (images[:0], labels[:0]), mechanism=mechanism, noise=stream_of()
    )
    assert flat(noise).std() == pytest.approx(1 / 8, rel=0.3)


def test_the_gradient_is_divided_by_the_expected_size(stream_of):
    module = small_net()
    loss, weights, (images, labels) = loss_of(module), weights_of(module), data(6)
    made = GaussianMechanism(clip_norm=CLIP, noise_multiplier=1e-3, expected_size=50.0)
    found = noisy_gradient(loss, weights, (images, labels), mechanism=made, noise=stream_of())
    assert all(tensor.dtype == torch.float32 for tensor in found.values())
    torch.testing.assert_close(flat(found) * 50, flat(plain_sum(loss, weights, images, labels)), rtol=0, atol=0.01)


@pytest.mark.parametrize(
    "net",
    [{"arch": "softmax"}, {"arch": "mlp"}, {"arch": "convnet", "width": 16, "depth": 3}, {"arch": "lenet5"}],
    ids=lambda net: net["arch"],
)
def test_an_example_counts_the_same_wherever_it_stands_and_whoever_stands_beside_it(net):
    """To the last bit: else one record's presence would change the last bits of all the others' gradients."""
    module = net_of(**net)
    loss, weights = loss_of(module), weights_of(module)
    size = default_chunk_size(weights)
    images, labels = data(size + 9, (1, 28, 28), 10, seed=3)
    alone = [flat(clipped_sum(loss, weights, (images[[row]], labels[[row]]), clip_norm=1e9)) for row in range(2)]
    silent = images.clone()
    silent[2:] = math.nan  # the others contribute exactly nothing, so that the sum shows the one
    others = torch.arange(2, size + 9)
    for place in (0, 5, size - 1, size, size + 6):
        for row in range(2):
            order = torch.cat([others[:place], torch.tensor([row]), others[place:]])
            found = clipped_sum(loss, weights, (silent[order], labels[order]), clip_norm=1e9)
            assert torch.equal(flat(found), alone[row]), f"at {place}"


# The harness: functions that claim that one example moves them by at most CLIP


def ours(loss, weights, images, labels, expected):
    return clipped_sum(loss, weights, (images, labels), clip_norm=CLIP)


def without_clipping(loss, weights, images, labels, expected):
    return clipped_sum(loss, weights, (images, labels), clip_norm=1e9)


def clipped_tensor_by_tensor(loss, weights, images, labels, expected):
    total = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in weights.items()}
    for gradient in example_gradients(loss, weights, images, labels):
        for name, g in gradient.items():
            total[name] += g.double() * min(1.0, CLIP / max(1e-9, float(g.double().norm())))
    return total


def mean_by_the_realised_size(loss, weights, images, labels, expected):
    """The mean over the batch as it fell, as if it were the sum over its expected size."""
    total = clipped_sum(loss, weights, (images, labels), clip_norm=CLIP)
    return {name: tensor / max(1, len(images)) * expected for name, tensor in total.items()}


def clipped_mean(loss, weights, images, labels, expected):
    """FedDM's Algorithm 2: the mean gradient of the batch is clipped, not each example's."""
    total = clipped_sum(loss, weights, (images, labels), clip_norm=1e9)
    mean = {name: tensor / max(1, len(images)) for name, tensor in total.items()}
    factor = min(1.0, CLIP / max(1e-9, float(flat(mean).norm())))
    return {name: tensor * factor * expected for name, tensor in mean.items()}


def public_masks_by_position(loss, weights, images, labels, expected):
    """Dropout drawn for places in the batch, not for examples: removing one example shifts all the others' masks."""
    masks = torch.rand(200, *images.shape[1:], generator=torch.Generator().manual_seed(0)) < 0.5
    return clipped_sum(loss, weights, (images * masks[: len(images)], labels), clip_norm=CLIP)


def largest_move(function, trials=12):
    """The most that adding one example moved the function, in units of CLIP, over random neighbouring datasets."""
    module = small_net()
    worst = 0.0
    for trial in range(trials):
        generator = torch.Generator().manual_seed(trial)
        count = int(torch.randint(0, 12, (1,), generator=generator))
        weights = weights_of(module, scale=float(10.0 ** torch.randint(-1, 3, (1,), generator=generator)))
        images, labels = data(count + 1, seed=trial)
        images[-1] *= 100.0  # a record that stands out
        place = int(torch.randint(0, count + 1, (1,), generator=generator))
        order = torch.cat([torch.arange(place), torch.tensor([count]), torch.arange(place, count)])
        with_it = function(loss_of(module), weights, images[order], labels[order], 8)
        without = function(loss_of(module), weights, images[:-1], labels[:-1], 8)
        worst = max(worst, float((flat(with_it) - flat(without)).norm()) / CLIP)
    return worst


def test_the_sensitivity_is_the_clip_and_reached():
    assert 1 - 2 * MARGIN <= largest_move(ours) <= 1


@pytest.mark.parametrize(
    "bug",
    [
        without_clipping,
        clipped_tensor_by_tensor,
        mean_by_the_realised_size,
        clipped_mean,
        public_masks_by_position,
    ],
)
def test_the_harness_catches_planted_bugs(bug):
    assert largest_move(bug) > 1.05


def test_batch_norm_in_training_is_refused():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    with pytest.raises(ValueError, match="1 is a batch norm in training"):
        refuse_batch_norm(module)
    refuse_batch_norm(module.eval())
    refuse_batch_norm(nn.Sequential(nn.GroupNorm(2, 2), nn.InstanceNorm2d(2)))


def test_chunks_bound_the_memory(monkeypatch):
    assert default_chunk_size({"w": torch.empty(10, device="meta")}) == 64
    assert default_chunk_size({"w": torch.empty(317_706, device="meta")}) == 32
    assert default_chunk_size({"w": torch.empty(10_000_000, device="meta")}) == 16
    assert default_chunk_size({"w": torch.empty(20_000_000, device="meta")}) == 8
    seen = []
    original = clipping.chunk_gradients

    def spy(loss, weights, chunk, **options):
        seen.append(len(chunk[0]))
        return original(loss, weights, chunk, **options)

    monkeypatch.setattr(clipping, "chunk_gradients", spy)
    clipped_sum(
        lambda weights, image: (weights["w"] * image).sum(),
        {"w": torch.ones(3)},
        (torch.ones(10, 3),),
        clip_norm=1.0,
        chunk_size=4,
    )
    assert seen == [4, 4, 4]


def test_parts_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="of one length"):
        clipped_sum(linear, FLAT, (torch.ones(3, 5), torch.ones(2)), clip_norm=1.0)


def test_noisy_gradients_replay(stream_of):
    module = small_net()
    made = GaussianMechanism(clip_norm=CLIP, noise_multiplier=1.0, expected_size=5.0)

    def step(number):
        gradient = noisy_gradient(
            loss_of(module), weights_of(module), data(5), mechanism=made, noise=stream_of().at(number)
        )
        return flat(gradient).numpy()

    np.testing.assert_array_equal(step(3), step(3))
    assert not np.array_equal(step(3), step(4))
