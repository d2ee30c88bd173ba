"""The contact sheet: every image is on it, pixel for pixel, and nothing is resampled."""

import io

import numpy as np
import pytest
from PIL import Image

from stages.pictures.contact_sheet import contact_sheets


def pixels(png):
    with Image.open(io.BytesIO(png)) as picture:
        return np.array(picture.convert("RGB"))


def sheets(images, names=("0", "1")):
    labels = np.arange(len(images)) % len(names)
    return contact_sheets(images, labels, np.arange(len(images)), names, "client 00: synthetic images")


def contains(page, block):
    """Whether `block` is somewhere on `page`, exactly."""
    height, width = block.shape[:2]
    starts = np.argwhere((page[: page.shape[0] - height + 1, : page.shape[1] - width + 1] == block[0, 0]).all(axis=2))
    return any((page[y : y + height, x : x + width] == block).all() for y, x in starts)


@pytest.mark.parametrize(("shape", "zoom"), [((1, 8, 8), 7), ((3, 32, 32), 2), ((3, 64, 48), 1)])
def test_every_image_stands_on_it_in_whole_pixels(shape, zoom):
    images = np.random.default_rng(0).integers(0, 250, (5, *shape), dtype=np.uint8)
    (page,) = map(pixels, sheets(images))
    for image in images:
        colour = np.broadcast_to(image, (3, *shape[1:])).transpose(1, 2, 0)
        assert contains(page, colour.repeat(zoom, axis=0).repeat(zoom, axis=1))


def test_captions_are_there_and_differ():
    images = np.full((2, 1, 8, 8), 9, np.uint8)
    plain = pixels(sheets(images)[0])
    other = pixels(
        contact_sheets(images, np.array([0, 0]), np.array([0, 1]), ("0", "1"), "client 00: synthetic images")[0]
    )
    numbered = pixels(
        contact_sheets(images, np.array([0, 1]), np.array([0, 17]), ("0", "1"), "client 00: synthetic images")[0]
    )
    assert plain.shape == other.shape == numbered.shape
    assert (plain != other).any()  # the class of the second
    assert (plain != numbered).any()  # its number


def test_many_images_take_several_sheets_of_bounded_size():
    pages = sheets(np.zeros((300, 1, 8, 8), np.uint8))
    assert len(pages) == 2
    assert all(max(pixels(page).shape) <= 1300 for page in pages)


def test_long_and_strange_class_names_and_equal_bytes():
    images = np.zeros((3, 3, 32, 32), np.uint8)
    names = ("$x$", "a very long name of a class indeed", "猫")
    assert sheets(images, names) == sheets(images, names)
