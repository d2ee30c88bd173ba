"""Privacy of whole clients: the server's noised mean by hand, masks, secret draws, shares of noise, what is charged.

Most models here are two tensors of ten numbers together: `encode` and `aggregate` need no network.
"""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from scipy import optimize, stats

import stages.private_updates as private_updates
from artifacts import keys, lineage, spend, tensors_file
from artifacts.metadata import Metadata
from stages.account import account
from stages.aggregate import aggregate
from stages.audit import audit
from stages.encode import encode
from stages.keygen import settle
from stages.methods.params.aggregation import Aggregation
from stages.methods.params.encoding import Encoding
from stages.privacy.accountant import epsilon, planned
from stages.privacy.events import PrivacyEvent
from stages.privacy.mechanism import CLIP_MARGIN, GaussianMechanism
from stages.privacy.streams import SecretStream
from stages.recipes.recipe import change, load_recipe
from stages.recipes.runner import run
from stages.sample_clients import drawn
from stages.versions import versions

CLIP, SIGMA, RATE, CLIENTS = 1.0, 0.5, 0.5, 8
CENTRAL = {
    "rule": "dp-mean", "clip_norm": CLIP, "noise_multiplier": SIGMA, "sampling_rate": RATE, "clients": CLIENTS,
}  # fmt: skip
SHARED = {"clip_norm": CLIP, "noise_multiplier": SIGMA, "least_clients": 3}
MASKS = [
    {"sparsify": "rand-k", "keep": 0.4},
    {"sparsify": "top-k", "keep": 0.4},
    {"sparsify": "own-top-k", "keep": 0.4},
]
CHANCE = 1e-6  # the draws are fixed: a test that passes passes always


def flat(tensors):
    return np.concatenate([np.ravel(tensors[name]).astype(np.float64) for name in sorted(tensors)])


def shaped(values, like):
    """A flat vector as tensors, in the order of their names."""
    ends = np.cumsum([like[name].size for name in sorted(like)])[:-1]
    parts = np.split(np.asarray(values, np.float32), ends)
    return {name: part.reshape(like[name].shape) for name, part in zip(sorted(like), parts, strict=True)}


class Federation:
    """A server and clients with simulated keys, and a model that is whatever tensors one likes."""

    def __init__(self, folder, tensors):
        self.folder, self.tensors = folder, tensors
        self.server = folder / "server"
        settle(self.server / "private/server.key", keys.simulated(0, "server"), force=False)
        about = Metadata(kind="model", stage="init-model", custody="public", versions={})
        self.start = folder / "public/model-0000.safetensors"
        tensors_file.write(self.start, tensors, about)

    def client(self, name):
        place = self.folder / "clients" / name
        if not place.exists():
            settle(place / "private/client.key", keys.simulated(0, f"client {name}"), force=False)
            (place / "outbox").mkdir()
        return place

    def update(self, name, values, model=None):
        model = tensors_file.read(model or self.start)
        number = (model.metadata.round or 0) + 1
        path = self.client(name) / f"private/update-{number:04}.safetensors"
        about = Metadata(
            kind="update", stage="train-client", custody="private", client=name, round=number, versions={},
            inputs=(lineage.by_digest(model, "model"),),
        )  # fmt: skip
        tensors_file.write(path, shaped(values, self.tensors), about, force=True)
        return path

    def message(self, name, values, model=None, before=None, **params):
        update = self.update(name, values, model)
        out = self.client(name) / f"outbox/message-{update.stem[-4:]}.safetensors"
        encode(model or self.start, update, out, params=Encoding(**params), before=before, force=True)
        return out

    def aggregate(self, messages, model=None, name=None, **params):
        model = model or self.start
        number = (tensors_file.read(model).metadata.round or 0) + 1
        out = self.server / f"outbox/{name or f'model-{number:04}'}.safetensors"
        before = params.pop("before", None)
        aggregate(model, messages, out, params=Aggregation(**{**CENTRAL, **params}), before=before, force=True)
        return out

    def moved(self, out, model=None):
        """By how much the model moved: the noised mean."""
        return flat(tensors_file.read(model or self.start).tensors) - flat(tensors_file.read(out).tensors)

    def noise(self, messages, scale, params, model=None):
        """The noise of an aggregate, drawn again by whoever has the key."""
        start = tensors_file.read(model or self.start)
        inputs = [lineage.by_digest(start, "model")]
        inputs += [lineage.by_digest(tensors_file.read(path), "message") for path in messages]
        context = {
            "inputs": [reference.to_json() for reference in inputs],
            "params": {**start.metadata.params, **Aggregation(**{**CENTRAL, **params}).to_json()},
            "seed": None, "stage": "aggregate", "client": None, "round": (start.metadata.round or 0) + 1,
            "versions": versions("numpy", "scipy"), "device": "cpu", "arithmetic": "float64",
        }  # fmt: skip
        stream = SecretStream(keys.read(self.server / "private/server.key").secret, context, "noise")
        return np.concatenate([np.ravel(stream.gaussian(self.tensors[n].shape, scale)) for n in sorted(self.tensors)])

    def events(self, path):
        return [PrivacyEvent.from_json(event) for event in tensors_file.read(path).metadata.privacy]

    def charged(self, place=None):
        """The events of every reservation that costs something."""
        path = (place or self.server) / "private/spend.jsonl"
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        return [entry["events"][0] for entry in entries if entry.get("events")]


