"""Secret streams: derived as documented, replayed, independent, and of the right law, not of 2/3 or 3/2 of it."""

import hashlib
import hmac
import json

import numpy as np
import pytest
from scipy import stats

from stages.privacy.streams import SecretStream

KEY = bytes(range(32))
N = 200_000


def chacha20(key, nonce, blocks):
    """RFC 8439, section 2.3, written out: an oracle that shares no code with the library."""

    def quarter(s, a, b, c, d):
        for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[x] = (s[x] + s[y]) & 0xFFFFFFFF
            s[z] ^= s[x]
            s[z] = ((s[z] << turn) | (s[z] >> (32 - turn))) & 0xFFFFFFFF

    words = [int.from_bytes((b"expand 32-byte k" + key)[i : i + 4], "little") for i in range(0, 48, 4)]
    tail = [int.from_bytes(nonce[i : i + 4], "little") for i in range(0, 12, 4)]
    out = b""
    for counter in range(blocks):
        start = [*words, counter, *tail]
        state = list(start)
        for _ in range(10):
            for a, b, c, d in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)):
                quarter(state, a, b, c, d)
            for a, b, c, d in ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
                quarter(state, a, b, c, d)
        out += b"".join(((x + y) & 0xFFFFFFFF).to_bytes(4, "little") for x, y in zip(state, start, strict=True))
    return out


@pytest.mark.parametrize(("step", "nonce"), [(None, 0), (0, 1), (258, 259)])
def test_bytes_are_those_of_the_documented_construction(context, step, nonce):
    text = json.dumps(context, sort_keys=True, separators=(",", ":"))
    info = b"fedsynth/1 stream noise\0" + hashlib.sha256(text.encode()).digest()
    extracted = hmac.digest(bytes(32), KEY, "sha256")
    derived = hmac.digest(extracted, info + b"\1", "sha256")
    stream = SecretStream(KEY, context, "noise")
    found = (stream if step is None else stream.at(step)).uniform_bits(20)
    assert found.astype("<u8").tobytes() == chacha20(derived, nonce.to_bytes(12, "little"), 3)[:160]


def test_a_replay_draws_the_same_wherever_it_resumes(stream_of):
    straight = [stream_of().at(step).gaussian(50, 1.0) for step in range(4)]
    used = stream_of()
    used.gaussian(1000, 1.0)
    resumed = [used.at(step).gaussian(50, 1.0) for step in (2, 3)]
    np.testing.assert_array_equal(straight[2:], resumed)
    np.testing.assert_array_equal(stream_of().gaussian((5, 10), 3.0).ravel(), stream_of().gaussian(50, 3.0))
    pieces = stream_of()
    parts = np.concatenate([pieces.gaussian(n, 1.0) for n in (7, 1, 42)])
    np.testing.assert_array_equal(parts, stream_of().gaussian(50, 1.0))


def changed_streams(stream_of):
    yield stream_of(key=bytes(31) + b"\1")
    for label in ("sampling", "examples"):
        yield stream_of(label)
    changes = {
        "inputs": {"data": "ab" * 32, "model": "ce" * 32}, "params": {"learning_rate": 0.2}, "seed": 8,
        "stage": "encode", "client": "04", "round": 3, "versions": {"fedsynth": "0.1.1"}, "device": "cuda",
        "arithmetic": {"threads": 2},
    }  # fmt: skip
    for name, value in changes.items():
        yield stream_of(**{name: value})
    yield from (stream_of().at(step) for step in (0, 1, 2, 2**40))


def test_whatever_changes_changes_the_noise_altogether(stream_of):
    """Pairwise correlations of all streams, and of each with itself one draw later, are those of independent draws."""
    n = 20_000
    draws = np.array([s.gaussian(n, 1.0) for s in (stream_of(), *changed_streams(stream_of))])
    assert len({tuple(row[:4]) for row in draws}) == len(draws) == 17
    assert np.abs((draws[:, 1:] * draws[:, :-1]).mean(axis=1)).max() * np.sqrt(n) < 5
    apart = ~np.eye(17, dtype=bool)
    for law in (draws, (draws**2 - 1) / np.sqrt(2)):
        correlations = law @ law.T / n
        assert np.abs(correlations[apart]).max() * np.sqrt(n) < 5.5
        np.testing.assert_allclose(np.diag(correlations), 1.0, atol=0.2)


def test_a_stream_without_all_of_its_context_is_refused(context):
    with pytest.raises(ValueError, match="lacks 'round'"):
        SecretStream(KEY, {k: v for k, v in context.items() if k != "round"}, "noise")
    with pytest.raises(ValueError, match="unknown field 'colour'"):
        SecretStream(KEY, context | {"colour": 1}, "noise")
    with pytest.raises(ValueError, match="not JSON compliant"):
        SecretStream(KEY, context | {"seed": float("nan")}, "noise")
    with pytest.raises(ValueError, match="32 bytes, found 31"):
        SecretStream(KEY[1:], context, "noise")
    with pytest.raises(ValueError, match="one of noise, sampling, examples"):
        SecretStream(KEY, context, "commitment")
    stream = SecretStream(KEY, context, "noise")
    for step in (-1, 2**64):
        with pytest.raises(ValueError, match="a step must be"):
            stream.at(step)
    with pytest.raises(ValueError, match="no steps of its own"):
        stream.at(1).at(2)
    assert "\\x" not in repr(stream)


