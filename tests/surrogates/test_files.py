"""What a set without noise says when it leaves, what its client can replay, and what the audit makes of it."""

import json

import numpy as np
import pytest

from artifacts.digests import sha256_file
from artifacts.errors import InputError, UsageError
from artifacts.formats import tensors_file
from artifacts.identity import commitments, keys
from stages.audit import audit
from stages.data.images import to_pixels

METHODS = ["fedlap", "feddm"]
ALWAYS = {"fedlap": {"derived_images", "class_set", "radius"}, "feddm": {"derived_images", "class_set"}}
FIELDS = {
    "schema", "kind", "stage", "method", "custody", "client", "round", "params", "inputs", "privacy", "disclosures",
    "simulation", "versions", "arithmetic", "payload_sha256", "seal_sha256",
}  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_a_set_holds_what_it_may_and_nothing_else(federation, method, read, forge):
    data = federation.client("00")
    path = federation.encode("00", method)
    found, (table, fields, _) = read(path), forge.take_apart(path.read_bytes())
    assert set(found.tensors) == {"images", "labels"} | ({"radius"} if method == "fedlap" else set())
    assert set(table) == set(found.tensors) | {"__metadata__"}
    assert set(fields) == FIELDS, "no counts, no seed"
    assert found.tensors["labels"].tolist() == [0, 0, 1, 1]
    assert found.tensors["images"].shape == (4, 1, 8, 8) and found.tensors["images"].dtype == np.float32
    assert fields["inputs"][0] == {"role": "model", "kind": "model", "sha256": sha256_file(federation.model)}
    assert set(fields["inputs"][1]) == {"role", "kind", "commitment", "salt"}
    raw = path.read_bytes()
    for secret in (sha256_file(data), sha256_file(data)[:16], keys.read(data.with_name("client.key")).secret.hex()):
        assert secret.encode() not in raw
    assert commitments.opens(keys.read(data.with_name("client.key")), found.metadata.inputs[1], sha256_file(data))
    assert found.metadata.privacy == ()


@pytest.mark.parametrize(
    ("method", "given", "more"),
    [
        ("fedlap", {}, set()),
        ("feddm", {}, set()),
        ("fedlap", {"classes": "all"}, set()),
        ("feddm", {"classes": "0,1"}, set()),
        ("fedlap", {"init": "real"}, {"real_image_init"}),
        ("feddm", {"init": "real"}, {"real_image_init"}),
        ("fedlap", {"tell_examples": True}, {"num_examples"}),
        ("fedlap", {"calibrate": True}, {"layer_norms"}),
    ],
)
def test_what_is_reported_is_declared(federation, method, given, more, read):
    found = read(federation.encode("00", method, **given))
    assert set(found.metadata.disclosures) == ALWAYS[method] | more
    assert dict(found.metadata.counts) == ({"num_examples": 24} if "num_examples" in more else {})
    assert ("norms" in found.tensors) == ("layer_norms" in more)
    assert set(found.tensors["labels"].tolist()) == (set(range(10)) if given.get("classes") == "all" else {0, 1})


@pytest.mark.parametrize("method", METHODS)
def test_the_key_and_the_inputs_alone_give_the_bytes_again(federation, method):
    options = {"batch_size": 4}  # with batches that are drawn
    first = federation.encode("00", method, **options).read_bytes()
    assert federation.encode("00", method, **options).read_bytes() == first
    federation.client("01")
    other = tensors_file.read(federation.encode("01", method, **options)).tensors["images"]
    assert not np.array_equal(other, tensors_file.read(federation.surrogate("00", 1)).tensors["images"])


def test_commitments_to_the_same_data_differ_from_file_to_file(federation, read, tmp_path):
    """Two models of one round, the same parameters and data: nobody is to see that the data did not change."""
    from stages.init_model import init_model
    from stages.registry import NETWORKS

    other = federation.root / "public/model-0000b.safetensors"
    init_model(
        federation.root / "public/some.parquet", other, params=NETWORKS.from_mapping({"arch": "softmax"}), seed=2
    )
    out = federation.root / "clients/00/outbox"
    federation.client("00")
    found = [
        read(federation.encode("00", model=model, out=out / f"{n}.safetensors", **more)).metadata.inputs[1]
        for n, (model, more) in enumerate(
            [(federation.model, {}), (other, {}), (federation.model, {"image_rate": 0.5})]
        )
    ]
    assert len({reference.commitment for reference in found}) == len({r.salt for r in found}) == 3