@pytest.fixture
def federation(tmp_path):
    rng = np.random.default_rng(0)
    tensors = {"a": rng.normal(size=(2, 3)).astype(np.float32), "b": rng.normal(size=4).astype(np.float32)}
    return Federation(tmp_path, tensors)


@pytest.fixture
def wide(tmp_path):
    """Enough coordinates for statistics."""
    return Federation(tmp_path, {"w": np.zeros((100, 200), np.float32)})


def values(seed, norm):
    x = np.random.default_rng(seed).normal(size=10)
    return x * norm / np.linalg.norm(x)


# The mean by hand.


def test_the_noised_mean_by_hand(federation):
    """Clipped by one length over both tensors, added, noised, divided by qN = 4 although three came."""
    mine = {"00": values(0, 5.0), "01": values(1, 0.25), "02": values(2, 1.5)}
    messages = [federation.message(name, update) for name, update in mine.items()]
    out = federation.aggregate(messages)
    total = sum(x * min(1, CLIP / np.linalg.norm(x)) for x in mine.values())
    noise = federation.noise(messages, SIGMA * CLIP, {})
    grid = GaussianMechanism(clip_norm=CLIP, noise_multiplier=SIGMA, expected_size=4.0).grid / 4
    found = federation.moved(out)
    assert np.abs(found - (total + noise) / 4).max() < 0.51 * grid + 1e-6
    # The comparison tells other means apart.
    by_tensor = {n: flat({0: x[:6] * min(1, 1 / np.linalg.norm(x[:6])), 1: x[6:] * min(1, 1 / np.linalg.norm(x[6:]))})
                 for n, x in mine.items()}  # fmt: skip
    for wrong in ((total + noise) / 3, (sum(mine.values()) + noise) / 4, (sum(by_tensor.values()) + noise) / 4):
        assert np.abs(found - wrong).max() > 3 * grid


def test_the_server_clips_what_a_client_did_not_clip_and_what_it_did_once_more(federation):
    long, grid = values(0, 1e6), SIGMA / 32 / 4
    for options in ({}, {"clip_norm": CLIP}):
        message = federation.message("00", long, **options)
        length = np.linalg.norm(flat(tensors_file.read(message).tensors))
        assert length == pytest.approx(CLIP if options else 1e6, rel=1e-5)
        out = federation.aggregate([message], sampling_rate=1.0, clients=4)
        noise = federation.noise([message], SIGMA, {"sampling_rate": 1.0, "clients": 4})
        assert np.abs(federation.moved(out) - (long / 1e6 + noise) / 4).max() < grid


def test_nobody_at_all_releases_noise_and_costs(wide, has_scale):
    out = wide.aggregate([])
    moved = wide.moved(out)
    assert has_scale(moved, SIGMA * CLIP / (RATE * CLIENTS))
    assert not has_scale(moved, SIGMA * CLIP / (RATE * CLIENTS) * 2 / 3)
    assert len(wide.events(out)) == len(wide.charged()) == 1


def test_the_divisor_is_public(wide, has_scale):
    """The same noise whether one or five took part: N(0, σ²C²/(qN)²)."""
    for count in (1, 5):
        messages = [wide.message(f"{n:02}", np.zeros(20_000)) for n in range(count)]
        assert has_scale(wide.moved(wide.aggregate(messages)), SIGMA * CLIP / 4)
    assert has_scale(wide.moved(wide.aggregate([], sampling_rate=0.25)), SIGMA * CLIP / 2)


# Sensitivity.


@pytest.fixture
def sums(monkeypatch):
    """What reaches the mechanism, in place of its noise."""
    seen = []

    def noisy_mean(total, mechanism, noise):
        seen.append(flat(total))
        return {name: np.zeros(tensor.shape, np.float32) for name, tensor in total.items()}

    monkeypatch.setattr(private_updates, "noisy_mean", noisy_mean)
    return seen


def largest_move(federation, sums, **mask):
    """The most that a client who comes or goes moved the sum; one is huge, one tiny, one hardly beyond the clip."""
    federation.aggregate([], server_rate=0.5, sampling_rate=1.0)
    model = federation.server / "outbox/model-0001.safetensors"
    extra = {"before": federation.start} if mask.get("sparsify") == "top-k" else {}
    messages = [
        federation.message(f"{n:02}", values(n, norm), model)
        for n, norm in enumerate((1e30, 3.0, 1e-3, 1.0000001, 2.0))
    ]
    federation.aggregate(messages, model, **mask, **extra)
    everyone = sums[-1]
    moves = []
    for gone in range(5):
        federation.aggregate([m for n, m in enumerate(messages) if n != gone], model, **mask, **extra)
        moves.append(np.linalg.norm(everyone - sums[-1]))
    return max(moves)


