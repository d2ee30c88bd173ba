"""Privacy of whole clients: the server's noised mean by hand, what one client moves, masks, and a whole run.

Most models here are two tensors of ten numbers together: `encode` and `aggregate` need no network.
"""

import itertools
import math

import numpy as np
import pytest

import stages.charging.updates as private_updates
from artifacts.formats import tensors_file
from artifacts.identity import keys
from artifacts.metadata import Metadata
from stages.account import account
from stages.audit import audit
from stages.privacy.accountant import epsilon, planned
from stages.privacy.mechanism import CLIP_MARGIN, GaussianMechanism
from stages.recipes.recipe import change, load_recipe
from stages.sample_clients import drawn

CLIP, SIGMA, RATE, CLIENTS = 1.0, 0.5, 0.5, 8  # as the fixture `federation` has them
SHARED = {"clip_norm": 1.0, "noise_multiplier": 0.5, "least_clients": 3}
MASKS = [
    {"sparsify": "rand-k", "keep": 0.4},
    {"sparsify": "moved-k", "keep": 0.4},
    {"sparsify": "own-top-k", "keep": 0.4},
]


# The mean by hand.


def test_the_noised_mean_by_hand(federation, flat):
    """Clipped by one length over both tensors, added, noised, divided by qN = 4 although three came."""
    mine = {"00": federation.values(0, 5.0), "01": federation.values(1, 0.25), "02": federation.values(2, 1.5)}
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
    # (The first differs by a twelfth of what is noised: by less than this in all ten numbers with a chance of 4e-10.)
    for wrong in ((total + noise) / 3, (sum(mine.values()) + noise) / 4, (sum(by_tensor.values()) + noise) / 4):
        assert np.abs(found - wrong).max() > grid


def test_the_server_clips_what_a_client_did_not_clip_and_what_it_did_once_more(federation, flat):
    long, grid = federation.values(0, 1e6), SIGMA / 32 / 4
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
def sums(monkeypatch, flat):
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
    extra = {"before": federation.start} if mask.get("sparsify") == "moved-k" else {}
    messages = [
        federation.message(f"{n:02}", federation.values(n, norm), model)
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


def test_rand_k_is_the_same_for_all_clients_and_another_in_each_round(federation):
    mask = {"sparsify": "rand-k", "keep": 0.4}
    ones = np.ones(10)
    first = [
        np.flatnonzero(federation.sent(federation.message(name, ones * n, **mask)))
        for n, name in ((1, "00"), (2, "01"))
    ]
    assert first[0].tolist() == first[1].tolist()
    assert len(first[0]) == 4
    models, chosen = [federation.start], [tuple(first[0])]
    for _ in range(5):
        models.append(federation.aggregate([], models[-1]))
        chosen.append(tuple(np.flatnonzero(federation.sent(federation.message("00", ones, models[-1], **mask)))))
    assert len(set(chosen)) > 3
    other = federation.message("00", ones, **mask, mask_seed=1)
    assert np.flatnonzero(federation.sent(other)).tolist() != first[0].tolist()


def test_top_k_is_made_from_public_models_alone(federation):
    """Half of the places go to what moved most; a client's own update has no say."""
    mask = {"sparsify": "moved-k", "keep": 0.4}
    model = federation.aggregate([], noise_multiplier=3.0)
    moved = np.abs(federation.moved(model))
    chosen = [
        np.flatnonzero(
            federation.sent(federation.message(name, np.roll(np.arange(1, 11), n * 5), model, federation.start, **mask))
        )
        for n, name in enumerate(("00", "01"))
    ]
    assert chosen[0].tolist() == chosen[1].tolist()
    assert len(chosen[0]) == 4
    assert np.allclose(np.sort(moved[chosen[0]])[-2:], np.sort(moved)[-2:])
    first = np.flatnonzero(federation.sent(federation.message("00", np.ones(10), **mask)))
    rand = np.flatnonzero(federation.sent(federation.message("00", np.ones(10), sparsify="rand-k", keep=0.4)))
    assert first.tolist() == rand.tolist(), "in the first round nothing has moved"


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask["sparsify"])
def test_noise_covers_the_public_mask_or_else_everything(wide, mask):
    """A mask that a client chooses is private: then no coordinate is left without noise (rule 14)."""
    model = wide.aggregate([])
    before = wide.start if mask["sparsify"] == "moved-k" else None
    extra = {"before": before} if before else {}
    updates = np.arange(20_000.0), np.arange(20_000.0)[::-1] + 1
    messages = [wide.message(f"{n:02}", update, model, **mask, **extra) for n, update in enumerate(updates)]
    public = np.flatnonzero(wide.sent(messages[1]))
    assert len(public) == 8000
    changed = np.flatnonzero(wide.moved(wide.aggregate(messages, model, **mask, **extra), model))
    alone = np.flatnonzero(wide.sent(wide.message("02", updates[0], model, **mask, **extra, **SHARED)))
    for found in (changed, alone):  # one in a hundred falls on the grid's zero
        if mask["sparsify"] == "own-top-k":
            assert len(found) > 0.97 * 20_000
        else:
            assert set(found) <= set(public)
            assert len(found) > 0.97 * 8000
    if mask["sparsify"] == "own-top-k":
        assert np.flatnonzero(wide.sent(messages[0])).tolist() == list(range(12_000, 20_000))


def test_the_model_before_is_the_one_that_the_model_was_made_from(federation, fedsynth):
    other = federation.root / "public/other.safetensors"
    about = Metadata(kind="model", stage="init-model", custody="public", versions={})
    tensors_file.write(other, federation.shaped(np.ones(10), federation.tensors), about)
    model = federation.aggregate([])
    later = federation.aggregate([], model)
    update = federation.update("00", np.ones(10), model)
    command = ["encode", model, update, "-o", federation.client("00") / "outbox/m.safetensors", "--sparsify"]
    for extra, code, said in [
        (["moved-k", "--before", other], 3, "was not made from"),
        (["moved-k", "--before", later], 3, "is of round 2"),
        (["moved-k"], 2, "needs --before"),
        (["rand-k", "--before", federation.start], 2, "goes with --sparsify moved-k"),
    ]:
        found, _, err = fedsynth(*command, *extra)
        assert (found, said in err) == (code, True), err


# A whole run.


def test_a_run_from_end_to_end(tmp_path, flat, run_on_one_worker):
    """Fed-SMP with a public moved-k mask: eight clients, each in a round with probability one half."""
    settings = ["partition.clients=8", "participation=0.5", "train-client.local_epochs=1", "encode.keep=0.1"]
    run_on_one_worker(change(load_recipe("fed-smp-moved"), settings, 3), tmp_path, seed=5)
    report = audit(tmp_path)
    assert report.passed, report.verdict
    rows = {row["client"]: row for row in account([tmp_path], delta=0.01)["clients"]}
    server = rows.pop("server")
    assert (
        server["epsilon"]["pld"]
        == epsilon([planned(sampling_rate=0.5, noise_multiplier=0.95, steps=3)], delta=0.01).pld
    )
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
