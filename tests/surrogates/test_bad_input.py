"""Bad sets and bad wishes on the command line: an exit code, a line that says why, and nothing written."""

import json

import numpy as np
import pytest

from artifacts.formats import tensors_file
from artifacts.identity import keys
from stages.keygen import settle

ENCODE = {
    "fedlap": ["--method", "fedlap", "--images-per-class", 2, "--points", 1, "--batches", 1, "--image-steps", 1,
               "--radius-steps", 2],
    "feddm": ["--method", "feddm", "--images-per-class", 2, "--iterations", 1],
}  # fmt: skip
SERVER = ["--rule", "fedlap", "--server-steps", 2, "--images-per-class", 2]


# The client.


@pytest.mark.parametrize(
    ("method", "options", "code", "said"),
    [
        ("fedlap", ["--radius", 0], 2, "--radius must be above 0, found 0.0"),
        ("fedlap", ["--radius", "nan"], 2, "--radius must be of type float"),
        ("fedlap", ["--images-per-class", 0], 2, "--images-per-class must be from 1 to"),
        ("fedlap", ["--images-per-class", 10**12], 2, "--images-per-class must be from 1 to"),
        ("fedlap", ["--rho", 1], 2, "--rho goes with --method feddm; found --method fedlap"),
        ("feddm", ["--radius", 1], 2, "--radius goes with --method fedlap; found --method feddm"),
        ("feddm", ["--learning-rate", 1], 2, "--learning-rate goes with --method fedlap; found --method feddm"),
        ("fedlap", ["--sparsify", "moved-k"], 2, "--sparsify goes with --method"),
        ("fedlap", ["--augment", "flip,sharpen"], 2, "--augment must be a list of colour"),
        ("fedlap", ["--mse-weight", 1, "--distance", "mse"], 2, "--mse-weight goes with"),
        ("fedlap", ["--lr-schedule", "cosine"], 2, "--schedule-rounds must be given with"),
        ("feddm", ["--rho", -1], 2, "--rho must be above 0"),
        ("feddm", ["--iterations", 0], 2, "--iterations 0 leaves the images as they began"),
        ("feddm", ["--count-share", 0.5], 2, "--count-share goes with"),
        ("fedlap", ["--init", "real", "--images-per-class", 20], 3, "images of class 0, but --init real wants 20"),
        ("fedlap", ["--least-images", 13], 3, "has no class with 13 images or more: 12 are the most"),
        ("fedlap", ["--least-images", 2, "--classes", "all"], 2, "--least-images goes with --classes own"),
        ("fedlap", ["--match", "class", "--classes", "all"], 3, "has no image of class 2"),
        ("fedlap", ["--classes", "cat"], 2, "there is no class 'cat'"),
        ("fedlap", ["--image-rate", 1e38, "--distance", "mse", "--image-steps", 3], 3, "matching diverged"),
        ("feddm", ["--image-rate", 1e9, "--iterations", 3], 3, "matching diverged: pixels grew to"),
        ("feddm", ["--classes", "0,7"], 3, "has no image of class 7, to be matched by feddm"),
        ("feddm", ["--tell-examples"], 2, "--tell-examples must be given with fedlap only"),
        ("fedlap", ["--before", "x"], 2, "--before does not go with --method fedlap"),
        ("feddm", ["--init", "real", "--noise-multiplier", 1, "--sampling-rate", 0.1], 2, "--init real would send"),
    ],
)
def test_wrong_wishes_of_a_client(federation, refused, method, options, code, said):
    data = federation.client("00")
    out = federation.surrogate("00", 1)
    refused(
        federation.root, "encode", federation.model, data, *ENCODE[method], *options, "-o", out, code=code, said=said
    )


def test_without_a_method_its_flags_are_named(federation, refused):
    data, out = federation.client("00"), federation.surrogate("00", 1)
    said = "--rho goes with --method feddm; found --method delta"
    refused(federation.root, "encode", federation.model, data, "--rho", 1, "-o", out, code=2, said=said)


def test_one_class_is_enough_and_none_is_not(federation, fedsynth_json, refused):
    for method in ENCODE:
        data, out = federation.client("01", classes=(4,)), federation.surrogate("01", 1)
        summary = fedsynth_json("encode", federation.model, data, *ENCODE[method], "--force", "-o", out)
        assert summary["images"] == 2
        none = federation.write(data.with_name("none.parquet"), federation.digits.take(np.arange(0)), client="01")
        out = federation.surrogate("01", 2)
        words = ["encode", federation.model, none, *ENCODE[method], "-o", out]
        refused(federation.root, *words, code=3, said="holds no images")