@pytest.mark.parametrize("mask", [{}, *MASKS], ids=lambda mask: mask.get("sparsify", "all"))
def test_a_client_moves_the_sum_by_the_clip_at_most_and_the_bound_is_reached(federation, sums, mask):
    found = largest_move(federation, sums, **mask)
    assert CLIP * (1 - 2 * CLIP_MARGIN) <= found <= CLIP


def tensor_by_tensor(contribution, clip_norm):
    """As DP-FedSAM's public code does."""
    return {n: t.astype(np.float64) * min(1, clip_norm / max(1e-9, np.linalg.norm(t.astype(np.float64))))
            for n, t in contribution.items()}  # fmt: skip


@pytest.mark.parametrize(
    ("bug", "least"), [(tensor_by_tensor, 1.4), (lambda contribution, clip_norm: dict(contribution), 1e29)]
)
def test_the_harness_catches_a_clip_by_tensors_and_no_clip(federation, sums, monkeypatch, bug, least):
    monkeypatch.setattr(private_updates, "clipped", bug)
    assert largest_move(federation, sums) > least * CLIP


# Masks.


def sent(path):
    return flat(tensors_file.read(path).tensors)


def test_rand_k_is_the_same_for_all_clients_and_another_in_each_round(federation):
    mask = {"sparsify": "rand-k", "keep": 0.4}
    ones = np.ones(10)
    first = [np.flatnonzero(sent(federation.message(name, ones * n, **mask))) for n, name in ((1, "00"), (2, "01"))]
    assert first[0].tolist() == first[1].tolist()
    assert len(first[0]) == 4
    models, chosen = [federation.start], [tuple(first[0])]
    for _ in range(5):
        models.append(federation.aggregate([], models[-1]))
        chosen.append(tuple(np.flatnonzero(sent(federation.message("00", ones, models[-1], **mask)))))
    assert len(set(chosen)) > 3
    other = federation.message("00", ones, **mask, mask_seed=1)
    assert np.flatnonzero(sent(other)).tolist() != first[0].tolist()


def test_top_k_is_made_from_public_models_alone(federation):
    """Half of the places go to what moved most; a client's own update has no say."""
    mask = {"sparsify": "top-k", "keep": 0.4}
    model = federation.aggregate([], noise_multiplier=3.0)
    moved = np.abs(federation.moved(model))
    chosen = [
        np.flatnonzero(
            sent(federation.message(name, np.roll(np.arange(1, 11), n * 5), model, federation.start, **mask))
        )
        for n, name in enumerate(("00", "01"))
    ]
    assert chosen[0].tolist() == chosen[1].tolist()
    assert len(chosen[0]) == 4
    assert np.allclose(np.sort(moved[chosen[0]])[-2:], np.sort(moved)[-2:])
    first = np.flatnonzero(sent(federation.message("00", np.ones(10), **mask)))
    rand = np.flatnonzero(sent(federation.message("00", np.ones(10), sparsify="rand-k", keep=0.4)))
    assert first.tolist() == rand.tolist(), "in the first round nothing has moved"


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask["sparsify"])
def test_noise_covers_the_public_mask_or_else_everything(wide, mask):
    """A mask that a client chooses is private: then no coordinate is left without noise (rule 14)."""
    model = wide.aggregate([])
    before = wide.start if mask["sparsify"] == "top-k" else None
    extra = {"before": before} if before else {}
    updates = np.arange(20_000.0), np.arange(20_000.0)[::-1] + 1
    messages = [wide.message(f"{n:02}", update, model, **mask, **extra) for n, update in enumerate(updates)]
    public = np.flatnonzero(sent(messages[1]))
    assert len(public) == 8000
    changed = np.flatnonzero(wide.moved(wide.aggregate(messages, model, **mask, **extra), model))
    alone = np.flatnonzero(sent(wide.message("02", updates[0], model, **mask, **extra, **SHARED)))
    for found in (changed, alone):  # one in a hundred falls on the grid's zero
        if mask["sparsify"] == "own-top-k":
            assert len(found) > 0.97 * 20_000
        else:
            assert set(found) <= set(public)
            assert len(found) > 0.97 * 8000
    if mask["sparsify"] == "own-top-k":
        assert np.flatnonzero(sent(messages[0])).tolist() == list(range(12_000, 20_000))


def test_the_model_before_is_the_one_that_the_model_was_made_from(federation, fedsynth):
    other = federation.folder / "public/other.safetensors"
    about = Metadata(kind="model", stage="init-model", custody="public", versions={})
    tensors_file.write(other, shaped(np.ones(10), federation.tensors), about)
    model = federation.aggregate([])
    later = federation.aggregate([], model)
    update = federation.update("00", np.ones(10), model)
    command = ["encode", model, update, "-o", federation.client("00") / "outbox/m.safetensors", "--sparsify"]
    for extra, code, said in [
        (["top-k", "--before", other], 3, "was not made from"),
        (["top-k", "--before", later], 3, "is of round 2"),
        (["top-k"], 2, "needs --before"),
        (["rand-k", "--before", federation.start], 2, "goes with --sparsify top-k"),
    ]:
        found, _, err = fedsynth(*command, *extra)
        assert (found, said in err) == (code, True), err


