"""The picture of a partition: a PNG, the same for the same counts, whatever the counts and the names."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest

from stages.data.png import chunks, read_image
from stages.pictures.class_counts import class_counts_picture

counts = np.random.default_rng(0).integers(0, 200, (4, 3))


def test_the_bytes_depend_on_the_arguments_alone() -> None:
    first = class_counts_picture(counts, ("a", "b", "c"))
    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        assert class_counts_picture(counts, ("a", "b", "c")) == first
    assert dict(matplotlib.rcParams) == before
    assert class_counts_picture(counts + 1, ("a", "b", "c")) != first
    assert not {"tEXt", "iTXt", "zTXt", "tIME", "eXIf"} & set(chunks(first))


@pytest.mark.parametrize("shape", [(1, 1), (500, 2), (100, 100)])
def test_the_picture_stays_of_a_size_that_can_be_looked_at(shape) -> None:
    names = [f"class {i}" for i in range(shape[1])]
    _, height, width = read_image(class_counts_picture(np.ones(shape, np.int64), names)).shape
    assert 200 < height < 2500
    assert 200 < width < 2500


def test_more_rows_are_darker_and_none_is_white() -> None:
    picture = read_image(class_counts_picture(np.array([[0] * 30, [1] * 30, [100] * 30]), [str(i) for i in range(30)]))
    # Along a line down through the cells, away from numbers: white, light blue, dark blue.
    column = picture[:3, :, picture.shape[2] // 3].astype(int).sum(axis=0)
    whites, lights, darks = (column == 765).any(), (abs(column - 640) < 60).any(), (column < 250).any()
    assert whites and lights and darks


def test_any_class_name_is_only_a_name(recwarn) -> None:
    names = ("$x$", r"$\frac{$", "日本語", "a\nb", "x" * 500, "", "\\", "_^{}")
    picture = read_image(class_counts_picture(np.ones((2, len(names)), np.int64), names))
    assert not recwarn.list
    plain = read_image(class_counts_picture(np.ones((2, len(names)), np.int64), "abcdefgh"))
    assert picture.shape == plain.shape  # no name, however long, drives the picture apart


def test_a_client_or_a_class_without_rows_is_no_error() -> None:
    class_counts_picture(np.zeros((3, 3), np.int64), ("a", "b", "c"))


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c", "d")])
def test_names_must_match(names) -> None:
    with pytest.raises(ValueError, match=r"counts \[4, 3\] need one name for each class"):
        class_counts_picture(counts, names)
