"""`synthesize`: which images, of which classes, and what the file that leaves tells."""

import dataclasses
import io
import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from artifacts.digests import sha256_file
from artifacts.formats import dataset_file, tensors_file
from artifacts.identity import commitments, keys
from artifacts.ledgers import egress
from stages.data.dataset_images import load_dataset
from stages.methods.params.synthesis import Synthesis
from stages.synthesize import synthesize
from stages.train_generator import train_generator


@pytest.fixture
def private(trained, tmp_path):
    """A copy of client 00 with its three generators; returns its private folder."""
    shutil.copytree(trained.parent, tmp_path / "00")
    return tmp_path / "00" / "private"


@pytest.fixture
def outbox(private):
    return private.parent / "outbox"


def about(path):
    return json.loads(pq.read_schema(path).metadata[b"fedsynth"])


def test_a_file_that_leaves_opens_with_plain_pyarrow(fedsynth_json, private, outbox):
    out = outbox / "synthetic.parquet"
    summary = fedsynth_json("synthesize", private / "vae.safetensors", "--count", 12, "-o", out)
    assert (summary["images"], summary["custody"]) == (12, "outbound")
    table = pq.read_table(out)
    assert table.column_names == ["image", "label"]
    rows = table["image"].to_pylist()
    assert all(row["path"] is None for row in rows)
    pixels = [np.array(Image.open(io.BytesIO(row["bytes"]))) for row in rows]
    assert {(image.shape, str(image.dtype)) for image in pixels} == {((8, 8), "uint8")}
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["label"]["names"] == [str(n) for n in range(10)]


def test_what_leaves_is_declared_and_nothing_private_is_reported(fedsynth, private, outbox):
    out, generator = outbox / "synthetic.parquet", private / "ddpm.safetensors"
    code, _, err = fedsynth(
        "synthesize", generator, "--count", 9, "--sampling-steps", 2, "--seed", 771239051467, "-o", out
    )
    assert code == 0, err
    stated = about(out)
    assert stated["disclosures"] == ["class_counts", "class_set", "derived_images"]
    assert (stated["custody"], stated["client"], stated["method"], stated["simulation"]) == (
        "outbound",
        "00",
        "ddpm",
        True,
    )
    assert stated["params"].items() >= {"labels": "frequency", "sampler": "dpm-solver", "sampling_steps": 2}.items()
    text = json.dumps(stated)
    assert "seed" not in stated
    assert "771239051467" not in text
    assert "counts" not in stated
    assert sha256_file(generator) not in text
    assert str(private.parent) not in text
    (reference,) = dataset_file.read(out).metadata.inputs
    assert (reference.role, reference.kind, reference.sha256) == ("generator", "generator", None)
    assert commitments.opens(keys.read(private / "client.key"), reference, sha256_file(generator))
    (entry,) = egress.read(private.parent / "egress.jsonl").entries
    assert (entry.file, entry.kind, entry.sha256) == ("synthetic.parquet", "dataset", sha256_file(out))
    assert entry.disclosures == stated["disclosures"]


def test_the_audit_follows_it(fedsynth_json, private, outbox):
    fedsynth_json("synthesize", private / "gan.safetensors", "--count", 5, "-o", outbox / "synthetic.parquet")
    report = fedsynth_json("audit", private.parent)
    assert report["passed"], report["findings"]
    assert report["sent"][0]["epsilon"] == "inf"


def test_commitments_differ_from_file_to_file(fedsynth_json, private, outbox):
    seen = set()
    for seed in (0, 1):
        out = outbox / f"{seed}.parquet"
        fedsynth_json("synthesize", private / "gan.safetensors", "--count", 2, "--seed", seed, "-o", out)
        seen |= {about(out)["inputs"][0]["commitment"], about(out)["inputs"][0]["salt"]}
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("options", "labels", "disclosures"),
    [
        (["--count", 40], "frequency", ["class_counts", "class_set", "derived_images"]),
        (
            ["--count", 23, "--labels", "uniform"],
            [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9],
            ["class_set", "derived_images"],
        ),
        (["--labels", "given", "--label-list", "3,3,5"], [3, 3, 5], ["class_set", "derived_images"]),
        (["--labels", "given", "--label-list", "7:2,0", "--count", 3], [7, 7, 0], ["class_set", "derived_images"]),
    ],
)
def test_labels(fedsynth_json, private, outbox, options, labels, disclosures):
    out = outbox / "synthetic.parquet"
    summary = fedsynth_json("synthesize", private / "vae.safetensors", *options, "-o", out)
    found = pq.read_table(out)["label"].to_pylist()
    if labels == "frequency":
        # As many images as the generator saw: then the counts are those of its data, exactly.
        counts = tensors_file.read(private / "vae.safetensors").tensors["class_counts"]
        labels = np.repeat(np.arange(10), counts).tolist()
        assert set(labels) == set(range(5))
    assert found == labels
    assert summary["disclosures"] == about(out)["disclosures"] == disclosures