# What leaves the server.


def test_the_model_that_leaves_tells_nothing_of_who_took_part(tmp_path):
    """Not even how many: but for weights and event ids the files for nobody, one and four clients are the same."""
    told, sizes = [], set()
    for count in (0, 1, 4):
        federation = Federation(tmp_path / str(count), {"w": np.ones(50, np.float32)})
        names = [f"hospital-{n}" for n in range(count)]
        messages = [federation.message(name, np.arange(50.0), clip_norm=CLIP) for name in names]
        out = federation.aggregate(messages)
        data = out.read_bytes()
        for name, path in zip(names, messages, strict=True):
            assert name.encode() not in data
            assert tensors_file.read(path).sha256.encode() not in data
        about = tensors_file.read(out).metadata
        assert (about.counts, about.client, about.disclosures) == ({}, None, ())
        assert [reference.role for reference in about.inputs] == ["model"]
        told.append(dataclasses.replace(about, privacy=tuple(event | {"id": ""} for event in about.privacy)))
        sizes.add(len(data))
        kept = (federation.server / "private/model-0001.lineage.json").read_text()
        assert kept.count('"message"') >= count, "the server itself knows"
    assert told[0] == told[1] == told[2]
    assert len(sizes) == 1
    assert told[0].simulation


def test_what_a_model_told_without_noise_stays_with_its_descendants(federation, fedsynth_json):
    """A round of plain averaging, then one with noise: no ε for the second model, whatever its own event says."""
    plain = Aggregation(rule="mean")
    first = federation.server / "outbox/model-0001.safetensors"
    aggregate(federation.start, [federation.message("00", np.ones(10))], first, params=plain)
    second = federation.aggregate([federation.message("00", np.ones(10), first)], first)
    about = tensors_file.read(second).metadata
    assert (about.disclosures, len(about.privacy)) == (("update",), 1)
    (row,) = fedsynth_json("account", second, "--delta", "0.01")["clients"]
    assert row["epsilon"]["pld"] == "inf"
    third = federation.server / "outbox/model-0003.safetensors"
    aggregate(second, [federation.message("00", np.ones(10), second)], third, params=plain)
    assert len(federation.events(third)) == 1, "nor does a round without noise forget what was spent before"


def test_a_server_that_claims_an_epsilon_answers_for_all_that_it_sends(federation, forge, fedsynth_json):
    """SCAFFOLD's variates beside a noised model are the clients' mean gradients without noise."""
    federation.aggregate([federation.message("00", np.ones(10), clip_norm=CLIP)])
    state = federation.server / "outbox/state-0001.safetensors"
    forge.write_tensors(state, kind="state", custody="downlink", round=1, disclosures=("update",))
    rows = {row["client"]: row for row in fedsynth_json("account", federation.folder, "--delta", "0.01")["clients"]}
    assert rows["server"]["epsilon"]["pld"] == "inf"
    assert rows["server"]["uncovered"] == [
        {"file": "server/state-0001.safetensors", "why": "it tells update without noise"}
    ]


# What is charged.


def sampled(steps, q=0.1, sigma=0.95):
    return planned(sampling_rate=q, noise_multiplier=sigma, steps=steps)


def test_rounds_add_up_as_in_the_paper(federation, forge):
    """q = 0.1, σ = 0.95, T = 200, δ = 1/500: 8.51 by Rényi; each model carries the events of all before it."""
    setting = {"clip_norm": 0.2, "noise_multiplier": 0.95, "sampling_rate": 0.1, "clients": 500}
    model = federation.start
    for _ in range(10):
        model = federation.aggregate([], model, **setting)
    events = federation.events(model)
    assert len({event.id for event in events}) == len(events) == 10
    (same,) = {dataclasses.replace(event, id="0" * 64) for event in events}
    assert (same.unit, same.adjacency, same.trust, same.shares) == ("client", "add-or-remove", "server", 1)
    assert (same.sampling, same.sampling_rate, same.noise_multiplier, same.clip_norm) == ("poisson", 0.1, 0.95, 0.2)
    federation.client("00")
    for target in (federation.folder, model):
        (row,) = account([target], delta=1 / 500)["clients"]
        assert (row["client"], row["unit"], row["trusted"], row["events"]) == ("server", "client", ["server"], 10)
        assert row["epsilon"]["rdp"] == epsilon([sampled(10)], delta=1 / 500).rdp
    # As many as in the paper, in one file.
    many = tuple(dataclasses.replace(same, id=f"{number:064x}").to_json() for number in range(200))
    last = federation.server / "outbox/model-0200.safetensors"
    forge.write_tensors(last, kind="model", custody="downlink", round=200, privacy=many)
    (row,) = account([last], delta=1 / 500)["clients"]
    assert (row["events"], row["epsilon"]["rdp"]) == (200, pytest.approx(8.514, abs=2e-3))
    assert row["epsilon"]["pld"] == epsilon([sampled(200)], delta=1 / 500).pld < 8.1