def test_what_was_measured_stays_private(federation, tmp_path):
    data = federation.client("00")
    metrics = data.with_name("matching.json")
    path = federation.encode("00", metrics=metrics)
    stated = json.loads(metrics.read_text())
    assert (stated["custody"], stated["client"], stated["round"]) == ("private", "00", 1)
    assert len(stated["matching_loss"]) == 2 and len(stated["curve"]) <= 4
    assert stated["radius"] == pytest.approx(float(tensors_file.read(path).tensors["radius"]))
    for folder in ("outbox", "public", "metrics"):
        with pytest.raises((UsageError, InputError)):
            federation.encode("00", metrics=federation.root / folder / "matching.json")


def test_the_servers_account_of_the_round_stays_with_it(federation):
    made = federation.encode("00")
    for folder in ("server/outbox", "public", "metrics"):
        with pytest.raises((UsageError, InputError)):
            federation.aggregate([made], metrics=federation.root / folder / "descent.json")
    metrics = federation.root / "server/private/descent.json"
    model = federation.aggregate([made], metrics=metrics).path
    about = tensors_file.read(model).metadata
    assert [reference.role for reference in about.inputs] == ["model"], "who took part is not said"
    assert set(about.disclosures) == {"derived_images", "class_set"}
    assert json.loads(metrics.read_text())["radii"].keys() == {"00"}


@pytest.mark.parametrize("method", METHODS)
def test_images_begin_as_they_were_asked_to(federation, method, read, digits):
    """With steps so small that nothing moves: Gaussian noise, real images, the set before."""
    still = {"image_rate": 1e-30}
    noise = read(federation.encode("00", method, images_per_class=150, **still)).tensors["images"]
    # Of 19,200 numbers: seven standard deviations of their mean, 4e-12 by chance.
    assert abs(noise.mean()) < 0.05 and abs(noise.std() - 1) < 0.05
    real = read(federation.encode("00", method, init="real", **still))
    mine = to_pixels(digits.images[np.flatnonzero(np.isin(digits.labels, (0, 1)))[:24]])
    for image, label in zip(real.tensors["images"], real.tensors["labels"], strict=True):
        same = np.flatnonzero([np.allclose(image, one, atol=1e-6) for one in mine])
        assert len(same) >= 1
        assert digits.labels[np.flatnonzero(np.isin(digits.labels, (0, 1)))[same[0]]] == label
    first = federation.encode("00", method)
    model = federation.aggregate([first], method).path
    options = {"model": model, "init": "previous", "previous": first, **still}
    again = read(federation.encode("00", method, **options, classes="0,1"))
    before = read(first).tensors["images"]
    assert np.array_equal(again.tensors["images"], before)
    if method == "fedlap":  # FedDM has nothing to match a class by that its client does not have
        wider = read(federation.encode("00", method, **options, classes="0,1,2"))
        assert np.array_equal(wider.tensors["images"][:4], before)
    assert set(again.metadata.disclosures) == ALWAYS[method]
    altered = federation.encode("00", method, init="real", **still)
    stated = read(federation.encode("00", method, **options | {"previous": altered})).metadata.disclosures
    assert "real_image_init" in stated, "what the set before disclosed, this one declares too"


def test_the_set_before_must_fit(federation, read, make_federation, tmp_path):
    first = federation.encode("00")
    model = federation.aggregate([first]).path
    options = {"model": model, "init": "previous"}
    federation.client("01")
    with pytest.raises(InputError, match="a set of client '00', not of '01'"):
        federation.encode("01", previous=first, **options)
    with pytest.raises(InputError, match="is of round 1, but round 1 is being encoded"):
        federation.encode("00", previous=first, init="previous", out=first.with_name("again.safetensors"))
    with pytest.raises(InputError, match="has 2 images of class 0, but --images-per-class is 3"):
        federation.encode("00", previous=first, images_per_class=3, **options)
    with pytest.raises(UsageError, match="--previous goes with --init previous"):
        federation.encode("00", previous=first, model=model)


# The audit.


def failures(folder):
    return {(f.check, f.where.rsplit("/", 1)[-1]) for f in audit(folder).findings if f.level == "failure"}


@pytest.mark.parametrize("method", METHODS)
def test_the_audit_follows_a_set_to_the_one_before(federation, method, read):
    first = {name: federation.encode(name, method) for name in ("00", "01")}
    model = federation.aggregate(list(first.values()), method).path
    options = {"model": model, "init": "previous"}
    second = federation.encode("00", method, previous=first["00"], **options)
    assert audit(federation.root).passed, failures(federation.root)
    assert audit(federation.root / "clients/00").passed
    found = read(second)
    foreign = tensors_file.read(first["01"]).sha256
    inputs = tuple(
        type(r)(role=r.role, kind=r.kind, sha256=foreign) if r.role == "previous" else r for r in found.metadata.inputs
    )
    about = {**found.metadata.__dict__, "inputs": inputs}
    tensors_file.write(second, found.tensors, type(found.metadata)(**about), force=True)
    for folder in (federation.root, federation.root / "clients/00"):
        assert failures(folder) == {("lineage", second.name)}
