"""All images of one dataset have one shape, or the user is told which shapes there are and what to ask for."""

from __future__ import annotations

import numpy as np
import pytest

from artifacts.limits import Limit
from stages.data import conform
from stages.data.conform import Form, collect


def blank(channels: int, height: int, width: int) -> np.ndarray:
    return np.full((channels, height, width), 7, np.uint8)


def test_images_that_agree_are_stacked_in_order() -> None:
    images = np.arange(5 * 3 * 2 * 4, dtype=np.uint8).reshape(5, 3, 2, 4)
    assert np.array_equal(collect(iter(images), 5, Form()), images)


@pytest.mark.parametrize(
    ("shapes", "complaint"),
    [
        ([(1, 2, 2), (1, 2, 3)], r"different shapes \(1 of 2×2×1, 1 of 2×3×1\); give --image-size$"),
        ([(1, 2, 2), (3, 2, 2)], r"different shapes \(1 of 2×2×1, 1 of 2×2×3\); give --channels$"),
        ([(1, 2, 2), (3, 4, 4), (3, 4, 4)], r"\(2 of 4×4×3, 1 of 2×2×1\); give --image-size and --channels$"),
    ],
)
def test_images_that_differ_are_refused_with_what_would_help(shapes, complaint) -> None:
    images = [blank(*shape) for shape in shapes]
    with pytest.raises(ValueError, match=complaint):
        collect(images, len(images), Form())
    assert collect(images, len(images), Form(size=(3, 3), channels=3)).shape == (len(images), 3, 3, 3)


def test_all_images_are_counted_though_few_shapes_are_named() -> None:
    images = [blank(1, 1, width) for width in (1, 1, 2, 3, 4, 5)]
    with pytest.raises(ValueError, match=r"2 of 1×1×1, 1 of 1×2×1, 1 of 1×3×1, 1 of 1×4×1, and others"):
        collect(images, len(images), Form())


@pytest.mark.parametrize(("fit", "said"), [("stretch", ["1 of 2 images had other proportions"]), ("crop", [])])
def test_changed_proportions_are_said(fit, said, caplog) -> None:
    collect([blank(1, 4, 4), blank(1, 4, 6)], 2, Form(size=(2, 2), fit=fit))
    assert [text in record.getMessage() for text, record in zip(said, caplog.records, strict=True)] == [True] * len(
        said
    )


@pytest.mark.parametrize("held", [1, 3])
def test_a_count_that_is_wrong_is_noticed(held) -> None:
    with pytest.raises(ValueError, match=f"declares 2 images and holds {held}"):
        collect([blank(1, 2, 2)] * held, 2, Form())


def test_no_images_are_refused() -> None:
    with pytest.raises(ValueError, match="no images"):
        collect([], 0, Form())


def test_too_much_is_refused_before_it_is_allocated(monkeypatch) -> None:
    with pytest.raises(
        ValueError, match=r"1,000,000,000,000 of 2×2×1 take 4,000,000,000,000 bytes of pixels; at most 8,589,934,592"
    ):
        collect([blank(1, 2, 2)], 10**12, Form())
    monkeypatch.setattr(conform, "PIXELS", Limit(8))
    assert collect([blank(1, 2, 2)] * 2, 2, Form()).nbytes == 8
    # Bytes are counted after the conversion: a smaller size is the way out that the message names.
    assert collect([blank(3, 100, 100)] * 2, 2, Form(size=(2, 2), channels=1)).nbytes == 8


def test_conversion_by_hand() -> None:
    red = np.zeros((3, 1, 1), np.uint8)
    red[0] = 255
    assert Form(channels=1).apply(red).tolist() == [[[76]]]  # 0.299 · 255
    grey = np.array([[[1, 2], [3, 4]]], np.uint8)
    assert Form(channels=3).apply(grey).tolist() == [grey[0].tolist()] * 3
    assert Form(channels=1).apply(grey) is grey


def test_resizing_is_bilinear() -> None:
    # Two pixels to four: bilinear weights 1, 3/4, 1/4, 0 at the new centres.
    ramp = np.array([[[0, 200], [0, 200]]], np.uint8)
    assert Form(size=(4, 4)).apply(ramp)[0, 0].tolist() == [0, 50, 150, 200]
    tall = np.zeros((3, 6, 2), np.uint8)
    assert Form(size=(2, 2)).apply(tall).shape == (3, 2, 2)


def test_proportions_are_kept_by_cutting_off_or_by_black() -> None:
    wide = np.array([[[10, 20, 30, 40], [50, 60, 70, 80]]], np.uint8)
    assert Form(size=(2, 2), fit="crop").apply(wide).tolist() == [[[20, 30], [60, 70]]]
    assert Form(size=(4, 4), fit="pad").apply(wide).tolist() == [[[0] * 4, *wide[0].tolist(), [0] * 4]]
    tall = wide.transpose(0, 2, 1)
    assert Form(size=(2, 2), fit="crop").apply(tall).tolist() == [[[20, 60], [30, 70]]]
    assert Form(size=(4, 4), fit="pad").apply(tall).tolist() == [[[0, *row, 0] for row in tall[0].tolist()]]
    assert Form(size=(3, 6), fit="stretch").apply(wide).shape == (1, 3, 6)
