"""Exact sums, whoever drops out and when; nothing below the threshold."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artifacts.errors import InputError
from artifacts.formats import tensors_file
from stages.secagg import masks, shamir
from stages.secagg.primitives import new_pair
from stages.secagg.roster import read_roster
from stages.secagg.session import read_session
from stages.secagg.vectors import Vectors

N, T = 5, 3
CLIENTS = ("a", "b", "c", "d", "e")


def at_least(names, least):
    return [c for size in range(least, len(names) + 1) for c in itertools.combinations(names, size)]


@pytest.mark.parametrize("modulus", [32, 64])
def test_every_pattern_of_dropouts(modulus):
    """Who shares, who masks, who answers: all combinations for n = 5, t = 3, against sums of Python's own numbers."""
    dtype, session = np.dtype(f"<u{modulus // 8}"), "0" * 64
    rng = np.random.default_rng(1)
    pairs = {name: new_pair() for name in CLIENTS}
    seeds = {name: rng.bytes(32) for name in CLIENTS}
    values = {name: rng.integers(-1000, 1000, 40) for name in CLIENTS}
    points = {name: i + 1 for i, name in enumerate(CLIENTS)}
    of = {
        (kind, name): shamir.split(int.from_bytes(secret, "big"), T, list(points.values()))
        for name in CLIENTS
        for kind, secret in (("seed", seeds[name]), ("key", pairs[name].secret))
    }

    def recovered(kind, name, answering):
        number = shamir.join({points[a]: of[kind, name][points[a] - 1] for a in answering})
        return number.to_bytes(66, "big")[-32:]

    patterns = 0
    for sharing in at_least(CLIENTS, T):
        sent = {}
        for name in sharing:
            publics = {peer: pairs[peer].public for peer in sharing if peer != name}
            sent[name] = masks.masked(
                values[name].astype(dtype), client=name, seed=seeds[name], secret=pairs[name].secret, publics=publics,
                session=session,
            )  # fmt: skip
        for there in at_least(sharing, T):
            expected = sum(values[name] for name in there)
            for answering in itertools.combinations(there, T):
                total = np.sum([sent[name] for name in there], axis=0, dtype=dtype)
                masks.uncover(
                    total, session=session, seeds={name: recovered("seed", name, answering) for name in there},
                    dropped={name: recovered("key", name, answering) for name in sharing if name not in there},
                    publics={gone: {name: pairs[name].public for name in there} for gone in sharing},
                )  # fmt: skip
                assert total.view(f"<i{modulus // 8}").tolist() == expected.tolist()
                patterns += 1
    assert patterns == 1 * (10 * 1 + 5 * 4 + 1 * 10) + 5 * (4 * 1 + 1 * 4) + 10 * 1


def test_the_sum_is_exact(finished):
    total, (expected, step) = finished.sum(), finished.plain_sum()
    for name, numbers in expected.items():
        assert (total.tensors[name] == (numbers.astype(np.float64) * step).astype(np.float32)).all()
    mean = finished.sum(result="mean")
    updates = [tensors_file.read(path).tensors for path in finished.updates.values()]
    for name, tensor in mean.tensors.items():
        plain = np.mean([update[name].astype(np.float64) for update in updates], axis=0)
        assert np.abs(tensor - plain).max() <= step / 2 + 1e-7


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_dropouts_over_files(begin, data):
    def stay(names):
        left = data.draw(st.permutations(names))
        return tuple(sorted(left[: data.draw(st.integers(T, len(names)))]))

    play = begin(N)
    play.keys()
    sharing = stay(CLIENTS)
    play.shares(sharing)
    there = stay(sharing)
    play.masks(there)
    play.confirm(stay(there))
    signed = [name for name in there if play.up(name, "survivors").exists()]
    play.unmask(signed)
    total, (expected, step) = play.sum(there, signed), play.plain_sum(there)
    for name, numbers in expected.items():
        assert (total.tensors[name] == (numbers.astype(np.float64) * step).astype(np.float32)).all()


def test_below_the_threshold_nothing_goes_on(begin):
    """t is 3 of 5: with two, the round ends at every step."""
    few, play = ("a", "b"), begin(5)
    play.keys()
    with pytest.raises(InputError, match="2 clients sent shares, but 3 are needed"):
        play.shares(few)
    play.shares(("c", "d", "e"))
    with pytest.raises(InputError, match="2 clients sent a masked update, but 3 are needed"):
        play.masks(("c", "d"))
    play.mask("e")
    play.collect("masked", ("c", "d", "e"), "survivors")
    with pytest.raises(InputError, match="2 clients signed the survivor list, but 3 are needed"):
        play.confirm(("c", "d"))
    from stages.secagg.unmask import confirm

    confirm(play.down("survivors"), play.up("e", "survivors"))
    play.collect("survivors", ("c", "d", "e"), "confirmed")
    play.unmask(("c", "d"))
    with pytest.raises(InputError, match="2 clients answered, 3 are needed"):
        play.sum(("c", "d", "e"), ("c", "d"))
    assert not (play.root / "server/private/sum.safetensors").exists()


def test_a_late_update_stays_covered(begin):
    """Called dropped, then its file comes after all: the sum refuses it, and its own mask was never given."""
    play = begin(5)
    play.keys()
    play.shares()
    play.masks(("a", "b", "c", "d"))
    play.mask("e")
    play.confirm(("a", "b", "c", "d"))
    play.unmask(("a", "b", "c", "d"))
    with pytest.raises(InputError, match="came too late"):
        play.sum(play.names, ("a", "b", "c"))
    answer = tensors_file.read(play.up("a", "unmask"))
    assert answer.metadata.params["dropped"] == ["e"]
    assert "e" not in answer.metadata.params["survivors"]


def test_the_servers_memory_does_not_grow_with_the_clients(begin):
    """Adding five files takes no more at its peak than adding two."""
    size = 100_000
    play = begin(5, shapes={"w": (size,)})
    play.keys()
    play.shares()
    for name in play.names:
        play.mask(name)
    known = read_roster(play.roster)
    session = read_session(play.down("keys"), known)

    def peak(count):
        tracemalloc.start()
        vectors = Vectors(session, known)
        for name in play.names[:count]:
            vectors.add(play.up(name, "masked"))
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    peak(1)  # what is imported and cached once
    assert size * 4 < peak(2) < size * 4 * 4
    assert peak(5) < peak(2) + size * 4 / 2
