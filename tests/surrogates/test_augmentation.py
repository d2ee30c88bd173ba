"""Differentiable siamese augmentation: each against an array worked by hand, and the same for every image."""

import math

import numpy as np
import pytest
import torch

from stages.methods import augmentation
from stages.methods.augmentation import drawn_transformation
from stages.methods.params.fedlap import AUGMENTATIONS

SQUARE = torch.arange(16.0, dtype=torch.float64).reshape(1, 1, 4, 4)


def drawn(*names, seed=0):
    return drawn_transformation(names, torch.Generator().manual_seed(seed))


def strengths(seed, names):
    """The name and the three numbers that such a draw gives."""
    generator = torch.Generator().manual_seed(seed)
    chosen = names[int(torch.randint(len(names), (1,), generator=generator))]
    return chosen, torch.rand(3, generator=generator).tolist()


def test_none_named_is_nothing_done_and_nothing_drawn():
    generator = torch.Generator().manual_seed(1)
    state = generator.get_state()
    assert drawn_transformation((), generator)(SQUARE) is SQUARE
    assert torch.equal(generator.get_state(), state)


def test_colour_by_hand():
    """Two channels of two pixels: brightness first, then saturation about the pixel's grey, then contrast."""
    image = torch.tensor([[[[1.0, 2.0]], [[3.0, 6.0]]]], dtype=torch.float64)
    _, (a, b, c) = strengths(3, ["colour"])
    x = np.array([[1.0, 2.0], [3.0, 6.0]]) + (a - 0.5)
    grey = x.mean(axis=0)
    x = grey + (x - grey) * 2 * b
    x = x.mean() + (x - x.mean()) * (c + 0.5)
    np.testing.assert_allclose(drawn("colour", seed=3)(image)[0, :, 0], x)


def test_crop_by_hand():
    """4×4: at most half a pixel and a half, so one, each way; black (−1) comes in."""
    seen = set()
    for seed in range(40):
        _, (a, b, _) = strengths(seed, ["crop"])
        down, across = int(b * 3) - 1, int(a * 3) - 1  # how far the window moves
        expected = np.full((4, 4), -1.0)
        for y in range(4):
            for x in range(4):
                if 0 <= y + down < 4 and 0 <= x + across < 4:
                    expected[y, x] = 4 * (y + down) + x + across
        np.testing.assert_array_equal(drawn("crop", seed=seed)(SQUARE)[0, 0], expected)
        seen.add((down, across))
    assert len(seen) == 9


def test_cutout_by_hand():
    """A hole of 2×2 in 4×4, its middle anywhere, its part inside the image zero."""
    ones, sizes = torch.ones(1, 1, 4, 4), set()
    for seed in range(40):
        _, (a, b, _) = strengths(seed, ["cutout"])
        top, left = int(b * 5) - 1, int(a * 5) - 1
        expected = np.ones((4, 4))
        for y in range(4):
            for x in range(4):
                if top <= y < top + 2 and left <= x < left + 2:
                    expected[y, x] = 0
        np.testing.assert_array_equal(drawn("cutout", seed=seed)(ones)[0, 0], expected)
        sizes.add(int(16 - expected.sum()))
    assert sizes == {1, 2, 4}


def test_flip_by_hand():
    both = {tuple(drawn("flip", seed=seed)(SQUARE)[0, 0, 0].tolist()) for seed in range(10)}
    assert both == {(0.0, 1.0, 2.0, 3.0), (3.0, 2.0, 1.0, 0.0)}


def bilinear(image, y, x):
    """The value between pixels, zero outside."""
    total = 0.0
    for row in (math.floor(y), math.floor(y) + 1):
        for column in (math.floor(x), math.floor(x) + 1):
            if 0 <= row < image.shape[0] and 0 <= column < image.shape[1]:
                total += (1 - abs(y - row)) * (1 - abs(x - column)) * image[row, column]
    return total


@pytest.mark.parametrize("name", ["scale", "rotate"])
def test_scale_and_rotate_by_hand(name):
    """Each pixel is looked up where the inverse map leads, corners at ±1; outside is black (−1)."""
    for seed in range(5):
        _, (a, b, _) = strengths(seed, [name])
        angle = math.radians(15) * (2 * a - 1)
        rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        least, most = 1 / 1.2, 1.2
        matrix = np.diag([least + (most - least) * part for part in (a, b)]) if name == "scale" else rotation
        expected = np.zeros((4, 4))
        for row in range(4):
            for column in range(4):
                x, y = matrix @ [column / 1.5 - 1, row / 1.5 - 1]
                expected[row, column] = bilinear(SQUARE[0, 0].numpy() + 1, (y + 1) * 1.5, (x + 1) * 1.5) - 1
        np.testing.assert_allclose(drawn(name, seed=seed)(SQUARE)[0, 0], expected, atol=1e-9)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_it_is_differentiable(name):
    images = torch.randn(2, 2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    for seed in range(3):
        assert torch.autograd.gradcheck(drawn(name, seed=seed), (images,))


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_every_image_is_transformed_alike_and_by_itself(name):
    """The same for the real and the synthetic batch; no record changes a bit of another's; no batch is too small."""
    images = torch.randn(70, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for seed in range(4):
        transformation = drawn(name, seed=seed)
        whole = transformation(images)
        for rows in (slice(0, 1), slice(0, 33), slice(5, 70), slice(69, 70)):
            assert torch.equal(transformation(images[rows]), whole[rows])
        assert transformation(images[:0]).shape == (0, 1, 8, 8), "an empty Poisson sample is legal"


def test_all_of_them_are_drawn_and_the_real_batch_sees_what_the_images_see(net, some, monkeypatch):
    from stages.methods.fedlap import BatchGradient, approximate
    from stages.methods.params.fedlap import FedLapEncoding

    seen = []

    def noting(name, function):
        def noted(images, *how):
            seen.append((name, how, len(images)))
            return function(images, *how)

        return noted

    for name in ("_coloured", "_shifted", "_cut_out", "_affine"):
        monkeypatch.setattr(augmentation, name, noting(name, getattr(augmentation, name)))
    module = net()
    approximate(
        module, some(6, seed=2), BatchGradient(module, some(9), 9, torch.Generator()),
        params=FedLapEncoding(points=1, batches=30, image_steps=2, image_rate=1e-3, augment="colour,crop,cutout,scale"),
        rate=0.1, generator=torch.Generator().manual_seed(0), report=lambda *_: None,
    )  # fmt: skip
    assert {name for name, _, _ in seen} == {"_coloured", "_shifted", "_cut_out", "_affine"}
    assert len(seen) == 90
    for real, first, second in zip(seen[::3], seen[1::3], seen[2::3], strict=True):
        assert (real[2], first[2], second[2]) == (9, 6, 6)
        assert real[:2] == first[:2] == second[:2]


def test_an_unknown_one_is_an_error():
    with pytest.raises(ValueError, match="no augmentation is called 'sharpen'"):
        drawn("sharpen")
