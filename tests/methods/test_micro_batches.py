"""A batch in pieces is the batch, and bf16 is what it says: against the whole batch in float32."""

import numpy as np
import pytest
import torch
from torch import nn

from stages.methods.local_training import batch_gradients, refuse_pieces
from stages.methods.params.fedavg import FedAvgTraining
from stages.methods.params.fedsgd import FedSgdTraining
from stages.methods.private_gradients import SecretStreams
from stages.methods.private_local_training import private_gradients
from stages.nets.dropout import Dropout
from stages.privacy.clipping import noisy_gradient
from stages.privacy.mechanism import GaussianMechanism
from stages.privacy.streams import CONTEXT, SecretStream
from stages.registry import GENERATORS

RNG = np.random.default_rng(0)
IMAGES = torch.from_numpy(RNG.normal(size=(22, 1, 6, 6)).astype(np.float32))
LABELS = torch.from_numpy(RNG.integers(0, 5, size=22))
ROWS = torch.arange(21)


def network(*layers):
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), *layers, nn.Linear(64, 5))


def gradients(net, **options):
    (gradient,) = batch_gradients(net, IMAGES, LABELS, [ROWS], torch.Generator().manual_seed(0), **options)
    loss = gradient()
    return loss, {name: weight.grad.clone() for name, weight in net.named_parameters()}


@pytest.mark.parametrize("size", [1, 4, 7, 20, 21, 100])
def test_pieces_of_any_size_sum_to_the_whole_batch(size):
    net = network()
    loss, whole = gradients(net)
    expected = nn.functional.cross_entropy(net(IMAGES[ROWS]), LABELS[ROWS])
    torch.testing.assert_close(loss, expected.detach(), rtol=0, atol=0)
    stated, found = gradients(net, micro_batch=size)
    torch.testing.assert_close(stated, loss, rtol=1e-6, atol=0)
    torch.testing.assert_close(found, whole, rtol=1e-5, atol=1e-7)


def test_no_more_than_a_piece_is_in_a_pass():
    sizes = []
    net = network()
    net.register_forward_pre_hook(lambda _, arguments: sizes.append(len(arguments[0])))
    gradients(net, micro_batch=8)
    assert sizes == [8, 8, 5]


def test_dropout_in_pieces_is_repeated_for_the_same_batch():
    """As SAM needs it: two calls, two points of one and the same function."""
    net = network(Dropout(0.5))
    (gradient,) = batch_gradients(net, IMAGES, LABELS, [ROWS], torch.Generator().manual_seed(0), micro_batch=8)
    assert torch.equal(gradient(), gradient())


def test_batch_norm_takes_no_pieces():
    refuse_pieces(network())
    with pytest.raises(ValueError, match="4 is a batch norm"):
        refuse_pieces(nn.Sequential(*network()[:4], nn.BatchNorm1d(5)))


def test_bf16_is_near_float32_and_is_not_float32():
    """bf16 has 8 bits: products are off by up to 2⁻⁸ each; weights and gradients stay float32."""
    net = network()
    _, whole = gradients(net)
    _, found = gradients(net, precision="bf16")
    assert {gradient.dtype for gradient in found.values()} == {torch.float32}
    there, here = (torch.cat([g.flatten() for g in gradients.values()]) for gradients in (whole, found))
    assert 1e-4 < float((here - there).norm() / there.norm()) < 0.05  # 0.024 where it was measured


