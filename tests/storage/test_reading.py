"""What is read by URL gives what a path gives, or is refused; nothing stays behind."""

import json
import shutil

import pytest

MESSAGE, MODEL, TEST = (
    "clients/00/outbox/message-0001.safetensors",
    "public/model-0000.safetensors",
    "public/test.parquet",
)


@pytest.fixture
def at(finished_run, upload):
    """A file of the finished run in the store."""
    return lambda name, there=None: upload(finished_run / name, f"read/{there or name}")


def test_a_file_is_inspected_as_by_its_path(fedsynth_json, finished_run, at, cache):
    url = at(MESSAGE)
    by_path, by_url = fedsynth_json("inspect", finished_run / MESSAGE), fedsynth_json("inspect", url)
    assert by_url.pop("file") == url
    assert by_path.pop("file") != url
    assert by_url == by_path
    assert list(cache.iterdir()) == []


def test_what_is_made_of_urls_has_the_bytes_of_what_is_made_of_paths(fedsynth, finished_run, at, tmp_path):
    names = [MODEL, *(f"clients/{client}/outbox/message-0001.safetensors" for client in ("00", "01", "02"))]
    made = [tmp_path / "paths.safetensors", tmp_path / "urls.safetensors"]
    for files, out in zip(([finished_run / name for name in names], [at(name) for name in names]), made, strict=True):
        code, _, err = fedsynth("aggregate", *files, "-o", out)
        assert code == 0, err
    assert made[0].read_bytes() == made[1].read_bytes()


def test_a_source_by_url_is_divided_as_by_its_path(fedsynth, finished_run, at, tmp_path, server):
    url = at(TEST)
    options = f"?endpoint_url={server.url}&region=us-east-1"
    for source, out in ((finished_run / TEST, "path"), (url + options, "url")):
        code, _, err = fedsynth("partition", source, "--clients", 2, "-o", tmp_path / out)
        assert code == 0, err
    files = sorted(p.relative_to(tmp_path / "path") for p in (tmp_path / "path").rglob("*") if p.is_file())
    record = "simulation/partition.json"
    for name in files:
        if str(name) != record:
            assert (tmp_path / "path" / name).read_bytes() == (tmp_path / "url" / name).read_bytes(), name
    assert json.loads((tmp_path / "url" / record).read_text())["source"] == url, "the options are not recorded"


@pytest.mark.parametrize("command", [["audit", "--delta", "1e-5"], ["account", "--delta", "1e-5"]])
def test_a_run_by_url_is_judged_as_by_its_path(fedsynth_json, finished_run, upload, command):
    name, *options = command
    by_path = fedsynth_json(name, finished_run, *options)
    by_url = fedsynth_json(name, upload(finished_run, "judged/run"), *options)
    spelled = json.dumps(by_path).replace(str(finished_run), "s3://bucket/judged/run")
    assert json.loads(spelled) == by_url


def test_runs_by_url_are_compared_as_by_their_paths(fedsynth, finished_run, upload, tmp_path):
    for run, out in ((finished_run, "path.json"), (upload(finished_run, "compared/run"), "url.json")):
        code, _, err = fedsynth("evaluate", run, "-o", tmp_path / out)
        assert code == 0, err
    assert (tmp_path / "path.json").read_bytes() == (tmp_path / "url.json").read_bytes()


def test_a_tampered_run_fails_its_audit_by_url(fedsynth, run_copy, upload):
    (run_copy / MESSAGE).unlink()
    shutil.copy(run_copy / "clients/01/outbox/message-0001.safetensors", run_copy / MESSAGE)
    code, out, err = fedsynth("audit", upload(run_copy, "tampered"))
    assert code == 5
    assert "s3://bucket/tampered/clients/00" in out
    assert "/cache/" not in out + err


def test_the_envelope_comes_with_the_file(fedsynth, run_copy, upload):
    for owner in ("clients/00", "server"):
        assert fedsynth("identity", "-o", run_copy / owner / "private/identity.json")[0] == 0
    identities = [run_copy / owner / "private/identity.json" for owner in ("clients/00", "server")]
    roster = run_copy / "public/roster.json"
    assert fedsynth("roster", *identities, "-o", roster)[0] == 0
    assert fedsynth("sign", run_copy / MESSAGE, "--roster", roster)[0] == 0
    url = upload(run_copy / "clients/00/outbox", "signed") + "/message-0001.safetensors"
    code, out, err = fedsynth("verify", url, "--roster", upload(roster, "signed/roster.json"))
    assert code == 0, err
    assert "s3://bucket/signed" in out


def test_a_file_url_is_a_path(fedsynth, finished_run):
    code, out, _ = fedsynth("inspect", f"file://{finished_run / MESSAGE}")
    assert code == 0
    assert str(finished_run / MESSAGE) in out


def test_a_flipped_bit_is_found(fedsynth, finished_run, store):
    data = bytearray((finished_run / MESSAGE).read_bytes())
    data[-1] ^= 1
    store.put_object(Bucket="bucket", Key="flipped.safetensors", Body=bytes(data))
    code, _, err = fedsynth("inspect", "s3://bucket/flipped.safetensors")
    assert code == 3
    assert "s3://bucket/flipped.safetensors" in err
