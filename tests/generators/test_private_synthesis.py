"""`synthesize` from a differentially private generator: the images inherit its events, and nothing else is told."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from artifacts.digests import sha256_file
from artifacts.formats import dataset_file, tensors_file
from artifacts.identity import keys
from artifacts.ledgers import egress
from stages.data.dataset_images import load_dataset
from stages.generators.file import CLASS_COUNTS
from stages.keygen import settle
from stages.privacy.accountant import epsilon, planned
from stages.train_generator import train_generator

FAMILIES = ["ddpm", "vae", "gan"]
NOISY = {"noise_multiplier": 1.0, "sampling_rate": 0.3, "steps": 2, "data_fraction": 1.0}
DELTA = 1e-5
QUICKLY = {"ddpm": ["--sampling-steps", 2], "vae": [], "gan": []}


@pytest.fixture(scope="module")
def noised(tmp_path_factory, digits, quick, make_client):
    """Client 00, who knows the classes 0 to 4 only, and a private generator of each family."""
    folder = tmp_path_factory.mktemp("noised")
    data = make_client(folder, digits.take(np.flatnonzero(digits.labels < 5)[:40]))
    for family in FAMILIES:
        train_generator([data], data.with_name(f"{family}.safetensors"), params=quick(family, **NOISY), seed=1)
    return data.parent


@pytest.fixture
def private(noised, tmp_path):
    shutil.copytree(noised.parent, tmp_path / "00")
    return tmp_path / "00" / "private"


@pytest.fixture
def outbox(private):
    return private.parent / "outbox"


def cost():
    event = planned(**{name: NOISY[name] for name in ("noise_multiplier", "sampling_rate", "steps")})
    return epsilon([event], delta=DELTA)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_images_inherit_the_events_and_tell_nothing_else(fedsynth_json, private, outbox, family):
    out, generator = outbox / "synthetic.parquet", private / f"{family}.safetensors"
    summary = fedsynth_json("synthesize", generator, "--count", 20, *QUICKLY[family], "--seed", 771239051467, "-o", out)
    source, found = tensors_file.read(generator), dataset_file.read(out)
    assert found.metadata.privacy == source.metadata.privacy
    assert len(found.metadata.privacy) == 1
    assert summary["disclosures"] == []
    assert (found.metadata.disclosures, found.metadata.counts, found.metadata.seed) == ((), {}, None)
    assert found.metadata.params["labels"] == "uniform"
    assert found.labels.tolist() == [n // 2 for n in range(20)], "over all classes, those never seen included"
    (reference,) = found.metadata.inputs
    assert reference.sha256 is None
    text = out.read_bytes()
    data = private / "data.parquet"
    for secret in ("771239051467", sha256_file(generator), sha256_file(data), source.payload_sha256, str(private)):
        assert secret.encode() not in text
    (entry,) = egress.read(private.parent / "egress.jsonl").entries
    assert (entry.privacy, entry.disclosures, entry.picked) == (list(found.metadata.privacy), [], False)


def test_what_it_costs_and_that_the_audit_passes(fedsynth_json, private, outbox):
    out = outbox / "synthetic.parquet"
    fedsynth_json("synthesize", private / "vae.safetensors", "--count", 20, "-o", out)
    for target in (out, private.parent):
        (row,) = fedsynth_json("account", target, "--delta", DELTA)["clients"]
        assert row["epsilon"] == {"pld": cost().pld, "rdp": cost().rdp}
        assert (row["unit"], row["trusted"], row["uncovered"], row["rest"]) == ("record", ["nobody"], [], None)
    report = fedsynth_json("audit", private.parent)
    assert report["passed"], report["findings"]
    # More images of the same generator cost nothing more.
    fedsynth_json("synthesize", private / "vae.safetensors", "--count", 30, "--seed", 2, "-o", outbox / "more.parquet")
    (row,) = fedsynth_json("account", private.parent, "--delta", DELTA)["clients"]
    assert (row["files"], row["epsilon"]["pld"]) == (2, cost().pld)
    before = (private / "spend.jsonl").read_bytes()
    assert [json.loads(line)["entry"] for line in before.splitlines()].count("reserved") == 3, "one for each generator"
    # Those of another generator do.
    fedsynth_json("synthesize", private / "gan.safetensors", "--count", 3, "-o", outbox / "other.parquet")
    (row,) = fedsynth_json("account", private.parent, "--delta", DELTA)["clients"]
    twice = planned(noise_multiplier=1.0, sampling_rate=0.3, steps=4)
    assert row["epsilon"]["rdp"] == epsilon([twice], delta=DELTA).rdp


def test_class_counts_are_nowhere(fedsynth, private, outbox):
    for family in FAMILIES:
        found = tensors_file.read(private / f"{family}.safetensors")
        assert CLASS_COUNTS not in found.tensors
        assert not found.metadata.counts
    out = outbox / "synthetic.parquet"
    code, _, err = fedsynth("synthesize", private / "vae.safetensors", "--count", 5, "--labels", "frequency", "-o", out)
    assert code == 2
    assert "--labels frequency is refused" in err
    assert not out.exists()
    assert not (private.parent / "egress.jsonl").exists()


def test_given_labels_stay_covered(fedsynth_json, private, outbox):
    options = ["--labels", "given", "--label-list", "7:3,0:1"]
    fedsynth_json("synthesize", private / "vae.safetensors", *options, "-o", outbox / "synthetic.parquet")
    found = dataset_file.read(outbox / "synthetic.parquet")
    assert found.labels.tolist() == [7, 7, 7, 0]
    assert found.metadata.disclosures == ()


def test_what_someone_picked_over_loses_its_epsilon(fedsynth_json, private, outbox):
    out = outbox / "synthetic.parquet"
    fedsynth_json("synthesize", private / "vae.safetensors", "--count", 20, "--drop", "4", "-o", out)
    found = dataset_file.read(out)
    assert found.metadata.disclosures == ("class_set", "derived_images")
    assert found.metadata.params["picked"] is True
    assert len(found.metadata.privacy) == 1, "the events stay: they are the rest"
    (entry,) = egress.read(private.parent / "egress.jsonl").entries
    assert (entry.picked, entry.disclosures) == (True, ["class_set", "derived_images"])
    for target in (out, private.parent):
        (row,) = fedsynth_json("account", target, "--delta", DELTA)["clients"]
        assert row["epsilon"] == {"pld": "inf", "rdp": "inf"}
        assert row["rest"] == {"pld": cost().pld, "rdp": cost().rdp}
    assert fedsynth_json("audit", private.parent)["passed"]


def images_of(fedsynth_json, generator, out, *options):
    fedsynth_json("synthesize", generator, "--count", 10, "-o", out, *options)
    return load_dataset(out).content.images


def rewritten(generator, path, **changes):
    """The same weights in a file that says something else about where they came from."""
    found = tensors_file.read(generator)
    tensors_file.write(path, dict(found.tensors), dataclasses.replace(found.metadata, **changes))
    return path


def test_the_noise_of_the_images_comes_from_the_key(fedsynth_json, private):
    """Its seeds pass through the key: the file's digest, which depends on more than the weights, is not enough."""
    generator = private / "vae.safetensors"
    first = images_of(fedsynth_json, generator, private / "a.parquet")
    assert np.array_equal(first, images_of(fedsynth_json, generator, private / "b.parquet"))
    settle(private / "client.key", keys.generate(), force=True)
    other = images_of(fedsynth_json, generator, private / "c.parquet")
    assert not np.array_equal(first, other)