@pytest.mark.parametrize("method", ENCODE)
def test_a_class_with_hardly_any_images_can_be_left_out(federation, fedsynth, fedsynth_json, method):
    rows = [*np.flatnonzero(federation.digits.labels == 3)[:2], *np.flatnonzero(federation.digits.labels == 5)[:1]]
    private, out = federation.client("01"), federation.surrogate("01", 1)
    data = federation.write(private.with_name("few.parquet"), federation.digits.take(np.array(rows)), client="01")
    words = ["encode", federation.model, data, *ENCODE[method], "--init", "real", "-o", out]
    code, _, err = fedsynth(*words)
    assert code == 3 and "1 images of class 5, but --init real wants 2" in err
    assert fedsynth_json(*words, "--least-images", 2)["images"] == 2
    assert set(tensors_file.read(out).tensors["labels"].tolist()) == {3}


def test_real_images_are_sent_in_a_simulation_only(federation, fedsynth_json, refused):
    words = [*ENCODE["feddm"], "--init", "real", "--iterations", 0]
    data, out = federation.client("00"), federation.surrogate("00", 1)
    summary = fedsynth_json("encode", federation.model, data, *words, "-o", out)
    assert "real_image_init" in summary["disclosures"]
    out.unlink()
    data.with_name("spend.jsonl").unlink()
    settle(data.with_name("client.key"), keys.generate(), force=True)
    said = "this client's key is a real one"
    refused(federation.root, "encode", federation.model, data, *words, "-o", out, code=2, said=said)


def test_a_private_model_has_no_name_outside(federation, refused):
    found = tensors_file.read(federation.model)
    about = type(found.metadata)(**{**found.metadata.__dict__, "custody": "private"})
    data, out = federation.client("00"), federation.surrogate("00", 1)
    model = data.with_name("model.safetensors")
    tensors_file.write(model, found.tensors, about)
    words = ["encode", model, data, *ENCODE["fedlap"], "-o", out]
    refused(federation.root, *words, code=3, said="would tell its digest")


# The server.


@pytest.fixture(scope="module")
def base(make_federation, tmp_path_factory):
    """Two clients' sets of round 1."""
    made = make_federation(tmp_path_factory.mktemp("base"))
    made.good = [made.encode(name) for name in ("00", "01")]
    made.other = made.encode("02", "feddm")
    return made


def changed(path, out, tensors=None, **about):
    """The set again, valid in itself, with other contents: what a dishonest client could send."""
    found = tensors_file.read(path)
    metadata = type(found.metadata)(**{**found.metadata.__dict__, "client": "09", **about})
    out.parent.mkdir(parents=True, exist_ok=True)
    tensors_file.write(out, {**found.tensors, **(tensors or {})}, metadata)
    return out


def labels(*values):
    return {"labels": np.array(values, np.int64)}


def images(value, count=4):
    made = np.zeros((count, 1, 8, 8), np.float32)
    made[0, 0, 3, 3] = value
    return {"images": made}


