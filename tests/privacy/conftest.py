"""Streams under a key that everyone knows, statistics of noise, and the participants that several files test."""

import dataclasses
import math

import numpy as np
import pytest
from federation import Federation
from scipy import stats

from artifacts.formats import tensors_file
from artifacts.identity import keys
from artifacts.ledgers import spend
from stages.aggregate import aggregate
from stages.encode import encode
from stages.init_model import init_model
from stages.keygen import settle
from stages.methods.params.aggregation import MeanRule
from stages.privacy.accountant import epsilon, planned
from stages.privacy.mechanism import noisy_mean
from stages.privacy.streams import SecretStream
from stages.registry import ALGORITHMS, ENCODERS, NETWORKS
from stages.train_client import train_client

KEY = bytes(range(32))
CONTEXT = {
    "inputs": {"data": "ab" * 32, "model": "cd" * 32},
    "params": {"learning_rate": 0.1},
    "seed": 7,
    "stage": "train-client",
    "client": "03",
    "round": 2,
    "versions": {"fedsynth": "0.1.0"},
    "device": "cpu",
    "arithmetic": {"threads": 1},
}
CHANCE = 1e-11  # of a false alarm, on each side: some of the draws are other ones on another processor
ATTACKED_DELTA = 0.01
RECORDS = {"noise_multiplier": 0.5, "sampling_rate": 0.3, "local_steps": 3, "batch_size": 12, "learning_rate": 0.5}


@pytest.fixture
def context():
    return dict(CONTEXT)


@pytest.fixture
def stream_of():
    """A stream with some field of its context changed."""

    def make(label="noise", key=KEY, **changes):
        return SecretStream(key, CONTEXT | changes, label)

    return make


@pytest.fixture
def has_scale():
    """Whether the standard deviation of normal draws with known mean 0 may be `scale`: the exact χ² test."""

    def test(draws, scale):
        square = float(np.sum(np.square(draws / scale)))
        return min(stats.chi2.cdf(square, draws.size), stats.chi2.sf(square, draws.size)) > CHANCE

    return test


@pytest.fixture
def looks_normal():
    """Kolmogorov and Smirnov's test, the mean, the kurtosis and the tail beyond four."""

    def test(draws, scale):
        x, n = np.ravel(draws) / scale, draws.size
        assert stats.kstest(x, stats.norm.cdf).pvalue > CHANCE
        assert abs(x.mean()) * np.sqrt(n) < 5
        assert abs(np.mean(x**4) - 3) / np.sqrt(96 / n) < 5
        assert stats.binomtest(int(np.sum(abs(x) > 4)), n, 2 * stats.norm.sf(4)).pvalue > CHANCE

    return test


# An attacker.


@pytest.fixture(scope="session")
def claimed():
    """The accountant's ε of so many steps at δ = 0.01."""

    def of(q, sigma, releases=1):
        event = planned(sampling_rate=q, noise_multiplier=sigma, steps=releases)
        return epsilon([event], delta=ATTACKED_DELTA).pld

    return of


@pytest.fixture(scope="session")
def lower_bound():
    """ε at least, at 99%: region and direction are chosen by the first halves of the runs, counted in the second."""

    def of(with_it, without):
        half = len(with_it) // 2
        edges = np.quantile(np.concatenate([with_it[:half], without[:half]]), np.linspace(0.001, 0.999, 300))
        best, choice = -math.inf, (1, False, 0.0)
        for sign in (1, -1):
            for flipped in (False, True):
                a, b = (without, with_it) if flipped else (with_it, without)
                true, false = ((sign * x[:half] > sign * edges[:, None]).sum(1) for x in (a, b))
                found = clopper_pearson(true, false, half)
                if found.max() > best:
                    best, choice = found.max(), (sign, flipped, edges[found.argmax()])
        sign, flipped, edge = choice
        a, b = (without, with_it) if flipped else (with_it, without)
        true, false = (np.array([np.sum(sign * x[half:] > sign * edge)]) for x in (a, b))
        return max(0.0, float(clopper_pearson(true, false, len(a) - half)[0]))

    return of


