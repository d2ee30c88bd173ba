"""Shamir's sharing against cases worked by hand."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.secagg import shamir


def drawn(*numbers):
    left = list(numbers)
    return lambda below: left.pop(0)


def test_a_line_by_hand():
    """7 + 3x at 1, 2, 3; the weights at zero of the points 1 and 3 are 3/2 and −1/2."""
    assert shamir.split(7, 2, [1, 2, 3], drawn(3)) == [10, 13, 16]
    half = pow(2, -1, shamir.PRIME)
    assert shamir.weights_at_zero([1, 3]) == [3 * half % shamir.PRIME, -half % shamir.PRIME]
    assert shamir.join({1: 10, 3: 16}) == 7


def test_a_parabola_by_hand():
    """Wikipedia's example: 1234 + 166x + 94x² at 1 to 6; any three give 1234 again."""
    shares = shamir.split(1234, 3, range(1, 7), drawn(166, 94))
    assert shares == [1494, 1942, 2578, 3402, 4414, 5614]
    for three in itertools.combinations(enumerate(shares, start=1), 3):
        assert shamir.join(dict(three)) == 1234


def test_values_wrap_around_the_prime():
    """(p − 1) + 2x at 1 is 1."""
    assert shamir.split(shamir.PRIME - 1, 2, [1, 2], drawn(2)) == [1, 3]


def test_the_prime_is_one():
    """The Lucas–Lehmer test of 2⁵²¹ − 1."""
    s = 4
    for _ in range(519):
        s = (s * s - 2) % shamir.PRIME
    assert s == 0


@given(st.integers(0, 2**256 - 1), st.integers(1, 6), st.data())
def test_any_threshold_of_shares_gives_the_secret(secret, threshold, data):
    points = list(range(1, 7))
    shares = dict(zip(points, shamir.split(secret, threshold, points), strict=True))
    chosen = data.draw(st.permutations(points))[:threshold]
    assert shamir.join({x: shares[x] for x in chosen}) == secret
    assert all(shamir.from_bytes(shamir.to_bytes(share)) == share for share in shares.values())


def test_fewer_fit_every_secret():
    """With t − 1 shares given, each secret has exactly one polynomial: they say nothing."""
    first, second, _ = shamir.split(42, 3, [1, 2, 3])
    for guess in (0, 42, shamir.PRIME - 1):
        third = guess - sum(w * s for w, s in zip(shamir.weights_at_zero([1, 2, 3])[:2], (first, second), strict=True))
        third = third * pow(shamir.weights_at_zero([1, 2, 3])[2], -1, shamir.PRIME) % shamir.PRIME
        assert shamir.join({1: first, 2: second, 3: third}) == guess


@pytest.mark.parametrize(
    ("secret", "threshold", "points"), [(-1, 1, [1]), (shamir.PRIME, 1, [1]), (1, 3, [1, 2]), (1, 0, [1]),
                                        (1, 2, [1, 1]), (1, 2, [0, 1])]
)  # fmt: skip
def test_what_cannot_be_shared(secret, threshold, points):
    with pytest.raises(ValueError, match=r"."):
        shamir.split(secret, threshold, points)


@pytest.mark.parametrize("data", [b"", bytes(65), bytes(67), b"\xff" * 66, shamir.to_bytes(0)[:-1]])
def test_what_is_no_share(data):
    with pytest.raises(ValueError, match="share"):
        shamir.from_bytes(data)
