"""Who takes part in a round: by coins of their own, from the server's key, told to nobody."""

import json

import numpy as np
import pytest
from scipy import stats

from artifacts.identity import keys
from stages.sample_clients import drawn

CHANCE = 1e-11  # of a false alarm, of which there are 43: below 1e-9 together, whatever the key


def is_poisson(draws, clients, q):
    """Every client by a coin of its own: each one's rate, all together, and the spread of the sizes."""
    taken = np.array([[name in draw for name in clients] for draw in draws])
    rounds, count = taken.shape
    if stats.binomtest(int(taken.sum()), taken.size, q).pvalue < CHANCE:
        return False
    if min(stats.binomtest(int(column.sum()), rounds, q).pvalue for column in taken.T) < CHANCE:
        return False
    spread = float(np.square(taken.sum(1) - count * q).sum() / (count * q * (1 - q)))
    return min(stats.chi2.cdf(spread, rounds), stats.chi2.sf(spread, rounds)) > CHANCE


def test_clients_are_drawn_by_coins_of_their_own():
    clients, q, rounds = [f"{n:02}" for n in range(40)], 0.2, 400
    key = keys.simulated(3, "server")
    draws = [drawn(clients, q, number, key) for number in range(1, rounds + 1)]
    assert is_poisson(draws, clients, q)
    assert all(draw == sorted(draw) for draw in draws)
    rng = np.random.default_rng(0)
    assert not is_poisson([rng.choice(clients, 8, replace=False) for _ in draws], clients, q), "a fixed size"
    assert not is_poisson([[c for c in clients if rng.random() < 0.25] for _ in draws], clients, q), "a higher rate"
    assert not is_poisson([clients if rng.random() < q else [] for _ in draws], clients, q), "one coin for all"
    assert not is_poisson([*draws[:-160], *[clients[:8]] * 160], clients, q), "favourites"
    assert drawn(clients, q, 1, key) == drawn(list(reversed(clients)), q, 1, key) == draws[0]
    # Two draws are the same with a chance of 0.68⁴⁰ = 2e-7: some two of 400 once in 60 keys, ten of them never (1e-24).
    assert len({tuple(draw) for draw in draws}) > rounds - 10
    other = keys.simulated(4, "server")
    assert [drawn(clients, q, number, other) for number in (1, 2)] != draws[:2]
    assert drawn(clients, 1.0, 1, key) == clients


def test_sample_clients_writes_a_file_that_stays(fedsynth, fedsynth_json, federation):
    out = federation.server / "private/clients-0001.json"
    names = [f"clinic-{n}" for n in range(12)]
    command = ["sample-clients", *names, "--sampling-rate", "0.5", "--round", "1"]
    stated = fedsynth_json(*command, "-o", out)
    found = json.loads(out.read_text())
    assert found["clients"] == drawn(names, 0.5, 1, keys.simulated(0, "server"))
    assert (found["custody"], stated.keys()) == ("server", {"out", "round", "custody"}), (
        "no number on the screen either"
    )
    before = out.read_bytes()
    assert fedsynth_json(*command, "-o", out, "--force")["round"] == 1
    assert out.read_bytes() == before
    code, _, err = fedsynth(*command, "-o", federation.server / "outbox/clients.json")
    assert (code, "may not be in an outbox" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["a", "a", "--sampling-rate", "0.5", "--round", "1"], 2, "named twice"),
        (["a", "--sampling-rate", "0", "--round", "1"], 2, "above 0"),
        (["a", "--sampling-rate", "1.5", "--round", "1"], 2, "at most 1"),
        (["a", "--sampling-rate", "nan", "--round", "1"], 2, "above 0"),
        (["a", "--sampling-rate", "0.5", "--round", "0"], 2, "at least 1"),
        (["../a", "--sampling-rate", "0.5", "--round", "1"], 2, "not allowed"),
        (["server", "--sampling-rate", "0.5", "--round", "1"], 2, "not allowed"),
        (["a", "--sampling-rate", "0.5", "--round", "1", "--key", "no.key"], 3, "no key at"),
    ],
)
def test_bad_draws(fedsynth, federation, words, code, said):
    out = federation.server / "private/clients.json"
    found, _, err = fedsynth("sample-clients", *words, "-o", out)
    assert (found, said in err, out.exists()) == (code, True, False), err
