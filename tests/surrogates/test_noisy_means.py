"""FedDM-DP after the noise: what is made of the releases of several looks, and how images are compared with it."""

import numpy as np
import pytest
import torch

import stages.methods.feddm as feddm
from stages.methods.params.feddm import FedDmEncoding
from stages.methods.private_gradients import SecretStreams
from stages.methods.surrogate_nets import start_weights
from stages.privacy.mechanism import GaussianMechanism

SHARE, CLIP, LOOKS = 0.25, 2.0, 4
# How many times the threshold the mean count of a class is: clear, just above, just below, nothing, less than nothing.
FACTORS = np.array([3.0, 1.01, 0.99, 0.0, -2.0])


class Coins:
    """Streams of which nothing depends."""

    def at(self, number):  # noqa: ARG002
        return self

    def bernoulli(self, rate, count):  # noqa: ARG002
        return np.zeros(count, bool)


STREAMS = SecretStreams(sampling=Coins(), examples=Coins(), noise=Coins())


@pytest.mark.parametrize("sigma", [4.0, 0.01])  # three standard deviations decide, or one record
def test_counts_are_averaged_over_the_looks_and_only_what_stands_out_is_matched(net, some, monkeypatch, sigma):
    module = net("mlp", size=8, classes=5, dtype=torch.float32)
    width = feddm.embedded_size(module)
    thresholds = [max(1.0, 3 * sigma / (SHARE * look**0.5)) for look in range(1, LOOKS + 1)]
    wanted = [FACTORS * threshold for threshold in thresholds]  # the mean count after each look
    random, released = np.random.default_rng(0), []
    for look, mean in enumerate(wanted, start=1):
        count = look * mean - (look - 1) * (wanted[look - 2] if look > 1 else 0)
        released.append(np.concatenate([random.normal(size=(5, width)), count[:, None] * CLIP * SHARE], axis=1))
    given = iter(released)
    monkeypatch.setattr(feddm, "noisy_mean", lambda *_: {"sums": next(given).astype(np.float32)})
    means = feddm.NoisyMeans(
        module, some(3, size=8, dtype=torch.float32), num_classes=5, sampling_rate=0.3, count_share=SHARE,
        mechanism=GaussianMechanism(clip_norm=CLIP, noise_multiplier=sigma, expected_size=1), streams=STREAMS,
    )  # fmt: skip
    for look in range(1, LOOKS + 1):
        found = means(start_weights(module), look)
        assert sorted(found) == means.present() == [0, 1]
        for label, mean in found.items():
            expected = released[look - 1][label, :-1] / wanted[look - 1][label]
            np.testing.assert_allclose(mean.numpy(), expected, rtol=1e-4)


def clipped(rows, longest):
    """Row by row, in plain numbers."""
    return torch.stack([row if row.norm() <= longest else row / row.norm() * longest for row in rows])


@pytest.mark.parametrize("longest", [0.5, 2.0, 1e6])
def test_images_are_clipped_as_the_data_was(net, some, slope_of, longest):
    """One step, against differences of Eq. 9 with clipped features on both sides."""
    module, data, start = net("mlp"), some(9), some(6, seed=3)
    weights = feddm.drawn_weights(start_weights(module), 0.5, torch.Generator().manual_seed(8))
    real = clipped(feddm.embedded(module, weights, data.images).detach(), longest)
    means = {label: real[data.labels == label].mean(dim=0) for label in range(3)}

    def eq_9(images):
        mine = clipped(feddm.embedded(module, weights, images).detach(), longest)
        return sum(((mine[start.labels == label].mean(dim=0) - mean) ** 2).sum() for label, mean in means.items())

    after = feddm.match(
        module, start, lambda *_: means, params=FedDmEncoding(iterations=1, image_momentum=0.0, rho=0.5),
        generator=torch.Generator().manual_seed(8), report=lambda *_: None, longest=longest,
    )  # fmt: skip
    assert after.losses == pytest.approx([float(eq_9(start.images))], rel=1e-6)
    moved = start.images - after.surrogate.images
    for pixel, slope in slope_of(eq_9, start.images, pixels=30):
        assert float(moved.view(-1)[pixel]) == pytest.approx(slope, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize(
    ("noisy", "given", "longest"),
    [(True, {"count_share": 0.25}, 5.0), (True, {"count_share": 0.25, "clip_norm": 2.0}, 2.0), (False, {}, None)],
)
def test_the_stage_clips_both_sides_or_none(make_federation, tmp_path, monkeypatch, noisy, given, longest):
    seen, match = [], feddm.match
    monkeypatch.setattr(feddm, "match", lambda *a, **options: seen.append(options["longest"]) or match(*a, **options))
    made = make_federation(tmp_path)
    (made.noisy if noisy else made.encode)("00", "feddm", **given)
    assert seen == [None if longest is None else pytest.approx(longest * (1 - 0.25**2) ** 0.5, rel=1e-3)]