@pytest.mark.parametrize("scale", [1.0, 0.003, 250.0])
def test_gaussian_noise_has_its_scale_and_no_other(stream_of, has_scale, looks_normal, scale):
    draws = stream_of().gaussian(N, scale)
    assert has_scale(draws, scale)
    assert not has_scale(draws, scale * 2 / 3)
    assert not has_scale(draws, scale * 3 / 2)
    looks_normal(draws, scale)


def test_the_statistics_reject_what_is_not_normal(stream_of, looks_normal):
    uniform = (stream_of().uniform(N) - 0.5) * np.sqrt(12)
    with pytest.raises(AssertionError):
        looks_normal(uniform, 1.0)
    with pytest.raises(AssertionError):
        looks_normal(np.clip(stream_of().gaussian(N, 1.0), -2.5, 2.5), 1.0)


def test_gaussian_is_the_inverse_distribution_function_to_the_far_tail(stream_of, monkeypatch):
    mpmath = pytest.importorskip("mpmath")
    words = [0, 1, 2, 3, 2**12, 2**40 + 1, 2**62, 2**63, 2**64 - 2]
    monkeypatch.setattr(SecretStream, "uniform_bits", lambda self, n: np.array(words, dtype=np.uint64))
    found = stream_of().gaussian(len(words), 1.0)
    with mpmath.workdps(40):
        for word, value in zip(words, found, strict=True):
            probability = (mpmath.mpf(word >> 1) + 0.5) / 2**64
            exact = mpmath.sqrt(2) * mpmath.erfinv(2 * probability - 1) * (-1 if word & 1 else 1)
            assert value == pytest.approx(float(exact), rel=4e-15, abs=1e-16)
    assert found[0] == -found[1] == pytest.approx(-9.155, abs=1e-3)


@pytest.mark.parametrize("q", [0.0256, 0.3, 1e-4])
def test_poisson_sampling_has_its_rate_and_no_other(stream_of, q):
    n = 2_000_000 if q < 0.01 else N
    taken = int(stream_of("sampling").bernoulli(q, n).sum())
    assert stats.binomtest(taken, n, q).pvalue > 1e-6
    far = 2.0 if q < 0.01 else 1.2
    assert stats.binomtest(taken, n, min(1.0, q * far)).pvalue < 1e-6
    assert stats.binomtest(taken, n, q / far).pvalue < 1e-6


def test_poisson_sampling_is_exact_at_its_threshold(stream_of, monkeypatch):
    assert stream_of().bernoulli(1.0, 1000).all()
    assert not stream_of().bernoulli(0.0, 1000).any()
    for q in (0.5, 0.0256, 0.1, 2.0**-11, 1 - 2.0**-53, 3.0e-17):
        numerator, denominator = q.as_integer_ratio()
        limit = numerator * 2**64 // denominator  # q itself wherever it is a multiple of 2⁻⁶⁴
        words = np.array([limit - 1, limit], dtype=np.uint64)
        monkeypatch.setattr(SecretStream, "uniform_bits", lambda self, n, w=words: w)
        assert stream_of().bernoulli(q, 2).tolist() == [True, False]
    with pytest.raises(ValueError, match="from 0 to 1, found 1"):
        stream_of().bernoulli(1.1, 1)


@pytest.mark.parametrize("below", [1, 2, 10, 1000])
def test_whole_numbers_are_uniform(stream_of, below):
    draws = stream_of("examples").randint(below, (N // 100, 100))
    assert draws.shape == (N // 100, 100)
    counts = np.bincount(draws.ravel(), minlength=below)
    assert len(counts) == below
    if below > 1:
        assert stats.chisquare(counts).pvalue > 1e-6


def test_whole_numbers_have_no_bias(stream_of, monkeypatch):
    """2⁶⁴ = 3·k + 1: the one word left over is redrawn, until it is not left over."""
    answers = [[2**64 - 1, 5, 2**64 - 1], [2**64 - 1, 7], [8]]
    monkeypatch.setattr(SecretStream, "uniform_bits", lambda self, n: np.array(answers.pop(0), dtype=np.uint64))
    assert stream_of().randint(3, 3).tolist() == [8 % 3, 5 % 3, 7 % 3]
    with pytest.raises(ValueError, match="from 1 to"):
        stream_of().randint(0, 1)


def test_uniform_draws_and_seeds(stream_of):
    draws = stream_of().uniform((N,))
    assert 0 <= draws.min() < draws.max() < 1
    assert np.all(draws * 2**53 == np.floor(draws * 2**53))
    assert stats.kstest(draws, "uniform").pvalue > 1e-6
    seeds = {stream_of().at(step).torch_seed() for step in range(100)}
    assert len(seeds) == 100
    assert max(seeds) < 2**63