def test_a_private_file_tells_its_seed_and_leaves_no_trace_in_the_ledger(fedsynth_json, private):
    out = private / "synthetic.parquet"
    fedsynth_json("synthesize", private / "vae.safetensors", "--count", 3, "--seed", 5, "-o", out)
    stated = about(out)
    assert (stated["custody"], stated["seed"]) == ("private", 5)
    assert stated["inputs"][0]["sha256"] == sha256_file(private / "vae.safetensors")
    assert not (private.parent / "egress.jsonl").exists()


@pytest.mark.parametrize("family", ["ddpm", "vae", "gan"])
def test_same_seed_same_images_in_private_and_in_the_outbox(fedsynth_json, private, outbox, family):
    generator = private / f"{family}.safetensors"
    steps = ["--sampling-steps", 2] if family == "ddpm" else []
    for out, seed in ((private / "a.parquet", 1), (outbox / "b.parquet", 1), (private / "c.parquet", 2)):
        fedsynth_json("synthesize", generator, "--count", 6, *steps, "--seed", seed, "-o", out)
    a, b, c = (
        load_dataset(path).content.images
        for path in (private / "a.parquet", outbox / "b.parquet", private / "c.parquet")
    )
    assert (a == b).all()
    assert (a != c).any()
    assert len({image.tobytes() for image in a}) == 6  # fresh noise for every image


@pytest.mark.parametrize("sampler", ["ddpm", "ddim", "dpm-solver"])
def test_samplers(fedsynth_json, private, sampler):
    out = private / "synthetic.parquet"
    options = ["--count", 2, "--sampler", sampler, "--sampling-steps", 3]
    fedsynth_json("synthesize", private / "ddpm.safetensors", *options, "-o", out)
    assert (about(out)["params"]["sampler"], about(out)["params"]["sampling_steps"]) == (sampler, 3)


def test_dropped_images_are_left_out_and_never_named(fedsynth_json, private, outbox):
    generator = private / "vae.safetensors"
    fedsynth_json("synthesize", generator, "--count", 10, "-o", private / "all.parquet")
    summary = fedsynth_json(
        "synthesize",
        generator,
        "--count",
        10,
        "--drop",
        "3,7-8",
        "--sheet",
        private / "s.png",
        "-o",
        outbox / "some.parquet",
    )
    whole, picked = (load_dataset(p).content for p in (private / "all.parquet", outbox / "some.parquet"))
    kept = [0, 1, 2, 4, 5, 6, 9]
    assert (picked.images == whole.images[kept]).all()
    assert (picked.labels == whole.labels[kept]).all()
    assert summary["images"] == 7
    stated = about(outbox / "some.parquet")
    assert stated["params"]["picked"] is True
    assert "picked" not in about(private / "all.parquet")["params"]
    names = {"num_classes", "channels", "height", "width", "class_names", "labels", "picked"}
    assert stated["params"].keys() == names  # neither which, nor how many there were before


def test_the_sheet_is_a_picture_and_private(fedsynth, fedsynth_json, private, outbox):
    generator, sheet = private / "gan.safetensors", private / "sheet.png"
    summary = fedsynth_json("synthesize", generator, "--count", 4, "--sheet", sheet, "-o", private / "a.parquet")
    assert summary["sheets"] == [str(sheet)]
    with Image.open(sheet) as picture:
        assert picture.format == "PNG"
    code, _, err = fedsynth(
        "synthesize", generator, "--count", 4, "--sheet", outbox / "sheet.png", "-o", outbox / "b.parquet"
    )
    assert code == 2
    assert "may not be in an outbox" in err
    assert list(outbox.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--count", "0"], 2, "--count must be from 1"),
        ([], 2, "--count must be given"),
        (["--labels", "given", "--label-list", "3,11"], 2, "label 11 is out of range: there are 10 classes"),
        (["--labels", "given", "--label-list", "cow"], 2, "there is no class 'cow'; known: 0, 1"),
        (["--labels", "given", "--label-list", "1:0"], 2, "names no image"),
        (["--labels", "given", "--label-list", "1,2", "--count", "3"], 2, "--count 3 and --label-list of 2 differ"),
        (["--count", "3", "--label-list", "1"], 2, "--label-list must be given with --labels given, and only then"),
        (
            ["--count", "3", "--sampler", "ddim"],
            2,
            "--sampler goes with a generator that draws in several",
        ),
        (
            ["--count", "3", "--sampling-steps", "9"],
            2,
            "--sampling-steps goes with a generator that",
        ),
        (["--count", "3", "--drop", "3"], 2, "--drop 3: images are numbered from 0 to 2"),
        (["--count", "3", "--drop", "0-2"], 2, "--drop leaves no image"),
        (["--count", "3", "--drop", "one"], 2, "'one' is neither a number nor a range"),
        (["--count", "3", "--drop", "0-99999999999"], 2, "more than any file holds"),
        (["--count", "3", "--client", "01"], 3, "is the generator of client '00', not of '01'"),
        (["--count", "3", "--key", "nowhere.key"], 3, "no key at nowhere.key"),
    ],
)
def test_wrong_wishes(fedsynth, private, outbox, options, code, said):
    found, _, err = fedsynth("synthesize", private / "vae.safetensors", *options, "-o", outbox / "s.parquet")
    assert (found, said in err) == (code, True), err
    assert list(outbox.iterdir()) == []


