"""`--micro-batch` of surrogates: the same sets and models as of whole batches, with less of the network in memory."""

import numpy as np
import pytest
import torch

from stages.methods import feddm, feddm_server, fedlap, fedlap_radius, fedlap_server
from stages.methods.params.feddm import FedDmEncoding
from stages.methods.params.fedlap import FedLapEncoding
from stages.methods.private_gradients import SecretStreams
from stages.privacy.mechanism import GaussianMechanism
from stages.privacy.streams import CONTEXT, SecretStream
from stages.registry import ENCODERS, RULES

SIZE = 4


def silent(*_):
    pass


def generator(seed=1):
    return torch.Generator().manual_seed(seed)


def secret():
    names = ("sampling", "examples", "noise")
    return SecretStreams(**{name: SecretStream(bytes(32), dict.fromkeys(CONTEXT, 0), name) for name in names})


@pytest.fixture
def largest():
    """The largest batch that the network saw since it was asked last."""
    sizes = []

    def watched(module):
        module.register_forward_pre_hook(lambda _, arguments: sizes.append(len(arguments[0])))
        return module

    def take():
        found = max(sizes)
        sizes.clear()
        return found

    watched.take = take
    return watched


@pytest.mark.parametrize(
    "options", [{}, {"match": "class"}, {"augment": "crop,rotate,colour", "targets": "mean"}, {"distance": "mse"}]
)
def test_fedlap_in_pieces_is_fedlap(options, net, some, largest):
    """In float64, so that only the order of the sums differs; 13 and 9 are no multiples of 4."""
    module, data, start = largest(net("convnet")), some(13), some(9, seed=2)

    def run(size):
        params = FedLapEncoding(
            points=3, batches=2, image_steps=2, model_steps=2, radius=50.0, image_rate=0.5, micro_batch=size,
            radius_steps=6, **options,
        )  # fmt: skip
        real = fedlap.BatchGradient(module, data, 11, generator(), micro_batch=size)
        matched = fedlap.approximate(
            module, start, real, params=params, rate=0.1, generator=generator(), report=silent
        )  # fmt: skip
        _, curve = fedlap_radius.calibrated_radius(
            module, matched.surrogate, data, params=params, rate=0.1, generator=generator()
        )
        norms = fedlap_radius.layer_norms(module, data, micro_batch=size)
        return [
            matched.surrogate.images,
            torch.tensor(matched.losses),
            norms,
            torch.tensor([c.real_loss for c in curve]),
        ]

    whole, before = run(None), largest.take()
    pieces, after = run(SIZE), largest.take()
    assert before > SIZE >= after
    torch.testing.assert_close(pieces, whole, rtol=1e-6, atol=1e-9)
    assert not torch.equal(whole[0], start.images)


@pytest.mark.parametrize("longest", [None, 0.5])
def test_feddm_in_pieces_is_feddm(longest, net, some, monkeypatch):
    module, data, start = net("convnet"), some(13), some(9, seed=2)
    sizes, embedded = [], feddm.embedded
    monkeypatch.setattr(feddm, "embedded", lambda m, w, images: sizes.append(len(images)) or embedded(m, w, images))

    def run(size):
        sizes.clear()
        params = FedDmEncoding(iterations=3, steps_per_look=2, image_rate=0.3, rho=1.0, micro_batch=size)
        means = feddm.BatchMeans(module, data, 3, generator(), micro_batch=size)
        found = feddm.match(
            module, start, means, params=params, generator=generator(2), report=silent, longest=longest
        )  # fmt: skip
        return [found.surrogate.images, torch.tensor(found.losses)], max(sizes)

    (whole, before), (pieces, after) = run(None), run(SIZE)
    assert before > SIZE >= after
    torch.testing.assert_close(pieces, whole, rtol=1e-6, atol=1e-9)
    assert not torch.equal(whole[0], start.images)


def test_the_servers_descent_in_pieces_is_the_same_descent(net, some, largest):
    module, first, second = largest(net("convnet")), some(9), some(7, seed=4)
    sets = [fedlap_server.Contribution(first, 0.75), fedlap_server.Contribution(second, 0.25)]

    def run(size):
        lap, _ = fedlap_server.optimise(module, sets, radius=None, steps=3, rate=0.1, micro_batch=size)
        dm, _ = feddm_server.optimise(
            module, first, rho=50.0, epochs=2, batch_size=8, rate=0.1, generator=generator(), report=silent,
            micro_batch=size,
        )  # fmt: skip
        return [lap, dm]

    whole, before = run(None), largest.take()
    pieces, after = run(SIZE), largest.take()
    assert (before, after) == (9, SIZE)
    torch.testing.assert_close(pieces, whole, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("size", [2, 8])
def test_under_noise_pieces_change_the_rounding_and_nothing_else(size, net, some):
    """The same coins and the same noise: the releases differ by the last bits of the sums, before they are rounded."""
    module, data = net("mlp", dtype=torch.float32), some(30, dtype=torch.float32)
    weights = fedlap.start_weights(module)
    lap, dm = (
        GaussianMechanism(clip_norm=1.0, noise_multiplier=1.0, expected_size=expected) for expected in (10, 1)
    )  # fmt: skip

    def run(**pieces):
        gradient = fedlap.NoisyGradient(
            module, data, sampling_rate=0.5, mechanism=lap, streams=secret(), micro_batch=pieces.get("size")
        )
        means = feddm.NoisyMeans(
            module, data, num_classes=3, sampling_rate=0.5, count_share=0.9, mechanism=dm, streams=secret(), **pieces
        )
        return gradient(fedlap.Point(weights, 1, fedlap.unchanged), None), means(weights, 1)

    torch.testing.assert_close(run(size=size), run(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("method", "options", "complaint"),
    [
        ("fedlap", {"micro_batch": 0}, "at least 1, found 0"),
        ("fedlap", {"noise_multiplier": 1.0, "sampling_rate": 0.1, "micro_batch": 3}, "one of 2, 4, 8"),
        ("feddm", {"noise_multiplier": 1.0, "sampling_rate": 0.1, "micro_batch": 3}, "one of 2, 4, 8"),
        ("feddm", {"iterations": 0, "init": "real", "micro_batch": 8}, "goes with --iterations above 0"),
    ],
)
def test_what_is_refused(method, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        ENCODERS.from_mapping({"method": method, **options})


@pytest.mark.parametrize("method", ["fedlap", "feddm"])
def test_files_say_so_and_models_are_the_same_but_for_rounding(method, federation, read):
    sent = federation.encode("00", method, micro_batch=2)
    assert read(sent, kind="surrogate").metadata.params["micro_batch"] == 2
    # A radius is the distance of a step: whether the last one is inside would hang on the last bit.
    steps = {"strategy": "fixed", "radius": None} if method == "fedlap" else {}
    whole = federation.aggregate([sent], method, out=federation.root / "server/outbox/whole.safetensors", **steps)
    pieces = federation.aggregate([sent], method, micro_batch=2, **steps)
    one, other = (read(found.path, kind="model") for found in (whole, pieces))
    assert "micro_batch" not in one.metadata.params and other.metadata.params["micro_batch"] == 2
    for name, tensor in one.tensors.items():
        np.testing.assert_allclose(other.tensors[name], tensor, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="at least 1"):
        RULES.from_mapping({"rule": method, "micro_batch": 0})