def test_seeds_never_follow_from_the_file_alone(fedsynth_json, private, monkeypatch):
    """Two generators of equal weights from data of different digests: under DP both names are hidden by the key."""
    import stages.synthesize as stage

    generator, named = private / "vae.safetensors", []
    original = stage.stream_seed

    def watched(seed, *, stage, client, of):
        named.append(of)
        return original(seed, stage=stage, client=client, of=of)

    monkeypatch.setattr(stage, "stream_seed", watched)
    source = tensors_file.read(generator)
    (reference,) = source.metadata.inputs
    other = dataclasses.replace(reference, sha256="ab" * 32)
    twin = rewritten(generator, private / "twin.safetensors", inputs=(other,))
    for number, path in enumerate((generator, twin)):
        images_of(fedsynth_json, path, private / f"{number}.parquet")
        assert sha256_file(path) not in named[-1]
        assert source.payload_sha256 not in named[-1]
    assert len(set(named)) == 2
    # A simulation's key is what the simulation derives: only with it can the names be computed.
    key = keys.read(private / "client.key")
    wanted = [key.derive(f"synthesize {sha256_file(path)}").hex() for path in (generator, twin)]
    assert [name.split()[-1] for name in named] == wanted


def test_images_follow_from_weights_labels_and_seeds_alone(fedsynth_json, private, monkeypatch):
    """With the same seeds, nothing else that the generator's file says changes a pixel."""
    import stages.synthesize as stage

    monkeypatch.setattr(stage, "_seeds", lambda *_: lambda number: number)
    generator = private / "gan.safetensors"
    found = tensors_file.read(generator).metadata
    twin = rewritten(
        generator,
        private / "twin.safetensors",
        inputs=(dataclasses.replace(found.inputs[0], sha256="cd" * 32),),
        seed=99,
        privacy=(dict(found.privacy[0]) | {"id": "e" * 64},),
    )
    pixels = [images_of(fedsynth_json, path, private / f"{path.stem}.parquet") for path in (generator, twin)]
    assert np.array_equal(*pixels)


def test_a_key_is_needed_even_to_look(fedsynth, private):
    (private / "client.key").unlink()
    code, _, err = fedsynth("synthesize", private / "vae.safetensors", "--count", 3, "-o", private / "s.parquet")
    assert code == 3
    assert "no key at" in err


def test_noise_of_a_simulation_stays_one(fedsynth_json, private, outbox):
    """The generator's noise came from a key that follows from a seed; a real key for the images does not mend that."""
    settle(private / "client.key", keys.generate(), force=True)
    fedsynth_json("synthesize", private / "vae.safetensors", "--count", 3, "-o", outbox / "synthetic.parquet")
    assert dataset_file.read(outbox / "synthetic.parquet").metadata.simulation


def test_a_generator_without_noise_is_as_it_was(fedsynth_json, trained, tmp_path):
    shutil.copytree(trained.parent, tmp_path / "00")
    private = tmp_path / "00" / "private"
    assert not tensors_file.read(private / "vae.safetensors").metadata.simulation
    out = private.parent / "outbox" / "synthetic.parquet"
    fedsynth_json("synthesize", private / "vae.safetensors", "--count", 10, "-o", out)
    found = dataset_file.read(out)
    assert (found.metadata.privacy, found.metadata.params["labels"]) == ((), "frequency")
    assert found.metadata.disclosures == ("class_counts", "class_set", "derived_images")
    (row,) = fedsynth_json("account", out, "--delta", DELTA)["clients"]
    assert (row["epsilon"]["pld"], row["rest"]) == ("inf", None)
    assert [json.loads(line)["entry"] for line in (private / "spend.jsonl").read_text().splitlines()] == ["opened"]
    # Into private/ it needs no key, and draws the same images with any.
    pixels = load_dataset(out).content.images
    (private / "client.key").unlink()
    assert np.array_equal(pixels, images_of(fedsynth_json, private / "vae.safetensors", private / "again.parquet"))
