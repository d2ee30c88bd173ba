"""Compressed updates over files: what arrives, what is declared, error feedback, and what is refused."""

import numpy as np
import pytest

from artifacts.formats import tensors_file

METHODS = {
    "quantised": ["--method", "quantised", "--bits", "4"],
    "topk": ["--method", "topk", "--keep", "0.1"],
    "lowrank": ["--method", "lowrank", "--rank", "2"],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two clients with their updates."""
    from fedsynth_cli.app import run as command

    run = tmp_path_factory.mktemp("compression") / "run"

    def call(*words):
        assert command([*map(str, words), "-q"]) == 0

    model = run / "public/model-0000.safetensors"
    call("partition", "digits", "--clients", 2, "-o", run)
    call("init-model", "--arch", "mlp", "--width", 16, "--like", run / "public/test.parquet", "-o", model)
    for client in ("00", "01"):
        private = run / "clients" / client / "private"
        call("train-client", model, private / "data.parquet", "--local-steps", 3, "-o", private / "update.safetensors")
    return run


def sent(fedsynth_json, run, method, client="00", name="m", options=()):
    out = run / "clients" / client / "outbox" / f"compressed-{name}-{method}.safetensors"
    model, update = run / "public/model-0000.safetensors", run / "clients" / client / "private/update.safetensors"
    stated = fedsynth_json("encode", model, update, *METHODS[method], *options, "-o", out, "--force")
    return out, stated


def cosine(a, b):
    a, b = (np.concatenate([tensors[name].ravel() for name in sorted(tensors)]).astype(float) for tensors in (a, b))
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


@pytest.mark.parametrize("method", METHODS)
def test_what_arrives_has_the_cosine_that_was_printed(fedsynth, fedsynth_json, run, tmp_path, method):
    model = run / "public/model-0000.safetensors"
    out, stated = sent(fedsynth_json, run, method)
    update = tensors_file.read(run / "clients/00/private/update.safetensors")
    decoded = tmp_path / "decoded.safetensors"
    assert fedsynth("decode", model, out, "-q", "-o", decoded)[0] == 0
    found = tensors_file.read(decoded).tensors
    assert cosine(found, update.tensors) == pytest.approx(stated["cosine"], abs=1e-5) and stated["cosine"] > 0.5
    about = tensors_file.read(out).metadata
    assert (about.kind, about.method, about.disclosures) == ("compressed", method, ("update",))
    assert [reference.sha256 is None for reference in about.inputs] == [False, True], "the update is committed to"
    assert stated["bytes"] < (run / "clients/00/private/update.safetensors").stat().st_size


def test_the_mean_of_a_round_and_its_audit(fedsynth, fedsynth_json, run, tmp_path):
    model = run / "public/model-0000.safetensors"
    first, _ = sent(fedsynth_json, run, "quantised", "00", "round")
    second, _ = sent(fedsynth_json, run, "lowrank", "01", "round")
    decoded = []
    for number, path in enumerate((first, second)):
        out = tmp_path / f"{number}.safetensors"
        assert fedsynth("decode", model, path, "-q", "-o", out)[0] == 0
        decoded.append(tensors_file.read(out).tensors)
    out = run / "server/private/update.safetensors"
    assert fedsynth("aggregate", model, first, second, "--as", "update", "-q", "-o", out)[0] == 0
    for name, tensor in tensors_file.read(out).tensors.items():
        np.testing.assert_allclose(tensor, (decoded[0][name] + decoded[1][name]) / 2, rtol=1e-5, atol=1e-8)
    code, shown, _ = fedsynth("audit", run, "--replay")
    assert code == 0 and "PASS" in shown, shown


def test_what_topk_leaves_out_comes_with_the_next_round(fedsynth, fedsynth_json, run, tmp_path):
    """Sent + left out = update, exactly; the next message is of the update and what was left out."""
    private = run / "clients/00/private"
    model, error = run / "public/model-0000.safetensors", private / "error-0001.safetensors"
    out, _ = sent(fedsynth_json, run, "topk", name="one", options=["--error-out", error])
    update = tensors_file.read(private / "update.safetensors")
    kept = tensors_file.read(error)
    assert (kept.metadata.custody, kept.metadata.kind) == ("private", "state")
    decoded, later = tmp_path / "d.safetensors", run / "server/outbox/model-0001.safetensors"
    assert fedsynth("decode", model, out, "-q", "-o", decoded)[0] == 0
    arrived = tensors_file.read(decoded).tensors
    for name, tensor in update.tensors.items():
        np.testing.assert_allclose(arrived[name] + kept.tensors[name], tensor, rtol=1e-6, atol=1e-8)
    assert fedsynth("aggregate", model, out, "-q", "-o", later)[0] == 0
    second = private / "update-0002.safetensors"
    words = ["--local-steps", 3, "-q", "-o", second]
    assert fedsynth("train-client", later, private / "data.parquet", *words)[0] == 0
    message = run / "clients/00/outbox/compressed-0002.safetensors"
    stated = fedsynth_json("encode", later, second, *METHODS["topk"], "--previous", error, "-o", message)
    owed = {name: tensor + kept.tensors[name] for name, tensor in tensors_file.read(second).tensors.items()}
    again = tmp_path / "e.safetensors"
    assert fedsynth("decode", later, message, "-q", "-o", again)[0] == 0
    assert cosine(tensors_file.read(again).tensors, owed) == pytest.approx(stated["cosine"], abs=1e-5)
    roles = [reference.role for reference in tensors_file.read(message).metadata.inputs]
    assert roles == ["model", "update", "previous"]
    code, shown, _ = fedsynth("audit", run, "--replay")
    assert code == 0 and "PASS" in shown, shown
    code, _, err = fedsynth("encode", later, second, *METHODS["quantised"], "--previous", error, "-o", message)
    assert code == 2 and "does not go with --method quantised" in err
    theirs = run / "clients/01/outbox/x.safetensors"
    start = ("encode", model, run / "clients/01/private/update.safetensors", *METHODS["topk"], "--previous", error)
    code, _, err = fedsynth(*start, "-o", theirs)
    assert code == 3 and "left out" in err and not theirs.exists()


@pytest.mark.parametrize(
    ("method", "tensors", "said"),
    [
        ("quantised", {"codes": np.zeros(3, np.uint8)}, "does not fit the model"),
        ("lowrank", {"factors": np.zeros(3, np.float32)}, "does not fit the model"),
        ("topk", {"positions": "later"}, "not those of numbers of the model"),
        ("topk", {"positions": "twice"}, "not those of numbers of the model"),
        ("topk", {"positions": "before"}, "not those of numbers of the model"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_and_nothing_is_written(
    fedsynth, fedsynth_json, run, tmp_path, method, tensors, said
):
    out, _ = sent(fedsynth_json, run, method, name="bad")
    artifact = tensors_file.read(out)
    if "positions" in tensors:
        places = artifact.tensors["positions"].copy()
        change = {"later": (-1, 1 << 30), "twice": (1, places[0]), "before": (0, -1)}[tensors["positions"]]
        places[change[0]] = change[1]
        tensors = {"positions": places}
    bad = tmp_path / "00/outbox/bad.safetensors"
    tensors_file.write(bad, {**artifact.tensors, **tensors}, artifact.metadata)
    after = tmp_path / "after.safetensors"
    for words in (("decode", "--apply"), ("aggregate",)):
        code, _, err = fedsynth(words[0], run / "public/model-0000.safetensors", bad, *words[1:], "-o", after)
        assert code == 3 and said in " ".join(err.split()) and not after.exists()