def test_more_sampling_steps_than_the_diffusion_has(fedsynth, private):
    code, _, err = fedsynth(
        "synthesize", private / "ddpm.safetensors", "--count", 1, "--sampling-steps", 1001, "-o", private / "s.parquet"
    )
    assert code == 2
    assert "trained with 1000" in err


def rewritten(path, tensors=None, **params):
    """The generator with other tensors or parameters, sealed as a whole file."""
    found = tensors_file.read(path)
    metadata = dataclasses.replace(found.metadata, params={**found.metadata.params, **params})
    tensors_file.write(path, tensors or found.tensors, metadata, force=True)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"height": 16, "width": 16}, "does not fit the model"),
        ({"num_classes": 11}, "class_names must be 11 names"),
        ({"family": "flow"}, "does not describe a generator that fedsynth knows"),
        ({"height": 0}, "height must be a whole number of at least 1"),
        ({"latent_size": 3}, "does not fit the model"),
        ({"colour": "blue"}, "unknown parameter 'colour'"),
    ],
)
def test_a_generator_that_is_not_what_it_says(fedsynth, private, params, said):
    rewritten(private / "vae.safetensors", **params)
    code, _, err = fedsynth("synthesize", private / "vae.safetensors", "--count", 1, "-o", private / "s.parquet")
    assert (code, said in err) == (3, True), err


def test_a_unet_of_another_size_than_its_images(fedsynth, private):
    rewritten(private / "ddpm.safetensors", height=7)
    code, _, err = fedsynth("synthesize", private / "ddpm.safetensors", "--count", 1, "-o", private / "s.parquet")
    assert code == 3
    assert "describes a generator that cannot be built" in err


@pytest.mark.parametrize("counts", [None, [0] * 10, [1] * 9, [-1] + [1] * 9])
def test_class_counts_that_cannot_be(fedsynth, private, counts):
    path = private / "vae.safetensors"
    tensors = dict(tensors_file.read(path).tensors)
    tensors.pop("class_counts")
    if counts is not None:
        tensors["class_counts"] = np.array(counts)
    rewritten(path, tensors)
    code, _, err = fedsynth("synthesize", path, "--count", 1, "-o", private / "s.parquet")
    assert code == 3
    assert "class" in err


def test_other_files_are_no_generators(fedsynth, private, quick):
    code, _, _ = fedsynth("synthesize", private / "data.parquet", "--count", 1, "-o", private / "s.parquet")
    assert code == 3
    out = private / "unfinished.safetensors"

    def stop(done, total, text):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        params = quick("vae", steps=3)
        train_generator([private / "data.parquet"], out, params=params, seed=0, checkpoint_every=1, report=stop)
    checkpoint = out.with_name(out.name + ".checkpoint")
    code, _, err = fedsynth("synthesize", checkpoint, "--count", 1, "-o", private / "s.parquet")
    assert code == 3
    assert "checkpoint of an unfinished training" in err


def test_more_images_than_one_batch_and_progress(private):
    stated = []
    synthesize(
        private / "vae.safetensors", private / "s.parquet", params=Synthesis(family="vae", count=600), seed=0,
        report=lambda *call: stated.append(call[:2]),
    )  # fmt: skip
    assert stated == [(250, 600), (500, 600), (600, 600)]
    images = load_dataset(private / "s.parquet").content.images
    # Two of so plain ones may be rounded to the same; batches with the same codes would have 250.
    assert len({image.tobytes() for image in images}) > 550