NO_MODEL = {"inputs": ()}
BAD = {
    "pixels": (images(2e4), {}, "has pixels of up to 20000, beyond 10000"),
    "label": (labels(0, 1, 2, 10), {}, "has labels from 0 to 10 for 10 classes"),
    "negative label": (labels(0, 1, 2, -1), {}, "has labels from -1 to 2 for 10 classes"),
    "round": ({}, {"round": 3}, "is of round 3, but"),
    "model": ({}, NO_MODEL, "is for another model"),
    "method": ({}, {"method": "feddm"}, "its method is 'feddm', but its parameters are those of another"),
    "radius 0": ({"radius": np.array(0.0, np.float32)}, {}, "has the radius 0: it stands in for nothing"),
    "radius −1": ({"radius": np.array(-1.0, np.float32)}, {}, "has the radius -1"),
    "shape": ({"images": np.zeros((4, 1, 9, 8), np.float32)}, {}, "its images are [1, 9, 8], the model takes [1, 8,"),
    "empty": ({"images": np.zeros((0, 1, 8, 8), np.float32)} | labels(), {}, "holds no images"),
    "too many": (
        {"images": np.zeros((2000, 1, 8, 8), np.float32), "labels": np.zeros(2000, np.int64)}, {},
        "holds 2,000 images; agreed are 2 for each of 10 classes",
    ),
    "too many of a class": (labels(0, 0, 0, 1), {}, "holds 3 images of class 0; agreed are 2 for each class"),
    "too many norms": ({"norms": np.ones(1000, np.float32)}, {}, "brings 1,000 layer norms for a model of 4 tensors"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_one_bad_set_is_left_out_and_named(base, tmp_path, fedsynth, refused, name):
    tensors, about, said = BAD[name]
    bad = changed(base.good[1], tmp_path / "09/outbox/bad.safetensors", tensors, **about)
    out = tmp_path / "model.safetensors"
    words = ["aggregate", base.model, base.good[0], bad, *SERVER, "-o", out]
    refused(tmp_path, *words, "--strict", code=3, said=said)
    code, text, err = fedsynth(*words, "--json")
    assert code == 0, err
    assert said in err and str(bad) in err, "a warning"
    summary = json.loads(text)
    assert summary["messages"] == 1 and said in summary["left_out"][0]
    assert [r.role for r in tensors_file.read(out).metadata.inputs] == ["model", "surrogate"]
    alone = ["aggregate", base.model, bad, *SERVER, "-o", tmp_path / "none.safetensors"]
    refused(tmp_path, *alone, code=3, said="not one of the 1 surrogates can be used")


@pytest.mark.parametrize("damage", ["cut short", "a flipped bit", "no file", "a folder", "another kind"])
def test_a_file_that_is_no_set_does_not_stop_the_others(base, tmp_path, fedsynth, refused, damage):
    bad, whole = tmp_path / "bad.safetensors", base.good[1].read_bytes()
    if damage == "a folder":
        bad.mkdir()
    elif damage != "no file":
        flipped = whole[:-1] + bytes([whole[-1] ^ 1])
        found = {"cut short": whole[:-9], "a flipped bit": flipped, "another kind": base.model.read_bytes()}
        bad.write_bytes(found[damage])
    words = ["aggregate", base.model, base.good[0], bad, *SERVER, "-o", tmp_path / "model.safetensors"]
    refused(tmp_path, *words, "--strict", code=3, said=str(bad))
    code, text, err = fedsynth(*words, "--json")
    assert code == 0 and str(bad) in err, err
    assert json.loads(text)["messages"] == 1


@pytest.mark.parametrize("name", ["too many", "too many norms"])
def test_a_set_that_is_too_large_is_refused_by_its_header(base, tmp_path, monkeypatch, fedsynth, name):
    bad = changed(base.good[1], tmp_path / "09/outbox/bad.safetensors", BAD[name][0])
    whole, opened = tensors_file.read, []
    monkeypatch.setattr(tensors_file, "read", lambda path, **kind: opened.append(path) or whole(path, **kind))
    code, _, _ = fedsynth("aggregate", base.model, base.good[0], bad, *SERVER, "-o", tmp_path / "model.safetensors")
    assert (code, bad in opened, base.good[0] in opened) == (0, False, True)


@pytest.mark.parametrize(("tensor", "value"), [("radius", np.nan), ("images", np.inf), ("radius", np.inf)])
def test_numbers_that_are_none_cannot_occur(base, tmp_path, forge, refused, tensor, value, monkeypatch):
    """A writer refuses them, and so does the reader of a file that was made without one."""
    found = tensors_file.read(base.good[1])
    wrong = np.array(found.tensors[tensor])
    wrong[...] = value
    with pytest.raises(ValueError, match="NaN or infinity"):
        changed(base.good[1], tmp_path / "09/outbox/never.safetensors", {tensor: wrong})
    with monkeypatch.context() as patch:
        patch.setattr(tensors_file, "check_finite", forge.no_check)
        bad = changed(base.good[1], tmp_path / "09/outbox/bad.safetensors", {tensor: wrong})
    words = ["aggregate", base.model, bad, *SERVER, "-o", tmp_path / "model.safetensors"]
    refused(tmp_path, *words, code=3, said="holds NaN or infinity")


def test_a_client_counts_once(base, tmp_path, refused):
    twin = changed(base.good[0], tmp_path / "09/outbox/twin.safetensors", client="00")
    words = ["aggregate", base.model, base.good[0], twin, *SERVER, "--strict", "-o", tmp_path / "model.safetensors"]
    refused(tmp_path, *words, code=3, said="are both from client '00': a client counts once")


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--rule", "fedlap", "--radius", 0], 2, "--radius must be above 0"),
        (["--rule", "fedlap", "--rho", 1], 2, "--rho goes with --rule feddm; found --rule fedlap"),
        (["--rule", "feddm", "--strategy", "max"], 2, "--strategy goes with --rule fedlap; found --rule feddm"),
        (["--rule", "fedlap", "--strategy", "fixed", "--radius", 1], 2, "--radius goes with --strategy"),
        (["--rule", "fedlap", "--weights", "examples"], 3, "does not declare its num_examples"),
        (["--rule", "fedlap", "--calibrated"], 3, "brings none of the 4 layer norms"),
        (["--rule", "feddm"], 3, "is a surrogate of fedlap; this is --rule feddm"),
        (["--rule", "fedlap", "--as", "update"], 2, "--as update does not go with --rule fedlap"),
        (["--rule", "fedlap", "--state", "x"], 2, "--state does not go with --rule fedlap"),
        (["--strict"], 2, "--strict does not go with --rule"),
        ([], 3, "is needed. Give --rule fedlap."),
        (["--rule", "fedlap", "--strategy", "fixed", "--server-steps", 9, "--learning-rate", 1e38], 3, "diverged"),
    ],
)
def test_wrong_wishes_of_the_server(base, tmp_path, refused, options, code, said):
    words = ["aggregate", base.model, *base.good, *options, "-o", tmp_path / "model.safetensors"]
    refused(tmp_path, *words, code=code, said=said)


