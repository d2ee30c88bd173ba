"""Differentially private `train-generator`: what its files say, where its noise comes from, what is charged."""

from pathlib import Path

import numpy as np
import pytest

import stages.execution.torch_setup
import stages.methods.private_gradients as private_gradients_module
import stages.privacy.clipping as clipping
import stages.train_generator
from artifacts.errors import InputError, UsageError, VerificationError
from artifacts.formats import tensors_file
from artifacts.identity import keys
from stages.charging.spending import Spending
from stages.data.images import LabelledImages
from stages.generators.file import CLASS_COUNTS
from stages.generators.private import PrivateTraining
from stages.keygen import settle
from stages.methods.vae import Vae
from stages.privacy.streams import CONTEXT
from stages.registry import GENERATORS
from stages.train_generator import train_generator

FAMILIES = ["ddpm", "vae", "gan"]
NOISY = {"noise_multiplier": 1.0, "sampling_rate": 0.3}
PRIVATE = ("unit", "noise_multiplier", "sampling_rate", "delta", "clip_norm", "noise_multiplicity")
ELSEWHERE = "cpu: float32, one thread, ABACUS, by hand"


def all_differ(one, other):
    """Tensor by tensor; those of a few numbers may be equal by chance, on the grid of the noise."""
    large = [name for name, tensor in one.items() if tensor.size >= 16]
    return len(large) > 2 and all(not np.array_equal(one[name], other[name]) for name in large)


def without_noise(params):
    return GENERATORS.from_mapping({key: value for key, value in params.to_json().items() if key not in PRIVATE})


class Stopped(Exception):
    """What a test raises in the middle of a training."""


def stop_at(step):
    def report(done, total, text):
        assert text == "", "the loss of a private batch is not said"
        if done == step:
            raise Stopped

    return report


def train(data, out, params, **options):
    return train_generator([data], out, params=params, **{"seed": 3, **options})


@pytest.fixture
def noisy(quick):
    return lambda family="vae", **changed: quick(family, **{**NOISY, "steps": 4, **changed})


@pytest.mark.parametrize("name", FAMILIES)
def test_the_file_and_the_ledger_say_what_was_done(client, noisy, name, ledger_of):
    out = client.with_name("generator.safetensors")
    summary = train(client, out, noisy(name, delta=1e-5, clip_norm=0.7))
    found = tensors_file.read(out, kind="generator")
    about = found.metadata
    (event,) = about.privacy
    assert event.items() >= {
        "unit": "record", "adjacency": "add-or-remove", "mechanism": "sampled-gaussian", "sampling": "poisson",
        "sampling_rate": 0.3, "noise_multiplier": 1.0, "clip_norm": 0.7, "steps": 4, "trust": "nobody",
    }.items()  # fmt: skip
    assert (about.custody, about.counts, about.disclosures, about.simulation) == ("private", {}, (), True)
    assert CLASS_COUNTS not in found.tensors
    assert about.versions.keys() >= {"fedsynth", "torch", "numpy", "scipy"}
    assert "images" not in summary, "how many there were is not said"
    assert "epsilon" in summary
    opened, reserved, released = ledger_of(client)
    assert (opened["entry"], reserved["entry"], released["entry"]) == ("opened", "reserved", "released")
    assert reserved["events"] == [event | {"id": "0" * 64}]
    assert reserved["data"] == [reference.sha256 for reference in about.inputs]
    assert released["context"] == reserved["context"]


def test_the_same_key_gives_the_same_bytes_and_another_key_others(client, noisy, kinds_of):
    paths = [client.with_name(f"{n}.safetensors") for n in range(3)]
    train(client, paths[0], noisy())
    train(client, paths[1], noisy())
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert kinds_of(client).count("reserved") == 1, "an identical rerun is free"
    settle(client.with_name("client.key"), keys.generate(), force=True)
    train(client, paths[2], noisy())
    first, other = (tensors_file.read(path) for path in (paths[0], paths[2]))
    assert all_differ(first.tensors, other.tensors)
    assert first.metadata.privacy[0]["id"] != other.metadata.privacy[0]["id"]
    assert not other.metadata.simulation
    assert kinds_of(client).count("reserved") == 2


@pytest.fixture
def first_draws(monkeypatch):
    """The first words of the three streams that a training draws from."""

    def of(data, params, **options):
        seen = {}

        def seize(family, images, labels, *, streams, **rest):
            for name in ("sampling", "examples", "noise"):
                seen[name] = tuple(getattr(streams, name).at(1).uniform_bits(4).tolist())
            raise Stopped

        with monkeypatch.context() as patch:
            patch.setattr(private_gradients_module, "private_gradients", seize)
            with pytest.raises(Stopped):
                train(data, data.with_name("never.safetensors"), params, **options)
        return seen

    return of


