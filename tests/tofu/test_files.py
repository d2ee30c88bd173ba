"""TOFU over files: one round both ways, what is in the proxies, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

import stages.proxies.encoder as encode_proxy
from artifacts.errors import InputError
from artifacts.formats import tensors_file
from fedsynth_cli.app import run as run_command_line
from stages.proxies.file import seen_averages, sent_averages

TINY = ["--method", "tofu", "--images", "4", "--iterations", "5", "--least-cosine", "0", "--quiet"]


@pytest.fixture(scope="module")
def round_one(tmp_path_factory):
    """Two clients with their updates and proxies, and the server's."""
    run = tmp_path_factory.mktemp("tofu") / "run"

    def call(*words):
        assert run_command_line([str(word) for word in words]) == 0

    call("partition", "digits", "--clients", 2, "-o", run, "-q")
    model = run / "public/model-0000.safetensors"
    call("init-model", "--arch", "mlp", "--width", 8, "--like", run / "public/test.parquet", "-o", model, "-q")
    for client in ("00", "01"):
        place = run / "clients" / client
        call("train-client", model, place / "private/data.parquet", "--local-steps", 3, "-q",
             "-o", place / "private/update-0001.safetensors")  # fmt: skip
        call("encode", model, place / "private/update-0001.safetensors", *TINY,
             "-o", place / "outbox/proxy-0001.safetensors")  # fmt: skip
    server = run / "server"
    proxies = [run / "clients" / client / "outbox/proxy-0001.safetensors" for client in ("00", "01")]
    call("aggregate", model, *proxies, "--as", "update", "-q", "-o", server / "private/update-0001.safetensors")
    call("encode", model, server / "private/update-0001.safetensors", *TINY, "-o",
         server / "outbox/proxy-0001.safetensors")  # fmt: skip
    return run


def paths(run):
    return run / "public/model-0000.safetensors", run / "clients/00", run / "server/outbox/proxy-0001.safetensors"


def test_everybody_who_follows_the_server_holds_the_same_bytes(fedsynth, round_one):
    model, _, proxy = paths(round_one)
    made = [round_one / where / "private/model-0001.safetensors" for where in ("server", "clients/00", "clients/01")]
    for path in made:
        code, _, err = fedsynth("decode", model, proxy, "--apply", "-q", "-o", path)
        assert code == 0, err
    assert len({path.read_bytes() for path in made}) == 1
    assert tensors_file.read(made[0]).metadata.round == 1
    code, out, _ = fedsynth("audit", round_one)
    assert code == 0 and "PASS" in out


def test_the_aggregated_update_is_the_mean_of_what_the_proxies_stand_for(fedsynth, round_one, tmp_path):
    model, _, _ = paths(round_one)
    decoded = []
    for client in ("00", "01"):
        out = tmp_path / f"{client}.safetensors"
        proxy = round_one / "clients" / client / "outbox/proxy-0001.safetensors"
        assert fedsynth("decode", model, proxy, "-q", "-o", out)[0] == 0
        decoded.append(tensors_file.read(out).tensors)
    mean = tensors_file.read(round_one / "server/private/update-0001.safetensors").tensors
    for name, tensor in mean.items():
        np.testing.assert_allclose(tensor, (decoded[0][name] + decoded[1][name]) / 2, rtol=1e-6, atol=1e-9)


def test_a_proxy_opens_with_plain_safetensors_and_says_what_it_tells(round_one):
    _, place, server = paths(round_one)
    with safe_open(place / "outbox/proxy-0001.safetensors", framework="numpy") as file:
        assert sorted(file.keys()) == ["images", "residuals", "scales"]
        np.testing.assert_allclose(file.get_tensor("residuals").sum(1), 0, atol=1e-5)
    stated = tensors_file.read(place / "outbox/proxy-0001.safetensors").metadata
    assert stated.disclosures == ("derived_images", "layer_norms", "update") and not stated.privacy
    assert [reference.sha256 is None for reference in stated.inputs] == [False, True], "the update is committed to"
    down = tensors_file.read(server).metadata
    assert down.custody == "downlink" and [reference.role for reference in down.inputs] == ["model"]


@pytest.mark.parametrize(("pixels", "most"), [("float16", 1e-3), ("uint8", 0.05)])
def test_fewer_bits_a_pixel_cost_little_and_the_file_is_smaller(
    fedsynth_json, round_one, tmp_path, pixels, most, monkeypatch
):
    """From fixed first images: with others, rounding to bytes switches a unit off now and then (2 of 300), for 0.1."""
    monkeypatch.setattr(encode_proxy, "key_seeds", lambda *_: lambda of: 0)
    model, place, _ = paths(round_one)
    update = place / "private/update-0001.safetensors"
    out = tmp_path / "00/outbox/p.safetensors"
    words = [word for word in TINY if word != "--quiet"]
    key = place / "private/client.key"
    whole = fedsynth_json("encode", model, update, *words, "--key", key, "-o", tmp_path / "00/outbox/w.safetensors")
    small = fedsynth_json("encode", model, update, *words, "--pixels", pixels, "--key", key, "-o", out)
    assert small["bytes"] < whole["bytes"]
    assert small["cosine"] == pytest.approx(whole["cosine"], abs=most)
    assert small["search_cosine"] == whole["search_cosine"]