def clopper_pearson(true, false, runs):
    """ε at least by Clopper and Pearson's bounds at 99%, for numbers of true and of false alarms in so many runs."""
    tail = 0.005
    least = np.where(true > 0, stats.beta.ppf(tail, np.maximum(true, 1), runs - true + 1), 0.0)
    most = np.where(false < runs, stats.beta.ppf(1 - tail, false + 1, np.maximum(runs - false, 1)), 1.0)
    return np.where(least > ATTACKED_DELTA, np.log(np.maximum(least - ATTACKED_DELTA, 1e-300) / most), -np.inf)


@pytest.fixture(scope="session")
def with_noise_times():
    """A mechanism with so many times the noise that it claims."""

    def of(factor):
        def wrong(total, mechanism, noise):
            less = dataclasses.replace(mechanism, noise_multiplier=mechanism.noise_multiplier * factor)
            return noisy_mean(total, less, noise)

        return wrong

    return of


# A spend ledger.


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "00/private/client.key"
    settle(path, keys.Key(KEY), force=False)
    return path


@pytest.fixture(scope="session")
def charged():
    """The steps of the events of each reservation beside a key."""

    def of(key):
        with spend.locked(spend.beside(key), keys.read(key)) as book:
            return [[fields["steps"] for fields in release] for release in book.charged()]

    return of


# Privacy of whole clients.


@pytest.fixture(scope="session")
def make_federation(helper):
    """The class ClientPrivacy of federation.py."""
    return helper("privacy/federation.py").ClientPrivacy


@pytest.fixture(scope="session")
def flat(helper):
    """Tensors as one vector, in the order of their names."""
    return helper("privacy/federation.py").flat


@pytest.fixture
def federation(tmp_path, make_federation):
    rng = np.random.default_rng(0)
    tensors = {"a": rng.normal(size=(2, 3)).astype(np.float32), "b": rng.normal(size=4).astype(np.float32)}
    return make_federation(tmp_path, tensors)


@pytest.fixture
def wide(tmp_path, make_federation):
    """Enough coordinates for statistics."""
    return make_federation(tmp_path, {"w": np.zeros((100, 200), np.float32)})


# Privacy of single records.


class Client(Federation):
    """Client 00 of a run folder, with forty digits and a small network to train."""

    def __init__(self, root, digits):
        super().__init__(root)
        self.digits, self.base = digits, self.settle("00")
        self.data = self.write(self.private("data.parquet"), digits.take(np.arange(40)))
        self.model = root / "public/model-0000.safetensors"
        init_model(self.data, self.model, params=NETWORKS.from_mapping({"arch": "mlp", "width": 6}), seed=1)

    def private(self, name):
        return self.base / "private" / name

    def train(self, number=1, model=None, data=None, force=True, **changes):
        options = {k: changes.pop(k) for k in ("state", "server_state", "key", "seed", "report") if k in changes}
        params = ALGORITHMS.from_mapping({**RECORDS, **changes})
        out = self.private(f"update-{number:04}.safetensors")
        if params.keeps_state:
            options["state_out"] = self.private(f"state-{number:04}.safetensors")
        train_client(
            model or self.model, data or [self.data], out, params=params, force=force, **{"seed": 3, **options}
        )
        return out

    def send(self, update, model=None, **params):
        out = self.base / "outbox" / f"{'state' if params else 'message'}-{update.stem[-4:]}.safetensors"
        previous = params.pop("previous", None)
        encode(model or self.model, update, out, params=ENCODERS.from_mapping(params), previous=previous, force=True)
        return out

    def next_model(self, messages, number, model=None):
        out = self.root / f"server/outbox/model-{number:04}.safetensors"
        aggregate(model or self.model, messages, out, params=MeanRule())
        return out

    def charges(self):
        return self.charged("00")

    @staticmethod
    def events(path):
        return tensors_file.read(path).metadata.privacy


@pytest.fixture
def client(tmp_path, digits):
    return Client(tmp_path, digits)
