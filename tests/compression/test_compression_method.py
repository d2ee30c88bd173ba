"""Plain compression: packing, rounding, places and factors against slow, separately written forms."""

import numpy as np
import pytest

from stages.methods import compression
from stages.methods.params.compression import LowRank, Quantisation, TopK
from stages.registry import ENCODERS

SHAPES = {"a.weight": (6, 5, 3, 3), "a.bias": (6,), "b.weight": (10, 54), "b.bias": (10,)}
SIZE = 6 * 45 + 6 + 540 + 10


@pytest.fixture
def update():
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def test_flat_and_back(update):
    vector = compression.flat(update)
    assert len(vector) == SIZE
    back = compression.shaped(vector, SHAPES)
    assert all(np.array_equal(back[name], update[name]) for name in SHAPES)
    assert np.array_equal(vector[:6], update["a.bias"]), "tensors in the order of their names"


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("rounding", ["stochastic", "nearest"])
def test_a_number_is_at_most_a_step_from_what_arrives(update, bits, rounding):
    vector = compression.flat(update)
    rng = np.random.default_rng(1)
    sent = compression.quantise(vector, bits=bits, block=64, rounding=rounding, rng=rng)
    assert sent["codes"].dtype == np.uint8 and len(sent["codes"]) == -(-SIZE * bits // 8)
    found = compression.dequantise(sent, size=SIZE, bits=bits, block=64)
    for first in range(0, SIZE, 64):
        mine, theirs = vector[first : first + 64], found[first : first + 64]
        if bits == 1 and rounding == "nearest":
            padded = np.zeros(64)
            padded[: len(mine)] = np.abs(mine)
            np.testing.assert_allclose(theirs, np.where(mine >= 0, 1, -1) * padded.mean(), rtol=1e-5)
            continue
        most = np.abs(mine).max()
        step = 2 * most / (2**bits - 1)
        grid = np.linspace(-most, most, 2**bits)
        assert np.abs(theirs[:, None] - grid).min(1).max() < 1e-5 * most, "every number is on the grid"
        assert np.abs(theirs - mine).max() <= step * (0.5 if rounding == "nearest" else 1) * (1 + 1e-5)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_stochastic_rounding_has_the_right_mean(bits):
    """20,000 draws of 8 numbers; the bound is seven standard errors of the mean, at most a step each."""
    vector = np.array([-1.0, -0.7, -0.3, 0.0, 0.1, 0.45, 0.9, 1.0], np.float32)
    rng = np.random.default_rng(2)
    draws = 20_000
    many = np.tile(vector, draws)
    sent = compression.quantise(many, bits=bits, block=8, rounding="stochastic", rng=rng)
    found = compression.dequantise(sent, size=len(many), bits=bits, block=8).reshape(draws, 8)
    step = 2 / (2**bits - 1)
    np.testing.assert_allclose(found.mean(0), vector, atol=7 * step / 2 / np.sqrt(draws))


def test_the_largest_arrive_and_nothing_else(update):
    vector = compression.flat(update)
    sent = compression.largest(vector, keep=0.05)
    found = compression.spread(sent, size=SIZE)
    count = -(-SIZE * 5 // 100)
    by_hand = sorted(sorted(range(SIZE), key=lambda place: -abs(vector[place]))[:count])
    assert sent["positions"].tolist() == by_hand
    np.testing.assert_allclose(found[by_hand], vector[by_hand], rtol=1e-3)
    assert np.count_nonzero(found) == count


def test_factors_are_nearly_the_best_of_their_rank(update):
    """Against numpy's singular values: six iterations on matrices whose spectrum falls quickly."""
    random = np.random.default_rng(3)
    for name, (rows, columns) in {"a.weight": (6, 45), "b.weight": (10, 54)}.items():
        left, _, right = np.linalg.svd(random.normal(size=(rows, columns)), full_matrices=False)
        falling = (left * 2.0 ** -np.arange(rows)) @ right
        update[name] = falling.reshape(SHAPES[name]).astype(np.float32)
    sent = compression.factorise(update, rank=2, iterations=6, rng=np.random.default_rng(4))
    assert sent["factors"].shape == (compression.factors_of(SHAPES, rank=2),) == (2 * 51 + 6 + 2 * 64 + 10,)
    found = compression.multiply(sent, SHAPES, rank=2)
    for name in ("a.bias", "b.bias"):
        assert np.array_equal(found[name], update[name]), "what is small goes as it is"
    for name, rows in (("a.weight", 6), ("b.weight", 10)):
        values = np.linalg.svd(update[name].reshape(rows, -1), compute_uv=False)
        error = np.linalg.norm(found[name] - update[name])
        assert error == pytest.approx(np.linalg.norm(values[2:]), rel=1e-2)


def test_a_rank_that_saves_nothing_sends_the_matrix_itself(update):
    sent = compression.factorise(update, rank=6, iterations=1, rng=np.random.default_rng(5))
    found = compression.multiply(sent, SHAPES, rank=6)
    assert np.array_equal(found["a.weight"], update["a.weight"])
    assert compression.factors_of(SHAPES, rank=6) == 270 + 6 + 6 * 64 + 10


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"method": "quantised", "bits": 9}, "--bits must be from 1 to 8"),
        ({"method": "quantised", "block": 0}, "--block must be"),
        ({"method": "topk", "keep": 0}, "--keep must be"),
        ({"method": "lowrank", "rank": 0}, "--rank must be"),
        ({"method": "lowrank", "bits": 4}, "--bits goes with --method quantised"),
    ],
)
def test_what_cannot_be_is_refused(values, said):
    with pytest.raises(ValueError, match=said):
        ENCODERS.from_mapping(values)


def test_a_file_states_its_parameters():
    assert Quantisation().to_json() == {"method": "quantised", "bits": 8, "block": 256, "rounding": "stochastic"}
    assert TopK().to_json() == {"method": "topk", "keep": 0.01}
    assert LowRank().to_json() == {"method": "lowrank", "rank": 4, "iterations": 2}