@pytest.mark.parametrize("size", [2, 8, 64])
def test_private_pieces_are_clipped_one_by_one_and_noised_once(size, monkeypatch):
    """Against every example's gradient taken alone, clipped in float64 and summed."""
    import stages.privacy.clipping as clipping

    net, clip, calls = network(), 0.5, []
    weights = {name: weight.detach() for name, weight in net.named_parameters()}
    noised = clipping.noisy_mean
    monkeypatch.setattr(clipping, "noisy_mean", lambda total, *rest: calls.append(total) or noised(total, *rest))

    def loss(weights, image, label):
        return nn.functional.cross_entropy(torch.func.functional_call(net, weights, (image[None],)), label[None])

    mechanism = GaussianMechanism(noise_multiplier=1.0, clip_norm=clip, expected_size=20)
    noise = SecretStream(bytes(32), dict.fromkeys(CONTEXT, 0), "noise")
    noisy_gradient(loss, weights, (IMAGES[ROWS], LABELS[ROWS]), mechanism=mechanism, noise=noise, chunk_size=size)
    (total,) = calls
    expected = {name: torch.zeros_like(weight, dtype=torch.float64) for name, weight in weights.items()}
    for row in ROWS.tolist():
        net.zero_grad()
        nn.functional.cross_entropy(net(IMAGES[row : row + 1]), LABELS[row : row + 1]).backward()
        grads = {name: weight.grad.double() for name, weight in net.named_parameters()}
        length = torch.cat([g.flatten() for g in grads.values()]).norm()
        for name, gradient in grads.items():
            expected[name] += gradient * min(1.0, clip / float(length))
    for name, gradient in expected.items():
        np.testing.assert_allclose(total[name], gradient.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [2, 8])
def test_a_person_whose_records_are_in_several_pieces_is_clipped_once(size, monkeypatch):
    """Against the gradient of each person's summed loss, clipped: person 0 has records all over the data."""
    import stages.privacy.clipping as clipping

    net, clip, calls = network(), 0.5, []
    units = torch.tensor([0, 1, 2] * 4 + [0] * 6 + [3] * 4)
    noised = clipping.noisy_mean
    monkeypatch.setattr(clipping, "noisy_mean", lambda total, *rest: calls.append(total) or noised(total, *rest))
    context, names = dict.fromkeys(CONTEXT, 0), ("sampling", "examples", "noise")
    streams = SecretStreams(**{name: SecretStream(bytes(32), context, name) for name in names})
    (gradient,) = private_gradients(
        net, IMAGES, LABELS, units=units, steps=1, sampling_rate=1.0, streams=streams, micro_batch=size,
        mechanism=GaussianMechanism(noise_multiplier=1.0, clip_norm=clip, expected_size=4),
    )  # fmt: skip
    gradient()
    (total,) = calls
    expected = {name: torch.zeros_like(weight, dtype=torch.float64) for name, weight in net.named_parameters()}
    for person in range(4):
        net.zero_grad()
        nn.functional.cross_entropy(net(IMAGES[units == person]), LABELS[units == person], reduction="sum").backward()
        length = torch.cat([weight.grad.flatten() for weight in net.parameters()]).norm()
        for name, weight in net.named_parameters():
            expected[name] += weight.grad.double() * min(1.0, clip / float(length))
    for name, found in expected.items():
        np.testing.assert_allclose(total[name], found.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"micro_batch": 0}, "--micro-batch must be at least 1, found 0"),
        ({"noise_multiplier": 1.0, "sampling_rate": 0.1, "local_steps": 1, "micro_batch": 3}, "one of 2, 4, 8"),
        ({"noise_multiplier": 1.0, "sampling_rate": 0.1, "local_steps": 1, "precision": "bf16"}, "in float32"),
        ({"precision": "fp8"}, "precision"),
    ],
)
def test_what_is_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        FedAvgTraining(**options)


def test_files_say_so_only_where_it_was_asked_for():
    assert {"micro_batch", "precision"}.isdisjoint(FedSgdTraining().to_json())
    asked = FedSgdTraining(micro_batch=4, precision="bf16").to_json()
    assert (asked["micro_batch"], asked["precision"]) == (4, "bf16")
    with pytest.raises(ValueError, match="one of 2, 4"):
        GENERATORS.from_mapping({"family": "vae", "noise_multiplier": 1.0, "sampling_rate": 0.1, "micro_batch": 5})
