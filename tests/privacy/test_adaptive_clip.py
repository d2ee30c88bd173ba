"""Private adaptive clipping (Andrew et al. 2021): the split of the noise, the count, the next clip, the files."""

import dataclasses
import math
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp

import stages.charging.updates as private_updates
import stages.privacy.adaptive_clip as adaptive_clip
from artifacts.errors import InputError
from artifacts.formats import tensors_file
from artifacts.metadata import InputRef, Metadata
from stages.account import account
from stages.aggregate import aggregate
from stages.audit.claims import other_noise
from stages.audit.surrounding_files import Given
from stages.declared import undeclared
from stages.privacy.accountant import epsilon
from stages.privacy.adaptive_clip import joint_noise, next_clip, noisy_share, update_noise
from stages.privacy.events import PrivacyEvent, for_unit, in_words
from stages.recipes.recipe import change, load_recipe
from stages.registry import ENCODERS, RULES

CLIP, SIGMA, EXPECTED = 1.0, 0.5, 4.0  # as the fixture `federation` has them
ADAPTIVE = {"adaptive_clip": True, "count_noise": 0.25, "clip_quantile": 0.6, "clip_rate": 0.3}
COUNT_NOISE = 0.25 * EXPECTED


# The noise of updates and count together.


def test_the_split_by_hand():
    """z = 1 and σ_b = 5: 1/√(1 − 1/100)."""
    assert update_noise(1.0, 5.0) == pytest.approx(1.0050378152592121, rel=1e-15)
    # The paper's setting, z = 1.2 with σ_b = 100/20, and its round trip.
    assert joint_noise(update_noise(1.2, 5.0), 5.0) == pytest.approx(1.2, rel=1e-14)
    for too_little in (0.5, 0.4):
        with pytest.raises(ValueError, match=r"must be above 0\.5"):
            update_noise(1.0, too_little)


@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_the_epsilon_is_that_of_both_releases_composed(rate):
    """By dp-accounting, which is given the two Gaussians, each by its own noise and sensitivity, and their sample."""
    z, count, rounds, delta = 0.95, 2.5, 20, 0.002
    parts = [dp_accounting.GaussianDpEvent(update_noise(z, count)), dp_accounting.GaussianDpEvent(count / 0.5)]
    both = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.ComposedDpEvent(parts))
    found = rdp.RdpAccountant().compose(both, rounds).get_epsilon(delta)
    events = [
        PrivacyEvent.planned(
            unit="client", sampling_rate=rate, noise_multiplier=z, clip_norm=0.1 * n, steps=1, trust="server",
            count_noise=count,
        )
        for n in range(1, rounds + 1)
    ]  # fmt: skip
    numbered = [dataclasses.replace(event, id=f"{n:064x}") for n, event in enumerate(events)]
    assert epsilon(numbered, delta=delta).rdp == pytest.approx(found, rel=0.02)
    assert epsilon(numbered, delta=delta).rdp <= found + 1e-9, "ours has the finer orders"
    alone = rdp.RdpAccountant().compose(dp_accounting.PoissonSampledDpEvent(rate, parts[0]), rounds)
    assert alone.get_epsilon(delta) < 0.99 * found, "and the count is not for nothing"


def test_an_event_that_claims_more_than_its_parts_is_refused():
    event = PrivacyEvent.planned(
        unit="client", sampling_rate=1.0, noise_multiplier=0.95, clip_norm=1.0, steps=1, trust="server", count_noise=2.5
    )
    assert event.to_json().items() >= {"update_noise": update_noise(0.95, 2.5), "count_noise": 2.5}.items()
    assert PrivacyEvent.from_json(event.to_json()) == event
    assert "of the sum" in in_words(event)
    for changes in ({"noise_multiplier": event.update_noise}, {"count_noise": 0.6}, {"count_noise": 0.0}):
        with pytest.raises(ValueError, match="noise"):
            dataclasses.replace(event, **changes)
    half = for_unit(event, "record")
    assert half is not None and half.noise_multiplier == 0.475
    assert "count_noise" not in dataclasses.replace(event, update_noise=0.0, count_noise=0.0).to_json()