def test_a_set_that_was_matched_in_a_smaller_ball_is_left_out(base, tmp_path, refused, fedsynth):
    """The server would walk where nobody looked."""
    words = ["aggregate", base.model, base.other, "--rule", "feddm", "--server-epochs", 1]
    refused(tmp_path, *words, "--rho", 6, "-o", tmp_path / "far.safetensors", code=3, said="was matched within ρ = 5")
    found = tensors_file.read(base.other).metadata.params
    for rho in (None, "wide"):
        said = {**found, "rho": rho} if rho else {name: value for name, value in found.items() if name != "rho"}
        odd = changed(base.other, tmp_path / f"{rho}/outbox/odd.safetensors", params=said)
        out = tmp_path / "odd.safetensors"
        refused(
            tmp_path,
            "aggregate",
            base.model,
            odd,
            *words[3:],
            "-o",
            out,
            code=3,
            said="--rho must be" if rho else "it does not say 'rho'",
        )
    code, _, err = fedsynth(*words, "--rho", 4, "-o", tmp_path / "near.safetensors")
    assert code == 0, err


def test_nothing_to_aggregate_and_a_set_of_another_model(base, tmp_path, refused, make_federation):
    out = tmp_path / "model.safetensors"
    refused(tmp_path, "aggregate", base.model, *SERVER, "-o", out, code=2, said="needs at least one surrogate")
    stranger = make_federation(tmp_path / "elsewhere", width=9).encode("00")
    refused(tmp_path, "aggregate", base.model, stranger, *SERVER, "-o", out, code=3, said="is for another model")
    no_radius = make_federation(tmp_path / "noised").noisy("00")
    words = ["aggregate", base.model, no_radius, *SERVER, "-o", out]
    refused(tmp_path, *words, code=3, said="brings no radius: give the agreed one with --radius")


@pytest.mark.parametrize("rule", ["fedlap", "feddm"])
def test_huge_pixels_that_are_allowed_do_no_harm(base, tmp_path, fedsynth, rule):
    """All pixels as large as they may be: the model stays in its radius, and is made of numbers."""
    source = base.good[1] if rule == "fedlap" else base.other
    bad = changed(source, tmp_path / "09/outbox/bad.safetensors", {"images": np.full((4, 1, 8, 8), 1e4, np.float32)})
    steps = ["--server-steps", 9] if rule == "fedlap" else ["--server-epochs", 2]
    out, good = tmp_path / "model.safetensors", base.good[0] if rule == "fedlap" else base.other
    code, _, err = fedsynth("aggregate", base.model, good, bad, "--rule", rule, *steps, "-o", out)
    assert code == 0, err
    start, end = (tensors_file.read(path).tensors for path in (base.model, out))
    away = np.sqrt(sum(np.sum((end[n].astype(np.float64) - start[n]) ** 2) for n in start))
    assert away <= 10