def test_whatever_changes_changes_the_noise(client, digits, noisy, first_draws, make_client, tmp_path, monkeypatch):
    images = digits.images[:40].copy()
    images[7, 0, 3, 3] ^= 1
    touched = make_client(tmp_path / "touched", LabelledImages(images, digits.labels[:40], digits.class_names))
    relabelled = digits.labels[:40].copy()
    relabelled[0] = 9 - relabelled[0]
    other = make_client(tmp_path / "other", LabelledImages(digits.images[:40], relabelled, digits.class_names))
    fewer = make_client(tmp_path / "fewer", digits.take(np.arange(39)))
    found = [
        first_draws(client, noisy()),
        first_draws(touched, noisy()),
        first_draws(other, noisy()),
        first_draws(fewer, noisy()),
        first_draws(client, noisy(), seed=4),
        first_draws(client, noisy(), client="07"),
        first_draws(client, noisy(learning_rate=0.5)),
        first_draws(client, noisy(steps=5)),
        first_draws(client, noisy(noise_multiplier=1.5)),
        first_draws(client, noisy(clip_norm=2.0)),
        first_draws(client, noisy(sampling_rate=0.31)),
        first_draws(client, noisy(noise_multiplicity=2)),
        first_draws(client, noisy(data_fraction=0.5)),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(stages.train_generator, "versions", lambda *names: dict.fromkeys(("fedsynth", *names), "9"))
        found.append(first_draws(client, noisy()))
    with monkeypatch.context() as patch:
        patch.setattr(stages.execution.torch_setup, "arithmetic", lambda device: ELSEWHERE)
        found.append(first_draws(client, noisy()))
    assert first_draws(client, noisy()) == found[0]
    words = [draws for each in found for draws in each.values()]
    assert len(set(words)) == 3 * len(found), "and the three purposes never share a stream"


@pytest.mark.parametrize("name", FAMILIES)
def test_killed_and_resumed_it_ends_with_the_same_bytes_and_is_charged_once(client, noisy, name, kinds_of):
    params = noisy(name)
    whole, out = client.with_name("whole.safetensors"), client.with_name("stopped.safetensors")
    with pytest.raises(Stopped):
        train(client, out, params, checkpoint_every=2, report=stop_at(3))
    assert kinds_of(client) == ["opened", "reserved"]
    assert train(client, out, params)["resumed_from"] == 2
    train(client, whole, params, checkpoint_every=0)
    assert out.read_bytes() == whole.read_bytes()
    assert kinds_of(client) == ["opened", "reserved", "released"]


@pytest.mark.parametrize("changed", ["key", "processor or device"])
def test_a_training_does_not_go_on_under_other_noise(client, noisy, monkeypatch, changed):
    """Half of it under one noise, half under another: a second result under the second noise."""
    out = client.with_name("stopped.safetensors")
    with pytest.raises(Stopped):
        train(client, out, noisy(), checkpoint_every=2, report=stop_at(3))
    if changed == "key":
        settle(client.with_name("client.key"), keys.generate(), force=True)
    else:
        monkeypatch.setattr(stages.execution.torch_setup, "arithmetic", lambda device: ELSEWHERE)
    with pytest.raises(InputError, match=f"with other {changed}"):
        train(client, out, noisy())
    assert train(client, out, noisy(), force=True)["resumed_from"] == 0
    fresh = client.with_name("fresh.safetensors")
    train(client, fresh, noisy())
    assert fresh.read_bytes() == out.read_bytes()


def test_generators_kept_on_the_way(client, noisy, ledger_of):
    out, params = client.with_name("generator.safetensors"), noisy("gan")
    train(client, out, params, keep_at=[2, 3])
    with pytest.raises(Stopped):
        train(client, client.with_name("again.safetensors"), params, checkpoint_every=2, report=stop_at(3))
    state = tensors_file.read(client.with_name("again.safetensors.checkpoint")).tensors
    kept = tensors_file.read(client.with_name("generator-00002.safetensors"), kind="generator")
    for name, tensor in kept.tensors.items():
        assert np.array_equal(tensor, state[f"average.{name}"]), "the longer training as it stood after two steps"
    events = [
        tensors_file.read(client.with_name(f"generator{suffix}.safetensors")).metadata.privacy[0]
        for suffix in ("-00002", "-00003", "")
    ]
    assert [event["steps"] for event in events] == [2, 3, 4]
    assert len({event["id"] for event in events}) == 3
    assert kept.metadata.params["steps"] == 2
    assert [entry.get("part") for entry in ledger_of(client)] == [None, None, "step 2", "step 3", "step 4"]
    shorter = client.with_name("shorter.safetensors")
    train(client, shorter, noisy("gan", steps=2))
    other = tensors_file.read(shorter).tensors
    assert all_differ(other, kept.tensors), "a shorter training has noise of its own"


@pytest.fixture
def unsteady(monkeypatch):
    """Arithmetic that gives other last bits each time, as some GPUs' does."""
    original, calls = clipping.clipped_sum, []

    def wrong(*arguments, **options):
        calls.append(1)
        return {n: t + 1e-3 * len(calls) for n, t in original(*arguments, **options).items()}

    return lambda: monkeypatch.setattr(clipping, "clipped_sum", wrong)


@pytest.mark.parametrize("first", [[], [2]])
def test_another_result_under_the_same_noise_is_destroyed(client, noisy, unsteady, first, kinds_of):
    out, again = client.with_name("generator.safetensors"), client.with_name("again.safetensors")
    train(client, out, noisy(), keep_at=first)
    before = set(client.parent.iterdir())
    unsteady()
    with pytest.raises(VerificationError, match="the same noise"):
        train(client, again, noisy(), keep_at=[2], checkpoint_every=1)
    assert set(client.parent.iterdir()) == before
    assert kinds_of(client).count("reserved") == 1


def test_no_data_is_data_too(tmp_path, digits, noisy, make_client):
    """Nobody can tell from a refusal that there are no records; what comes out is noise."""
    empty = make_client(tmp_path / "empty", digits.take(np.arange(0)))
    for name in FAMILIES:
        out = empty.with_name(f"{name}.safetensors")
        train(empty, out, noisy(name, steps=2))
        assert tensors_file.read(out).metadata.privacy[0]["steps"] == 2


def test_a_step_without_records_costs_and_releases_noise(client, noisy):
    """A rate at which nobody is ever drawn: the weights move all the same, by noise alone."""
    paths = [client.with_name(f"{steps}.safetensors") for steps in (1, 2)]
    for steps, path in zip((1, 2), paths, strict=True):
        train(client, path, noisy(sampling_rate=1e-9, steps=steps))
    first, second = (tensors_file.read(path) for path in paths)
    assert all_differ(first.tensors, second.tensors)
    assert second.metadata.privacy[0]["steps"] == 2


def test_what_sampling_needs_follows_from_the_weights_alone(client, noisy, monkeypatch):
    shown = []
    original = Vae.finished

    def finished(self, weights, images, labels):
        shown.append((len(images), len(labels)))
        return original(self, weights, images, labels)

    monkeypatch.setattr(Vae, "finished", finished)
    train(client, client.with_name("generator.safetensors"), noisy(), keep_at=[2])
    assert shown == [(0, 0), (0, 0)]


def test_a_record_counts_once(client, noisy, kinds_of):
    """The same file twice would be two rows for each record, and two clipped gradients at the price of one."""
    copy = client.with_name("copy.parquet")
    copy.write_bytes(client.read_bytes())
    out = client.with_name("generator.safetensors")
    for data in ([client, client], [client, copy]):
        with pytest.raises(UsageError, match="each record would count twice"):
            train_generator(data, out, params=noisy(), seed=3)
    assert kinds_of(client) == ["opened"]
    train_generator([client, copy], out, params=without_noise(noisy()), seed=3)


def test_images_made_from_records_are_no_records(client, noisy, fedsynth, fedsynth_json):
    """One record may be behind all images of a generator without noise: an ε for each image says nothing of it."""
    plain, made = client.with_name("plain.safetensors"), client.with_name("made.parquet")
    train(client, plain, without_noise(noisy()))
    fedsynth_json("synthesize", plain, "--count", 8, "-o", made)
    with pytest.raises(InputError, match="was made from records and holds none"):
        train(made, client.with_name("laundered.safetensors"), noisy())
    fedsynth_json("synthesize", plain, "--count", 8, "-o", client.parents[1] / "outbox/made.parquet")
    with pytest.raises(InputError, match="was made from records"):
        train(client.parents[1] / "outbox/made.parquet", client.with_name("laundered.safetensors"), noisy())
    noised = client.with_name("noised.safetensors")
    train(client, noised, noisy())
    fedsynth_json("synthesize", noised, "--count", 8, "-o", client.with_name("noised.parquet"))
    with pytest.raises(InputError, match="was made from records"):
        train(client.with_name("noised.parquet"), client.with_name("laundered.safetensors"), noisy())


def test_which_images_a_training_sees_is_secret():
    """The share ρ of the images is drawn under the key; by chance two keys draw the same with 2⁻²⁰⁰."""
    context = dict.fromkeys(CONTEXT, 0)
    drawn = [
        PrivateTraining(None, Spending(keys.Key(bytes([n]) * 32), Path("spend.jsonl"), context)).subset(
            np.arange(200), 0.5
        )
        for n in (1, 2)
    ]
    assert not np.array_equal(*drawn)
    assert all(40 < len(rows) < 160 for rows in drawn)