# The count and the next clip.


def test_the_next_clip_by_hand():
    assert next_clip(2.0, 0.75, quantile=0.5, rate=0.2) == pytest.approx(2 * math.exp(-0.05), rel=1e-15)
    assert next_clip(2.0, 0.25, quantile=0.5, rate=0.2) == pytest.approx(2 * math.exp(0.05), rel=1e-15)


def test_the_share_has_its_noise_and_no_other(stream_of, has_scale):
    draws = np.array(
        [
            noisy_share(30, 40, count_noise=5.0, expected_size=50.0, noise=stream_of(seed=n)) - (0.5 + 10 / 50)
            for n in range(2000)
        ]
    )
    assert has_scale(draws, 5.0 / 50)
    for wrong in (5.0 / 40, 0.8 * 5.0 / 50, 2 * 5.0 / 50):
        assert not has_scale(draws, wrong)


@pytest.mark.parametrize("quantile", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("start", [0.01, 20.0])
def test_the_clip_finds_the_quantile(stream_of, quantile, start):
    """Norms with median 1: log-normal with spread 0.7. Each round sees 100 of them and noise of a twentieth."""
    rng, clip, clips = np.random.default_rng(1), start, []
    for number in range(150):
        within = int(np.sum(np.exp(0.7 * rng.normal(size=100)) <= clip))
        share = noisy_share(within, 100, count_noise=5.0, expected_size=100.0, noise=stream_of(seed=number))
        clip = next_clip(clip, share, quantile=quantile, rate=0.2)
        clips.append(clip)
    wanted = 0.7 * {0.3: -0.5244, 0.5: 0.0, 0.8: 0.8416}[quantile]  # by a table of the normal distribution
    assert np.mean(np.log(clips[-50:])) == pytest.approx(wanted, abs=0.07)


# What a round releases.


@pytest.fixture
def sums(monkeypatch, flat):
    """What reaches the two mechanisms, (total, mechanism) of updates and of the count in turn, without noise."""
    seen = []

    def exact(total, mechanism, noise):
        seen.append((flat(total), mechanism))
        return {name: (tensor / mechanism.expected_size).astype(np.float32) for name, tensor in total.items()}

    monkeypatch.setattr(private_updates, "noisy_mean", exact)
    monkeypatch.setattr(adaptive_clip, "noisy_mean", exact)
    return seen


NORMS = (5.0, 0.25, 1.5, 0.9, 1e30)


@pytest.mark.parametrize("clipped_by_clients", [True, False])
def test_a_round_by_hand(federation, sums, clipped_by_clients):
    """Two of five updates are within the clip, whoever clipped the others."""
    options = {"clip_norm": CLIP, "adaptive_clip": True} if clipped_by_clients else {}
    messages = [federation.message(f"{n:02}", federation.values(n, x), **options) for n, x in enumerate(NORMS)]
    out = federation.aggregate(messages, **ADAPTIVE)
    (_, updates), (count, counting) = sums
    assert count.tolist() == [2 - 5 / 2]
    assert (counting.scale, counting.expected_size) == (COUNT_NOISE, EXPECTED)
    assert updates.scale == pytest.approx(CLIP / math.sqrt(1 / SIGMA**2 - 1 / (2 * COUNT_NOISE) ** 2), rel=1e-12)
    share = 0.5 + (2 - 5 / 2) / EXPECTED
    stated = tensors_file.read(out).metadata.params["next_clip_norm"]
    assert stated == pytest.approx(CLIP * math.exp(-0.3 * (share - 0.6)), rel=1e-7)


def test_one_client_moves_updates_and_count_together_by_no_more_than_the_noise_says(federation, sums):
    messages = [federation.message(f"{n:02}", federation.values(n, x)) for n, x in enumerate(NORMS)]
    federation.aggregate(messages, **ADAPTIVE)
    moves = []
    for gone in range(5):
        federation.aggregate([m for n, m in enumerate(messages) if n != gone], **ADAPTIVE)
        parts = zip(sums[:2], sums[-2:], strict=True)
        moves.append(math.hypot(*(np.linalg.norm(a - b) / mechanism.scale for (a, mechanism), (b, _) in parts)))
    assert max(moves) <= 1 / SIGMA
    assert max(moves) == pytest.approx(1 / SIGMA, rel=1e-5), "and the bound is reached"
    assert math.hypot(1 / update_noise(SIGMA, COUNT_NOISE), 1 / COUNT_NOISE) > 1.04 / SIGMA, "without the half it broke"


def test_the_next_round_goes_by_the_clip_that_the_model_states(federation, flat):
    first = federation.aggregate([federation.message("00", federation.values(0, 0.1))], **ADAPTIVE)
    clip = tensors_file.read(first).metadata.params["next_clip_norm"]
    assert clip != CLIP
    options = {"clip_norm": CLIP, "adaptive_clip": True}
    message = federation.message("00", federation.values(0, 9.0), first, **options)
    assert np.linalg.norm(federation.sent(message)) == pytest.approx(clip, rel=1e-5)
    second = federation.aggregate([message], first, **ADAPTIVE)
    events = federation.events(second)
    assert [event.clip_norm for event in events] == [CLIP, clip]
    for event, charged in zip(events, federation.charged(), strict=True):
        assert (event.noise_multiplier, event.count_noise) == (SIGMA, COUNT_NOISE)
        assert event.update_noise == charged["update_noise"] == update_noise(SIGMA, COUNT_NOISE)
        assert charged["count_noise"] == COUNT_NOISE
    assert tensors_file.read(second).metadata.params["clip_norm"] == CLIP, "the first, as it was asked for"
    with pytest.raises(InputError, match="does not state the clip"):
        federation.aggregate([], federation.aggregate([]), **ADAPTIVE)


def test_the_same_round_again_is_free_and_the_same(federation):
    out = federation.aggregate([], **ADAPTIVE)
    before = out.read_bytes()
    params = RULES.from_mapping({"rule": "dp-mean", "clip_norm": 1.0, "noise_multiplier": 0.5, "sampling_rate": 0.5,
                                 "clients": 8, **ADAPTIVE})  # fmt: skip
    aggregate(federation.start, [], out, params=params)
    assert (out.read_bytes(), len(federation.charged())) == (before, 1)


def test_what_does_not_go_together_is_refused(federation, fedsynth):
    shares = {"clip_norm": 1.0, "noise_multiplier": 0.5, "least_clients": 3, "adaptive_clip": True}
    with pytest.raises(ValueError, match="goes with noise that the server adds"):
        ENCODERS.from_mapping({"method": "delta", **shares})
    with pytest.raises(ValueError, match="goes with --clip-norm"):
        ENCODERS.from_mapping({"method": "delta", "adaptive_clip": True})
    central = ["--rule", "dp-mean", "--clip-norm", 1, "--noise-multiplier", 1, "--sampling-rate", 0.5, "--clients", 8]
    out = federation.server / "outbox/model.safetensors"
    aggregate_it = ["aggregate", federation.start, *central, "--adaptive-clip", "-o"]
    mean = federation.server / "private/mean.safetensors"
    update = federation.update("00", federation.values(0, 1.0))
    for words, code, said in [
        ([*aggregate_it, out], 2, "--count-noise times qN, must be above 0.5"),
        ([*aggregate_it, mean, "--count-noise", 1, "--as", "update"], 2, "leave out --as update"),
        (["aggregate", federation.start, *central, "--clip-rate", 1, "-o", out], 2, "goes with --adaptive-clip"),
        (["encode", federation.start, update, "--clip-norm", 1, "--adaptive-clip", "-o",
          federation.client("00") / "private/m.safetensors"], 2, "nobody sees how many"),
    ]:  # fmt: skip
        found, _, err = fedsynth(*words)
        assert (found, said in err) == (code, True), err
    assert not out.exists() and not federation.charged()


# A whole run, and its audit.


def test_a_run_states_its_clips_and_passes_its_audit(tmp_path, run_on_one_worker, fedsynth):
    settings = ["partition.clients=2", "participation=1", "train-client.local_epochs=1", "encode.adaptive_clip=true",
                "aggregate.count_noise=0.4"]  # fmt: skip
    run_on_one_worker(change(load_recipe("dp-fedavg"), settings, 2), tmp_path, seed=5)
    code, out, _ = fedsynth("audit", tmp_path)
    assert code == 0, out
    last = tmp_path / "server/outbox/model-0002.safetensors"
    models = [tensors_file.read(tmp_path / f"server/outbox/model-000{n}.safetensors").metadata for n in (1, 2)]
    clips = [0.2, *(about.params["next_clip_norm"] for about in models)]
    assert [event["clip_norm"] for event in models[1].privacy] == clips[:2]
    assert len(set(clips)) == 3
    row = next(row for row in account([last], delta=0.01)["clients"])
    plain = PrivacyEvent.planned(
        unit="client", sampling_rate=1.0, noise_multiplier=0.95, clip_norm=1.0, steps=2, trust="server"
    )
    assert row["epsilon"]["pld"] == pytest.approx(epsilon([plain], delta=0.01).pld)

    # Nothing else is in the place of a clip, and no clip where nobody asked for one.
    for changes in ({"next_clip_norm": "many words"}, {"adaptive_clip": False}):
        assert undeclared(dataclasses.replace(models[1], params={**models[1].params, **changes}))


def test_an_audit_compares_events_with_parameters():
    event = PrivacyEvent.planned(
        unit="person", sampling_rate=0.5, noise_multiplier=1.0, clip_norm=2.0, steps=3, trust="nobody"
    ).to_json()
    said = {
        "algorithm": "fedavg", "noise_multiplier": 1.0, "clip_norm": 2.0, "unit": "person", "sampling_rate": 0.5,
        "batch_size": 16, "local_steps": 3,
    }  # fmt: skip
    about = Metadata(
        kind="update", stage="train-client", custody="private", client="00", round=1, versions={}, params=said,
        privacy=(event,), inputs=(InputRef(role="model", kind="model", sha256="ab" * 32),),
    )  # fmt: skip

    def of(params, **changes):
        return other_noise(dataclasses.replace(about, params=params, privacy=({**event, **changes},)), None)

    assert of(said) is None and of({}) is None
    assert "unit person" in str(of(said, unit="record")) and "unit record" in str(of(said | {"unit": "record"}))
    for name, value in {
        "noise_multiplier": 2.0, "clip_norm": 1.0, "sampling_rate": 0.1, "steps": 2, "adjacency": "replace-one",
        "trust": "server", "mechanism": "gaussian", "shares": 2,
    }.items():  # fmt: skip
        assert of(said, **{name: value}), name
    assert of(said | {"local_steps": 2}) and of(said | {"sampling_rate": 0.1})
    assert "nobody can say" in str(of(said | {"batch_size": "mueller"}))
    assert of({name: value for name, value in said.items() if name != "local_steps"}), "without steps it has no ε"


def test_an_audit_compares_the_clip_of_a_round_with_the_model():
    params = {"rule": "dp-mean", "noise_multiplier": 0.5, "clip_norm": 2.0, "sampling_rate": 0.5, "clients": 8}
    adapted = params | ADAPTIVE
    given = Given()
    model = Metadata(kind="model", stage="aggregate", custody="downlink", versions={}, params={"next_clip_norm": 7.0})
    about = dataclasses.replace(model, inputs=(InputRef(role="model", kind="model", sha256="ab" * 32),))

    def of(params, clip, given):
        event = private_updates.mean_event(RULES.from_mapping(params), clip).to_json()
        return other_noise(dataclasses.replace(about, params=params, privacy=(event,)), given)

    assert of(params, 2.0, None) is None and of(params, 1.0, None)
    assert of(adapted, 7.0, None) is None, "without the model nobody knows its clip"
    given.remember(Path("server/outbox/model-0001.safetensors"), "ab" * 32, model, ())
    assert of(adapted, 7.0, given) is None
    assert "clip_norm 7.0" in str(of(adapted, 2.0, given))
