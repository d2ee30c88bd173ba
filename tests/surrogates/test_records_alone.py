"""FedDM under DP: a record's features are the same bits whatever other records are in the sample."""

import numpy as np
import pytest
import torch

from stages.methods import feddm
from stages.methods.surrogate_nets import LabelledSet, start_weights

NETS = [("mlp", 4, {}), ("convnet", 8, {}), ("convnet", 9, {"width": 5, "depth": 2})]


def alone(module, images, weights=None):
    return feddm.embedded_alone(module, weights or start_weights(module), images, feddm.places_of(images))


@pytest.mark.parametrize(("arch", "size", "given"), NETS)
def test_the_bits_do_not_depend_on_the_batch(arch, size, given, net, some):
    module, images = (
        net(arch, size=size, dtype=torch.float32, **given),
        some(150, size=size, dtype=torch.float32).images,
    )
    whole, rng = alone(module, images), np.random.default_rng(0)
    assert torch.isfinite(whole).all() and len(torch.unique(whole, dim=0)) == 150
    for count in (1, 2, 7, 63, 64, 65, 149):
        rows = torch.from_numpy(rng.permutation(150)[:count])
        assert torch.equal(alone(module, images[rows]), whole[rows]), "in any order, among any others"
    for gone in (0, 74, 149):
        rest = torch.tensor([row for row in range(150) if row != gone])
        assert torch.equal(alone(module, images[rest]), whole[rest]), "a record that leaves moves nobody"


def test_nor_on_impossible_numbers_in_it(net, some):
    module, images = net("convnet", size=8, dtype=torch.float32), some(90, size=8, dtype=torch.float32).images
    whole = alone(module, images)
    for bad in (float("inf"), float("nan"), 3e38):
        spoilt = torch.cat([images, torch.full((40, 1, 8, 8), bad) * torch.randn(40, 1, 8, 8)])
        assert torch.equal(alone(module, spoilt)[:90], whole)


def test_they_are_the_networks_features(net, some):
    module, images = net("convnet", size=8), some(70, size=8).images
    expected = torch.cat([feddm.embedded(module, start_weights(module), image[None]).detach() for image in images])
    torch.testing.assert_close(alone(module, images), expected, rtol=1e-12, atol=1e-12)
    assert alone(module, images[:0]).shape == (0, expected.shape[1])


def test_a_place_follows_from_the_pixels_alone(some):
    images = some(500, dtype=torch.float32).images
    places = feddm.places_of(images)
    assert places.min() >= 0 and places.max() < feddm.PLACES
    order = torch.from_numpy(np.random.default_rng(1).permutation(500))
    assert np.array_equal(feddm.places_of(images[order]), places[order.numpy()])
    assert np.array_equal(feddm.places_of(images[3:4].expand(5, -1, -1, -1)), places[[3] * 5]), "a repeated one, too"


def test_the_sums_are_those_of_records_one_by_one(net, some):
    module, data = net("convnet", size=8, dtype=torch.float32), some(40, size=8, dtype=torch.float32)
    weights, options = start_weights(module), {"num_classes": 3, "clip_norm": 0.5, "count_share": 0.25}
    whole = feddm.clipped_class_sums(module, weights, data, **options)
    parts = [
        feddm.clipped_class_sums(module, weights, LabelledSet(data.images[[i]], data.labels[[i]]), **options)
        for i in range(40)
    ]
    torch.testing.assert_close(whole, sum(parts), rtol=0, atol=1e-13)
    assert all(float(torch.linalg.vector_norm(part)) <= 0.5 for part in parts)
