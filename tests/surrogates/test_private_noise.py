"""FedLAP-DP and FedDM-DP: the noise of a release, and what is made of it."""

import numpy as np
import torch

import stages.methods.feddm as feddm
import stages.methods.fedlap as fedlap
from stages.methods.augmentation import drawn_transformation
from stages.methods.private_gradients import SecretStreams
from stages.methods.surrogate_nets import start_weights
from stages.privacy.mechanism import GaussianMechanism
from stages.privacy.streams import SecretStream

CONTEXT = {
    "inputs": [], "params": {}, "seed": None, "stage": "encode", "client": "00", "round": 1, "versions": {},
    "device": "cpu", "arithmetic": "",
}  # fmt: skip


def stream(label, number):
    return SecretStream(bytes(range(32)), CONTEXT | {"round": number}, label)


def secret(number):
    return SecretStreams(**{name: stream(name, number) for name in ("sampling", "examples", "noise")})


def test_fedlap_releases_noise_of_its_scale_where_nobody_is(net, some, has_scale):
    """σC over the expected size, in every coordinate; each access has its own."""
    module, nobody = net("mlp", size=8, dtype=torch.float32), some(0, size=8, dtype=torch.float32)
    mechanism = GaussianMechanism(clip_norm=0.5, noise_multiplier=1.3, expected_size=20)
    real = fedlap.NoisyGradient(module, nobody, sampling_rate=0.5, mechanism=mechanism, streams=secret(1))
    same = drawn_transformation((), torch.Generator())
    released = [real(fedlap.Point(start_weights(module), n, same), None) for n in range(1, 11)]
    flat = np.array([np.concatenate([part.numpy().ravel() for part in one.values()]) for one in released], np.float64)
    scale = 0.5 * 1.3 / 20
    assert has_scale(flat, scale)
    assert not has_scale(flat, scale * 2 / 3) and not has_scale(flat, scale * 3 / 2)
    assert abs(np.corrcoef(flat) - np.eye(10)).max() < 0.25


def test_feddm_releases_noise_of_its_scale_for_classes_that_nobody_has(net, some, has_scale, monkeypatch):
    module, data = net("mlp", size=8, classes=10, dtype=torch.float32), some(8, size=8, classes=2, dtype=torch.float32)
    released, original = [], feddm.noisy_mean

    def noted(*arguments):
        released.append(original(*arguments)["sums"])
        return {"sums": released[-1]}

    monkeypatch.setattr(feddm, "noisy_mean", noted)
    mechanism = GaussianMechanism(clip_norm=0.5, noise_multiplier=1.3, expected_size=1)
    means = feddm.NoisyMeans(
        module, data, num_classes=10, sampling_rate=0.5, count_share=0.25, mechanism=mechanism, streams=secret(2)
    )
    for look in range(1, 21):
        means(start_weights(module), look)
    draws = np.array(released, np.float64)[:, 2:]  # eight empty classes
    assert draws.shape == (20, 8, 8 + 10 + 1)
    assert has_scale(draws, 0.65)
    assert not has_scale(draws, 0.65 * 2 / 3) and not has_scale(draws, 0.65 * 3 / 2)
    assert abs(np.corrcoef(draws.reshape(20, -1)) - np.eye(20)).max() < 0.45, "each look has its own"


def test_each_access_draws_its_records_anew(net, some, monkeypatch):
    """With the coins of the access before, ten accesses would be one sample: amplification would count once."""
    module, data = net("mlp", size=8, dtype=torch.float32), some(20, size=8, dtype=torch.float32)
    seen = {"fedlap": [], "feddm": []}

    def noted(name, original, rows_of):
        def note(*arguments, **options):
            seen[name].append({image.numpy().tobytes() for image in rows_of(arguments)})
            return original(*arguments, **options)

        return note

    monkeypatch.setattr(fedlap, "noisy_gradient", noted("fedlap", fedlap.noisy_gradient, lambda a: a[2][0]))
    monkeypatch.setattr(feddm, "clipped_class_sums", noted("feddm", feddm.clipped_class_sums, lambda a: a[2].images))
    options = {
        "sampling_rate": 0.5,
        "mechanism": GaussianMechanism(clip_norm=1.0, noise_multiplier=1.0, expected_size=10),
    }
    gradient = fedlap.NoisyGradient(module, data, streams=secret(5), **options)
    means = feddm.NoisyMeans(module, data, num_classes=3, count_share=0.25, streams=secret(5), **options)
    same = drawn_transformation((), torch.Generator())
    for access in range(1, 11):
        gradient(fedlap.Point(start_weights(module), access, same), None)
        means(start_weights(module), access)
    for samples in seen.values():
        assert len({frozenset(sample) for sample in samples}) == 10
        assert 60 < sum(map(len, samples)) < 140


def test_feddm_means_and_the_classes_that_stand_out(net, some):
    """With little noise: the means are those of the clipped records, and the classes are those that there are."""
    module, data = net("mlp", size=8, classes=5, dtype=torch.float32), some(40, size=8, classes=2, dtype=torch.float32)
    mechanism = GaussianMechanism(clip_norm=50.0, noise_multiplier=1e-3, expected_size=1)
    means = feddm.NoisyMeans(
        module, data, num_classes=5, sampling_rate=1.0, count_share=0.25, mechanism=mechanism, streams=secret(3)
    )
    assert means.present() == []
    found = means(start_weights(module), 1)
    assert sorted(found) == means.present() == [0, 1]
    for label, mean in found.items():
        h = module.features(data.images[data.labels == label])
        torch.testing.assert_close(mean, torch.cat([h, module.head(h)], dim=1).mean(0).detach(), atol=0.02, rtol=0.02)
    loud = feddm.NoisyMeans(
        module, some(0, size=8, dtype=torch.float32), num_classes=5, sampling_rate=1.0, count_share=0.25,
        mechanism=GaussianMechanism(clip_norm=1.0, noise_multiplier=20.0, expected_size=1), streams=secret(4),
    )  # fmt: skip
    loud(start_weights(module), 1)
    assert loud.present() == [], "three standard deviations of the counts' noise"
