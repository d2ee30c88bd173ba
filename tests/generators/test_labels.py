"""Which labels synthetic images get."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.methods.labels import apportioned, labels_of, parsed_labels


@given(weights=st.lists(st.integers(0, 10**12), min_size=1, max_size=30).filter(any), count=st.integers(1, 5000))
def test_largest_remainders(weights, count):
    parts = apportioned(weights, count)
    quotas = [Fraction(count * weight, sum(weights)) for weight in weights]
    assert parts.sum() == count
    assert all(abs(int(part) - quota) < 1 for part, quota in zip(parts, quotas, strict=True))
    # Whoever was rounded up lost at least as much by rounding down as anyone who was rounded down.
    up = [quota % 1 for part, quota in zip(parts, quotas, strict=True) if part > quota]
    down = [quota % 1 for part, quota in zip(parts, quotas, strict=True) if part < quota]
    assert not up or not down or min(up) >= max(down)
    assert all(part == 0 for part, weight in zip(parts, weights, strict=True) if weight == 0)


def test_a_case_by_hand():
    # Quotas 4.375, 3.125, 0, 2.5: seats 4, 3, 0, 2, and the tenth goes to the remainder .5.
    assert apportioned([7, 5, 0, 4], 10).tolist() == [4, 3, 0, 3]
    assert apportioned([1, 1, 1], 2).tolist() == [1, 1, 0]  # of equals the first


@pytest.mark.parametrize("weights", [[0, 0], [3, -1]])
def test_impossible_weights(weights):
    with pytest.raises(ValueError, match="no class has any weight"):
        apportioned(weights, 3)


def test_labels_stand_in_order_of_classes():
    assert labels_of(np.array([2, 0, 1])).tolist() == [0, 0, 2]


@pytest.mark.parametrize(
    ("text", "labels"),
    [("2,2,0", [2, 2, 0]), ("dog:2, 0", [1, 1, 0]), ("a:b:3", [2, 2, 2]), (" cat ", [0]), ("1:0", [])],
)
def test_label_lists(text, labels):
    assert parsed_labels(text, ["cat", "dog", "a:b"]).tolist() == labels


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3", "label 3 is out of range: there are 3 classes"),
        ("-1", "there is no class '-1'"),
        ("cow", "there is no class 'cow'; known: cat, dog, emu"),
        ("cat:many", "'cat:many' is not a class"),
        ("", "there is no class ''"),
        ("cat:99999999999", "more than 10,000,000 images"),
    ],
)
def test_wrong_label_lists(text, said):
    with pytest.raises(ValueError, match=said):
        parsed_labels(text, ["cat", "dog", "emu"])