def changed(proxy, path, **tensors):
    """The same proxy with other tensors, written as its owner could."""
    artifact = tensors_file.read(proxy)
    tensors_file.write(path, {**artifact.tensors, **tensors}, artifact.metadata)
    return path


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"images": np.zeros((4, 1, 7, 7), np.float32)}, "its images are"),
        ({"residuals": np.zeros((4, 3), np.float32)}, "residuals"),
        ({"scales": np.ones(3, np.float32)}, "scales"),
        ({"scales": np.full(4, 1e38, np.float32)}, "no update has"),
        ({"scales": np.full(4, 1e20, np.float32)}, "its scales are wrong"),
        ({"scales": np.full(4, -1.0, np.float32)}, "below 0"),
        ({"range": np.zeros(2, np.float32)}, "range"),
        ({"averages": np.zeros(3, np.float32)}, "3 averages where it has 0"),
    ],
)
def test_a_proxy_that_does_not_fit_is_refused_and_nothing_is_written(fedsynth, round_one, tmp_path, tensors, said):
    model, place, _ = paths(round_one)
    bad = changed(place / "outbox/proxy-0001.safetensors", tmp_path / "00/outbox/bad.safetensors", **tensors)
    out = tmp_path / "model.safetensors"
    code, _, err = fedsynth("decode", model, bad, "--apply", "-o", out)
    assert code == 3 and said in err and not out.exists()
    code, _, err = fedsynth("aggregate", model, bad, "-o", out)
    assert code == 3 and said in err and not out.exists()


def test_zeros_another_model_and_another_round_are_refused(fedsynth, round_one, tmp_path):
    model, place, proxy = paths(round_one)
    update = tensors_file.read(place / "private/update-0001.safetensors")
    zeros = tmp_path / "00/private/zeros.safetensors"
    tensors_file.write(zeros, {name: np.zeros_like(t) for name, t in update.tensors.items()}, update.metadata)
    out = tmp_path / "00/outbox/p.safetensors"
    key = place / "private/client.key"
    code, _, err = fedsynth("encode", model, zeros, *TINY, "--key", key, "-o", out)
    assert code == 3 and "points nowhere" in err and not out.exists()
    other = tmp_path / "other.safetensors"
    like = round_one / "public/test.parquet"
    assert fedsynth("init-model", "--arch", "mlp", "--width", 8, "--seed", 9, "--like", like, "-q", "-o", other)[0] == 0
    code, _, err = fedsynth("encode", other, place / "private/update-0001.safetensors", *TINY, "--key", key, "-o", out)
    assert code == 3 and "was not computed from" in err
    code, _, err = fedsynth("decode", other, proxy, "--apply", "-o", tmp_path / "m.safetensors")
    assert code == 3 and "for another model" in err
    later = tmp_path / "later.safetensors"
    assert fedsynth("decode", model, proxy, "--apply", "-q", "-o", later)[0] == 0
    code, _, err = fedsynth("decode", later, proxy, "--apply", "-o", tmp_path / "m.safetensors")
    assert code == 3 and "is of round 1" in err


def test_a_warm_start_needs_the_senders_own_proxy_and_its_size(fedsynth, round_one, tmp_path):
    model, place, _ = paths(round_one)
    update, key = place / "private/update-0001.safetensors", place / "private/client.key"
    theirs = round_one / "clients/01/outbox/proxy-0001.safetensors"
    out = tmp_path / "00/outbox/p.safetensors"
    start = ("encode", model, update, *TINY, "--key", key, "-o", out)
    code, _, err = fedsynth(*start, "--previous", theirs)
    assert code == 2 and "--init previous" in err
    code, _, err = fedsynth(*start, "--init", "previous", "--previous", theirs)
    assert code == 3 and "not of the sender" in err and not out.exists()


def test_running_averages_go_beside_the_images_and_arrive_as_they_were():
    random = np.random.default_rng(0)
    update = {
        "conv.weight": random.normal(size=(4, 1, 3, 3)).astype(np.float32),
        "norm.running_mean": random.normal(size=4).astype(np.float32),
        "norm.running_var": random.normal(size=4).astype(np.float32),
    }
    assert sent_averages({"conv.weight": update["conv.weight"]}, {"conv.weight"}) == {}
    sent = sent_averages(update, {"conv.weight"})["averages"]
    kept = {name: np.zeros(4, np.float32) for name in ("norm.running_var", "norm.running_mean")}
    seen = seen_averages(Path("proxy"), sent, kept)
    assert all(np.array_equal(seen[name], update[name]) for name in kept) and len(seen) == 2
    assert seen_averages(Path("proxy"), None, kept) == {}
    with pytest.raises(InputError, match="9 averages where it has 8"):
        seen_averages(Path("proxy"), np.zeros(9, np.float32), kept)


def test_scales_that_are_no_numbers_are_refused(fedsynth, round_one, tmp_path, monkeypatch):
    """A file with NaN cannot be written by us; somebody else's is not read."""
    model, place, _ = paths(round_one)
    with monkeypatch.context() as patch:
        patch.setattr(tensors_file, "check_finite", lambda *_: None)
        scales = np.full(4, np.nan, np.float32)
        bad = changed(place / "outbox/proxy-0001.safetensors", tmp_path / "00/outbox/bad.safetensors", scales=scales)
    out = tmp_path / "model.safetensors"
    code, _, err = fedsynth("decode", model, bad, "--apply", "-o", out)
    assert code == 3 and "NaN" in err and not out.exists()


def test_inspect_and_audit_say_that_obscuring_is_no_guarantee(fedsynth, round_one):
    _, place, _ = paths(round_one)
    code, out, _ = fedsynth("inspect", place / "outbox/proxy-0001.safetensors")
    stated = " ".join(out.split())
    assert code == 0 and "no guarantee of privacy" in stated and "How large the update is in each layer" in stated
    code, out, _ = fedsynth("audit", round_one)
    stated = " ".join(out.split())
    assert code == 0 and "How large the update is in each layer" in stated and "guarantee" in stated