def test_an_identical_aggregate_is_free_and_any_other_is_charged_without_amplification(federation):
    """All that is made from one draw has the same coins: who is in one release is in the next."""
    early = [federation.message(name, np.ones(10)) for name in ("00", "01")]
    late = federation.message("02", np.ones(10))
    first = federation.aggregate(early)
    before = first.read_bytes()
    federation.aggregate(early)
    assert (first.read_bytes() == before, len(federation.charged())) == (True, 1)
    federation.aggregate([*early, late], name="late")
    federation.aggregate(early, name="tuned", server_rate=0.5)
    assert [event["sampling_rate"] for event in federation.charged()] == [RATE, 1.0, 1.0]
    outs = [federation.server / f"outbox/{name}.safetensors" for name in ("late", "tuned")]
    events = [federation.events(out)[0] for out in (first, *outs)]
    assert [(e.mechanism, e.sampling_rate) for e in events] == [
        ("sampled-gaussian", RATE), ("gaussian", 1.0), ("gaussian", 1.0),
    ]  # fmt: skip
    assert len({event.id for event in events}) == 3
    differences = np.abs(federation.moved(first) * 2 - federation.moved(outs[1]) * 4)
    assert np.median(differences) > 0.1 * SIGMA, "other noise each time"
    # Again as it was: the same bytes, the same price.
    federation.aggregate(early)
    federation.aggregate([*early, late], name="late")
    assert (first.read_bytes() == before, len(federation.charged())) == (True, 3)
    # The next round has coins of its own; so has another key.
    federation.aggregate([], first)
    settle(federation.server / "private/server.key", keys.simulated(1, "server"), force=True)
    federation.aggregate(early)
    assert [event["sampling_rate"] for event in federation.charged()[3:]] == [RATE, RATE]


def test_two_releases_from_one_draw_are_worth_more_than_two_draws(federation):
    """Together they are one sampled release with noise σ/√2; what is charged covers that, two amplified would not."""
    together = epsilon([sampled(1, sigma=0.95 / math.sqrt(2))], delta=1e-3).pld
    amplified = epsilon([sampled(2)], delta=1e-3).pld
    again = dataclasses.replace(planned(sampling_rate=1, noise_multiplier=0.95, steps=1), id=f"{1:064}")
    charged = epsilon([sampled(1), again], delta=1e-3).pld
    assert amplified < together < charged


def test_the_budget_of_the_server(federation, fedsynth):
    """Three rounds and no fourth; and with a budget nothing leaves without noise."""
    delta, rounds = 0.01, 3
    allowed = [[sampled(1, RATE, SIGMA)]] * rounds
    from stages.privacy.budget import Budget

    limit = math.ceil(Budget(epsilon=9.0, delta=delta, unit="record").spent(allowed) * 100) / 100
    budget = {"epsilon": limit, "delta": delta, "unit": "client"}
    (federation.server / "private/budget.yaml").write_text(json.dumps(budget))
    model = federation.start
    options = [
        "--rule", "dp-mean", "--clip-norm", CLIP, "--noise-multiplier", SIGMA, "--sampling-rate", RATE, "--clients",
        CLIENTS,
    ]  # fmt: skip
    codes = []
    for number in range(1, 6):
        out = federation.server / f"outbox/model-{number:04}.safetensors"
        code, _, err = fedsynth("aggregate", model, "-o", out, *options)
        codes.append(code)
        if code:
            break
        model = out
    assert codes[-1] == 4, codes
    assert rounds <= len(codes) <= rounds + 2
    assert not out.exists()
    assert "does not allow this" in err
    assert len(federation.charged()) == len(codes) - 1
    message = federation.message("00", np.ones(10))
    code, _, err = fedsynth(
        "aggregate", federation.start, message, "-o", federation.server / "outbox/plain.safetensors"
    )
    assert (code, "without noise" in err) == (4, True)


def test_noise_for_records_does_not_hide_a_client_and_noise_for_clients_counts_for_records(
    federation, forge, fedsynth_json
):
    federation.message("00", np.ones(10), **SHARED)
    record = dataclasses.replace(planned(sampling_rate=0.1, noise_multiplier=1.0, steps=10), id=f"{7:064}")
    path = federation.client("00") / "outbox/message-0002.safetensors"
    forge.write_tensors(path, kind="message", client="00", round=2, privacy=(record.to_json(),), disclosures=())
    rows = {row["unit"]: row for row in fedsynth_json("account", federation.client("00"), "--delta", 1e-3)["clients"]}
    assert rows["client"]["epsilon"]["pld"] == "inf"
    assert rows["client"]["uncovered"][0]["why"] == "its events are about records, not about whole clients"
    half = planned(sampling_rate=1, noise_multiplier=SIGMA / 2, steps=1)
    assert rows["record"]["epsilon"]["pld"] == epsilon([record, half], delta=1e-3).pld


# Who takes part.


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
    assert not is_poisson([*draws[:-80], *[clients[:8]] * 80], clients, q), "favourites"
    assert drawn(clients, q, 1, key) == drawn(list(reversed(clients)), q, 1, key) == draws[0]
    assert len({tuple(draw) for draw in draws}) == rounds
    assert drawn(clients, q, 1, keys.simulated(4, "server")) != draws[0]
    assert drawn(clients, 1.0, 1, key) == clients


