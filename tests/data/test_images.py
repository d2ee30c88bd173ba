"""Labelled images check themselves; the scaling between bytes and pixels is constant and exact."""

from __future__ import annotations

import numpy as np
import pytest

from stages.data.images import LabelledImages, to_bytes, to_pixels

images = np.arange(3 * 1 * 2 * 2, dtype=np.uint8).reshape(3, 1, 2, 2)
labels = np.array([2, 0, 2])
names = ("a", "b", "c")


def test_rows_are_taken_in_order() -> None:
    data = LabelledImages(images, labels, names, ("x", "y", "z"))
    part = data.take(np.array([2, 0]))
    assert len(part) == 2
    assert np.array_equal(part.images, images[[2, 0]])
    assert part.labels.tolist() == [2, 2]
    assert part.ids == ("z", "x")
    assert part.class_names == names


def test_class_counts_include_classes_without_rows() -> None:
    assert LabelledImages(images, labels, names).class_counts().tolist() == [1, 0, 2]


def test_no_rows_are_allowed() -> None:
    assert len(LabelledImages(images, labels, names).take(np.array([], np.int64))) == 0


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"images": images.astype(np.float32)}, "found float32"),
        ({"images": images[:, 0]}, r"found uint8 \[3, 2, 2\]"),
        ({"images": np.zeros((3, 2, 2, 2), np.uint8)}, "1 or 3"),
        ({"images": np.zeros((3, 1, 0, 2), np.uint8)}, "height"),
        ({"labels": labels[:2]}, "one for each of the 3 images"),
        ({"labels": labels.astype(np.int32)}, "found int32"),
        ({"labels": np.array([0, 3, 1])}, "found 0…3"),
        ({"labels": np.array([0, -1, 1])}, "found -1…1"),
        ({"class_names": ("a", "b", "a")}, "same name twice"),
        ({"ids": ("x",)}, "found 1"),
    ],
)
def test_what_does_not_fit_is_refused(changes, complaint) -> None:
    whole = {"images": images, "labels": labels, "class_names": names, "ids": None}
    with pytest.raises(ValueError, match=complaint):
        LabelledImages(**(whole | changes))


def test_scaling_reaches_both_ends_and_comes_back_exactly() -> None:
    every_byte = np.arange(256, dtype=np.uint8)
    pixels = to_pixels(every_byte)
    assert pixels.dtype == np.float32
    assert (pixels[0], pixels[255]) == (-1.0, 1.0)
    assert pixels[51] == pytest.approx(-0.6)
    assert np.array_equal(to_bytes(pixels), every_byte)


def test_what_a_network_overshoots_is_clipped_and_rounded() -> None:
    one_level = 1 / 127.5
    pixels = np.array([-np.inf, -3.0, -1.0 + 0.49 * one_level, -1.0 + 0.51 * one_level, 1.2, np.inf], np.float32)
    assert to_bytes(pixels).tolist() == [0, 0, 0, 1, 255, 255]


def test_nan_and_wrong_types_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        to_bytes(np.array([0.0, np.nan]))
    with pytest.raises(ValueError, match="found float64"):
        to_pixels(np.zeros(3))