def test_sample_clients_writes_a_file_that_stays(fedsynth, fedsynth_json, federation):
    out = federation.server / "private/clients-0001.json"
    names = [f"clinic-{n}" for n in range(12)]
    command = ["sample-clients", *names, "--sampling-rate", "0.5", "--round", "1"]
    told = fedsynth_json(*command, "-o", out)
    found = json.loads(out.read_text())
    assert found["clients"] == drawn(names, 0.5, 1, keys.simulated(0, "server"))
    assert (found["custody"], told.keys()) == ("server", {"out", "round", "custody"}), "no number on the screen either"
    before = out.read_bytes()
    assert fedsynth_json(*command, "-o", out, "--force")["round"] == 1
    assert out.read_bytes() == before
    code, _, err = fedsynth(*command, "-o", federation.server / "outbox/clients.json")
    assert (code, "may not stand in an outbox" in err) == (2, True)


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


# Noise in shares.


def test_a_share_has_its_variance_and_no_other(wide, has_scale):
    """σ²C²/(t − colluders): six may come, two of them tell their noise."""
    shared = {"clip_norm": 2.0, "noise_multiplier": 1.5, "least_clients": 6, "colluders": 2}
    noise = sent(wide.message("00", np.zeros(20_000), **shared))
    variance = (1.5 * 2.0) ** 2 / 4
    assert has_scale(noise, math.sqrt(variance))
    for wrong in (2 / 3, 3 / 2):
        assert not has_scale(noise, math.sqrt(variance * wrong))
    other = sent(wide.message("01", np.zeros(20_000), **shared))
    assert abs(np.corrcoef(noise, other)[0, 1]) < 0.04
    # Four honest shares together are the whole noise, and their mean is what `aggregate` gives.
    messages = [wide.message(f"{n:02}", np.zeros(20_000), **shared) for n in range(6)]
    assert has_scale(sum(sent(message) for message in messages[:4]), 1.5 * 2.0)
    out = wide.server / "outbox/model-0001.safetensors"
    aggregate(wide.start, messages, out, params=Aggregation())
    assert np.allclose(wide.moved(out), np.mean([sent(m) for m in messages], axis=0), atol=1e-6)


def test_the_event_of_a_share_and_what_is_charged(federation):
    place = federation.client("00")
    path = federation.message("00", values(0, 50.0), **SHARED, colluders=1)
    (event,) = federation.events(path)
    assert event.to_json() | {"id": ""} == {
        "id": "", "unit": "client", "adjacency": "add-or-remove", "mechanism": "gaussian", "sampling": "none",
        "sampling_rate": 1.0, "noise_multiplier": SIGMA, "clip_norm": CLIP, "steps": 1, "trust": "aggregate",
        "shares": 2,
    }  # fmt: skip
    about = tensors_file.read(path).metadata
    assert (about.disclosures, about.counts) == ((), {})
    before = path.read_bytes()
    federation.message("00", values(0, 50.0), **SHARED, colluders=1)
    assert (path.read_bytes() == before, len(federation.charged(place))) == (True, 1)
    federation.message("00", values(1, 50.0), **SHARED, colluders=1)
    federation.message("00", values(1, 50.0), **SHARED)
    assert len(federation.charged(place)) == 3
    assert (
        federation.events(federation.message("00", values(0, 1), **{**SHARED, "least_clients": 1}))[0].trust == "nobody"
    )


def test_a_share_holds_the_update_clipped(federation):
    """With hardly any noise: the length of the whole update is the clip."""
    path = federation.message("00", values(0, 50.0), clip_norm=2.0, noise_multiplier=2e-3, least_clients=2)
    assert np.abs(sent(path) - values(0, 2.0)).max() < 0.01


def gaussian_epsilon(sigma, delta):
    """Balle and Wang 2018, Theorem 8: the exact ε of one Gaussian release of sensitivity 1."""

    def gap(e):
        norm = stats.norm
        return norm.cdf(0.5 / sigma - e * sigma) - math.exp(e) * norm.cdf(-0.5 / sigma - e * sigma) - delta

    return optimize.brentq(gap, 0, 200)


def test_what_a_file_is_worth_together_and_alone(federation, fedsynth, fedsynth_json):
    shared = {"clip_norm": 1.0, "noise_multiplier": 2.0, "least_clients": 5, "colluders": 1}
    path = federation.message("00", np.ones(10), **shared)
    (row,) = fedsynth_json("account", path, "--delta", "1e-5")["clients"]
    assert row["trusted"] == ["aggregate"]
    for found, sigma in ((row["epsilon"], 2.0), (row["alone"], 1.0)):
        exact = gaussian_epsilon(sigma, 1e-5)
        assert exact <= found["pld"] < exact * 1.002
    assert "to whoever sees its files alone" in fedsynth("account", path, "--delta", "1e-5")[1]
    # A file that carries all of its noise is worth the same, alone or not.
    whole = federation.message("01", np.ones(10), **shared | {"least_clients": 2, "noise_multiplier": 1.0})
    (other,) = fedsynth_json("account", whole, "--delta", "1e-5")["clients"]
    assert (other["alone"], other["trusted"]) == (None, ["nobody"])
    assert other["epsilon"]["pld"] == pytest.approx(row["alone"]["pld"], rel=1e-9)


def test_shares_count_on_each_other(federation, fedsynth):
    """Fewer than t, one without noise, one with another clip or mask: nothing is released."""
    ones = np.ones(10)
    mine = [federation.message(f"{n:02}", ones, **SHARED) for n in range(3)]
    out = federation.server / "outbox/model-0001.safetensors"
    command = ["aggregate", federation.start, "-o", out]
    code, _, err = fedsynth(*command, *mine[:2])
    assert (code, "complete with 3 messages; 2 are here" in err) == (3, True)
    for odd in ({}, {**SHARED, "noise_multiplier": 0.1}, {**SHARED, "clip_norm": 9.0}, {**SHARED, "colluders": 1},
                {**SHARED, "sparsify": "rand-k"}):  # fmt: skip
        other = federation.message("09", ones, **odd)
        for given in ([*mine[:2], other], [other, *mine[:2]]):
            code, _, err = fedsynth(*command, *given)
            assert (code, "none like it" in err) == (3, True), err
    assert not out.exists()
    assert fedsynth(*command, *mine)[0] == 0
    assert tensors_file.read(out).metadata.disclosures == ()


def test_a_clients_budget(federation, fedsynth):
    place = federation.client("00")
    (place / "private/budget.yaml").write_text('{"epsilon": 3.0, "delta": 0.01, "unit": "client"}')
    update = federation.update("00", np.ones(10))
    command = ["encode", federation.start, update, "--clip-norm", 1, "-o", place / "outbox/m.safetensors"]
    shares = ["--least-clients", 2, "--noise-multiplier"]
    assert fedsynth(*command)[0] == 4, "the server would see it without noise"
    assert fedsynth(*command, *shares, 0.5)[0] == 4
    assert not list((place / "outbox").iterdir())
    assert fedsynth(*command, *shares, 2)[0] == 0


# Bad input.

AGGREGATE = [
    "--rule",
    "dp-mean",
    "--clip-norm",
    "1",
    "--noise-multiplier",
    "1",
    "--sampling-rate",
    "0.5",
    "--clients",
    "4",
]


def without(option):
    at = AGGREGATE.index(option)
    return [*AGGREGATE[:at], *AGGREGATE[at + 2 :]]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        *((without(o), 2, f"{o} needs a value") for o in AGGREGATE[2::2]),
        (without("--rule"), 2, "dp-mean only"),
        *(([*AGGREGATE, "--noise-multiplier", s], 2, "noise") for s in ("0", "-1", "nan", "inf", "1e-5", "1e7")),
        ([*AGGREGATE, "--noise-multiplier", "900000"], 2, "too many"),
        *(([*AGGREGATE, "--sampling-rate", q], 2, "sampling") for q in ("0", "1.01", "nan", "1e-15")),
        *(([*AGGREGATE, "--clip-norm", c], 2, "clip") for c in ("0", "-1", "nan", "inf")),
        ([*AGGREGATE, "--clients", "0"], 2, "--clients"),
        ([*AGGREGATE, "--clients", "1"], 3, "2 clients sent something"),
        ([*AGGREGATE, "--weights", "examples"], 2, "uniform with --rule dp-mean"),
        ([*AGGREGATE, "--keep", "0.5"], 2, "given with --sparsify"),
        ([*AGGREGATE, "--sparsify", "rand-k", "--keep", "0"], 2, "above 0 and at most 1"),
        ([*AGGREGATE, "--as", "state"], 2, "--as state"),
        ([*AGGREGATE, "--key", "no.key"], 3, "no key at"),
        ([*AGGREGATE, "MESSAGE"], 3, "both from client"),
        ([*AGGREGATE, "SHARE"], 3, "a share of the round's noise"),
        ([*AGGREGATE, "RECORD"], 3, "noise of its own"),
        ([*AGGREGATE, "UPDATE"], 3, "never leaves its client"),
    ],
)  # fmt: skip
def test_bad_aggregates_charge_nothing(fedsynth, forge, federation, words, code, said):
    messages = [federation.message(name, np.ones(10)) for name in ("00", "01")]
    names = {
        "MESSAGE": messages[0],
        "SHARE": federation.message("02", np.ones(10), **SHARED),
        "UPDATE": federation.update("03", np.ones(10)),
        "RECORD": forge.write_tensors(
            federation.client("04") / "outbox/message-0001.safetensors", federation.tensors, kind="message",
            client="04", round=1, privacy=(planned(sampling_rate=0.1, noise_multiplier=1.0, steps=1).to_json(),),
            disclosures=(), inputs=(lineage.by_digest(tensors_file.read(federation.start), "model"),),
        ),
    }  # fmt: skip
    out = federation.server / "outbox/model-0001.safetensors"
    found, _, err = fedsynth("aggregate", federation.start, *messages, *(names.get(w, w) for w in words), "-o", out)
    assert (found, said in err) == (code, True), err
    assert not out.exists()
    assert not federation.charged()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--noise-multiplier", "1", "--least-clients", "2"], 2, "--clip-norm needs a value"),
        (["--noise-multiplier", "1", "--clip-norm", "1"], 2, "--least-clients needs a value"),
        (["--least-clients", "2"], 2, "given with --noise-multiplier"),
        (["--colluders", "1"], 2, "given with --noise-multiplier"),
        ([*(shares := ["--noise-multiplier", "1", "--clip-norm", "1", "--least-clients", "2"]), "--colluders", "2"], 2,
         "less than --least-clients"),
        ([*shares, "--colluders", "-1"], 2, "--colluders"),
        ([*shares, "--least-clients", "0"], 2, "--least-clients"),
        *(([*shares, "--noise-multiplier", sigma], 2, "noise") for sigma in ("0", "nan", "inf", "1e-5")),
        ([*shares, "--noise-multiplier", "0.01", "--least-clients", "1000"], 2, "noise_multiplier"),
        ([*shares, "--clip-norm", "inf"], 2, "clip"),
        ([*shares, "--tell-examples"], 2, "without noise"),
        ([*shares, "--method", "state"], 2, "--method delta"),
        ([*shares, "--key", "no.key"], 3, "no key at"),
    ],
)  # fmt: skip
def test_bad_shares_charge_nothing(fedsynth, federation, words, code, said):
    update = federation.update("00", np.ones(10))
    out = federation.client("00") / "outbox/m.safetensors"
    found, _, err = fedsynth("encode", federation.start, update, "-o", out, *words)
    assert (found, said in err, out.exists()) == (code, True, False), err
    assert not federation.charged(federation.client("00"))


def test_keys_and_ledgers_that_are_not_in_order(fedsynth, federation):
    out, key = federation.server / "outbox/m.safetensors", federation.server / "private/server.key"
    command = ["aggregate", federation.start, "-o", out, *AGGREGATE]
    key.chmod(0o644)
    assert fedsynth(*command)[0] == 3
    key.chmod(0o600)
    ledger = spend.beside(key)
    kept = ledger.read_bytes()
    ledger.unlink()
    code, _, err = fedsynth(*command)
    assert (code, "no spend ledger" in err) == (3, True)
    ledger.write_bytes(kept.replace(b"opened", b"Opened"))
    assert fedsynth(*command)[0] == 5
    assert not out.exists()


def test_a_message_never_names_a_private_model_by_its_digest(federation, fedsynth):
    """`decode --apply` at a client gives one."""
    message = federation.message("00", np.ones(10))
    mine = federation.client("00") / "private/model-0001.safetensors"
    assert fedsynth("decode", federation.start, message, "--apply", "-o", mine)[0] == 0
    update = federation.update("00", np.ones(10), mine)
    code, _, err = fedsynth("encode", mine, update, "-o", federation.client("00") / "outbox/m.safetensors")
    assert (code, "is private" in err) == (3, True)


# A whole run.


def test_a_run_from_end_to_end(tmp_path):
    """Fed-SMP with a public top-k mask: eight clients, each in a round with probability one half."""
    settings = ["partition.clients=8", "participation=0.5", "train-client.local_epochs=1", "encode.keep=0.1"]
    run(change(load_recipe("fed-smp-topk"), settings, 3), tmp_path, seed=5, workers=1)
    report = audit(tmp_path)
    assert report.passed, report.verdict
    rows = {row["client"]: row for row in account([tmp_path], delta=0.01)["clients"]}
    server = rows.pop("server")
    assert server["epsilon"]["pld"] == epsilon([sampled(3, 0.5)], delta=0.01).pld
    assert server["files"] == server["events"] == 3
    assert all(row["epsilon"]["pld"] == "inf" for row in rows.values()), "towards the server, which is trusted"
    taken = [sorted(p.parents[1].name for p in tmp_path.glob(f"clients/*/outbox/message-000{n}.*")) for n in (1, 2, 3)]
    clients = [f"{n:02}" for n in range(8)]
    assert taken == [drawn(clients, 0.5, n, keys.simulated(5, "server")) for n in (1, 2, 3)]

    # No file of the server names a participant.
    digests = [tensors_file.read(path).sha256 for path in tmp_path.glob("clients/*/outbox/*")]
    models = [tensors_file.read(tmp_path / "public/model-0000.safetensors")]
    for path in sorted((tmp_path / "server/outbox").iterdir()):
        models.append(tensors_file.read(path))
        about = models[-1].metadata
        assert [reference.role for reference in about.inputs] == ["model"]
        assert (about.counts, about.disclosures, about.client) == ({}, (), None)
        assert about.params["clients"] == 8, "all of them, a public number"
        assert not any(digest.encode() in path.read_bytes() for digest in digests)

    # What moves is the mask; half of it stays, half of it is new.
    moved = [flat(b.tensors) != flat(a.tensors) for a, b in itertools.pairwise(models)]
    size = math.ceil(0.1 * len(moved[0]))
    assert all(0.85 * size <= mask.sum() <= size for mask in moved)
    assert 0.4 * size < (moved[0] & moved[1]).sum() < size
