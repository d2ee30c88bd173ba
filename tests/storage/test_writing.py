"""What is written by URL: whole or absent, never over something else, never what may not be there."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from artifacts.errors import InputError
from artifacts.storage.remote import Remote

MODEL, TEST = "public/model-0000.safetensors", "public/test.parquet"
DATA, UPDATE = "clients/00/private/data.parquet", "clients/00/private/update-0001.safetensors"
PUT = (
    "import sys; from pathlib import Path; from artifacts.storage.remote import Remote; "
    "Remote.parse({!r}).put(Path({!r}))"
)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A file that goes up in four parts."""
    path = tmp_path_factory.mktemp("large") / "large.bin"
    path.write_bytes(os.urandom(25_000_000))
    return path


def is_part(number):
    return lambda environ: environ["REQUEST_METHOD"] == "PUT" and f"partNumber={number}&" in environ["QUERY_STRING"]


def test_metrics_and_pictures_go_to_a_url(fedsynth_json, finished_run, objects, tmp_path, cache):
    model, data = finished_run / MODEL, finished_run / TEST
    stated = fedsynth_json("evaluate", model, data, "-o", "s3://bucket/w/m.json", "--confusion", "s3://bucket/w/c.png")
    assert stated["out"] == "s3://bucket/w/m.json"
    fedsynth_json("evaluate", model, data, "-o", tmp_path / "m.json", "--confusion", tmp_path / "c.png")
    assert objects("w/") == {name: (tmp_path / name).read_bytes() for name in ("m.json", "c.png")}
    assert list(cache.iterdir()) == []


def test_a_report_of_a_run_by_url_goes_to_a_url_even_if_the_audit_fails(fedsynth, run_copy, upload, objects):
    (run_copy / "clients/00/egress.jsonl").unlink()
    code, _, err = fedsynth("report", upload(run_copy, "reported"), "-o", "s3://bucket/page/report.html")
    assert code == 5
    assert "s3://bucket/reported failed" in err
    assert objects("page/")["report.html"].startswith(b"<!")


def test_an_existing_object_is_refused_before_the_work_and_replaced_with_force(fedsynth, finished_run, store, objects):
    store.put_object(Bucket="bucket", Key="taken/m.json", Body=b"precious")
    words = ["evaluate", finished_run / MODEL, finished_run / TEST, "-o", "s3://bucket/taken/m.json"]
    code, _, err = fedsynth(*words)
    assert code == 3
    assert "s3://bucket/taken/m.json already exists" in err
    assert objects("taken/") == {"m.json": b"precious"}
    assert fedsynth(*words, "--force")[0] == 0
    assert objects("taken/")["m.json"] != b"precious"


def test_an_upload_that_fails_half_way_leaves_no_object(server, objects, large):
    def deny(environ, start_response):
        return server.denied(environ, start_response) if is_part(2)(environ) else None

    said = r"^cannot write s3://bucket/half/large\.bin: access denied"
    with server.failing(deny), pytest.raises(InputError, match=said):
        Remote.parse("s3://bucket/half/large.bin").put(large)
    asked = [query for method, path, query in server.asked if method == "POST" and path == "/bucket/half/large.bin"]
    assert asked == ["uploads"], "begun, and never completed"
    assert objects("half/") == {}


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
def test_an_upload_that_is_stopped_half_way_leaves_no_half(server, objects, large, signal_number):
    """Whether killed or stopped by Ctrl-C: what was not completed is no object."""
    reached, stopped = threading.Event(), threading.Event()

    def stall(environ, start_response):
        if is_part(2)(environ):
            reached.set()
            stopped.wait(30)

    place = f"stopped-{signal_number}/"
    with server.failing(stall):
        # Tests that run in the background of a shell inherit that SIGINT is ignored; a process at a terminal does not.
        code = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n{PUT}"
        code = code.format(f"s3://bucket/{place}large.bin", str(large))
        process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
        assert reached.wait(60), process.communicate(timeout=5)[1]
        process.send_signal(signal_number)
        time.sleep(0.2)
        stopped.set()
        err = process.communicate()[1]
    if signal_number == signal.SIGINT:
        assert b"KeyboardInterrupt" in err
    assert objects(place) == {}


def test_what_cannot_be_put_at_the_end_is_kept(fedsynth, finished_run, server, objects, cache):
    def deny(environ, start_response):
        return server.denied(environ, start_response) if environ["REQUEST_METHOD"] == "PUT" else None

    with server.failing(deny):
        words = ["evaluate", finished_run / MODEL, finished_run / TEST, "-o", "s3://bucket/kept/m.json"]
        code, _, err = fedsynth(*words)
    assert code == 3
    assert "cannot write s3://bucket/kept/m.json: access denied" in err
    assert objects("kept/") == {}
    kept = Path(err.rpartition("kept in ")[2].strip().rstrip("."))
    assert (kept / "m.json").read_bytes().startswith(b"{")
    assert kept.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["encode", MODEL, UPDATE, "-o", "s3://bucket/no/clients/00/outbox/m.safetensors"], "no outbox by URL"),
        (["encode", MODEL, UPDATE, "-o", "s3://bucket/no/m.safetensors"], "would hold what is private"),
        (["train-client", MODEL, DATA, "-o", "s3://bucket/no/u.safetensors"], "would hold what is private"),
        (["inspect", DATA, "--images", "s3://bucket/no/sheet.png"], "would hold what is private"),
        (["evaluate", MODEL, DATA, "-o", "s3://bucket/no/m.json"], "would hold what is private"),
        (["evaluate", ".", "--gap", "-o", "s3://bucket/no/gap.json"], "would hold what is private"),
        (["report", ".", "--private", "-o", "s3://bucket/no/report.html"], "would hold what is private"),
        (["recipe", "fedavg", "--format", "make", "--run", "s3://bucket/no"], "give a path"),
        (["keygen", "-o", "s3://bucket/no/client.key"], "takes no URL"),
        (["sign", "s3://bucket/no/m.safetensors", "--roster", "r.json"], "takes no URL"),
        (["release", "--out=s3://bucket/no/x"], "takes no URL"),
        (["aggregate", MODEL, "--key", "s3://bucket/no/k", "-o", "x.safetensors"], "a key stays on the machine"),
        (["evaluate", MODEL, TEST, "--curve", "s3://bucket/no/c.csv", "-o", "m.json"], "changed in place"),
    ],
)
def test_what_may_not_be_there_is_refused(fedsynth, finished_run, objects, words, said, monkeypatch):
    monkeypatch.chdir(finished_run)
    code, _, err = fedsynth(*words)
    assert (code, said in err) == (2, True), err
    assert objects("no/") == {}


def test_a_private_file_goes_into_a_private_folder(fedsynth, finished_run, objects):
    out = "s3://bucket/own/clients/00/private/m.json"
    code, _, err = fedsynth("evaluate", finished_run / MODEL, finished_run / DATA, "-o", out)
    assert code == 0, err
    assert list(objects("own/")) == ["clients/00/private/m.json"]


def test_a_store_without_objects_gets_a_file_when_it_is_complete(tmp_path, monkeypatch):
    """memory:// is driven as sftp:// is: under another name first, then renamed."""
    place = Remote.parse("memory://room/run/a.bin")
    (tmp_path / "a.bin").write_bytes(b"0123456789")
    names, put = [], place.store.system.put_file
    monkeypatch.setattr(place.store.system, "put_file", lambda local, there: names.append(there) or put(local, there))
    assert place.put(tmp_path / "a.bin").size == 10
    assert names == ["/room/run/.a.bin.part"]
    assert list(Remote.parse("memory://room/run").files()) == ["a.bin"]
    place.fetch(tmp_path / "copy" / "a.bin")
    assert (tmp_path / "copy" / "a.bin").read_bytes() == b"0123456789"
    place.delete()
    assert place.find() is None
    with pytest.raises(InputError, match=r"memory://room/run/a\.bin: no such object"):
        place.fetch(tmp_path / "gone")


def test_a_scheme_without_its_driver_says_what_to_install(fedsynth):
    code, _, err = fedsynth("inspect", "gs://bucket/x.safetensors")
    assert code == 2
    assert "pip install 'gcsfs'" in err


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sftp://me@host/data/x.safetensors", "sftp://host/data/x.safetensors"),
        ("abfs://trial@account.dfs.core.windows.net/x.parquet", "abfs://trial/x.parquet"),
    ],
)
def test_a_user_or_account_in_a_url_is_not_shown(url, shown):
    assert str(Remote.parse(url)) == shown


def test_a_denied_upload_whose_abort_fails_too_says_that_it_was_denied(server, large):
    def deny(environ, start_response):
        aborts = environ["REQUEST_METHOD"] == "DELETE"
        if aborts:
            start_response("400 Bad Request", [("Content-Type", "application/xml")])
            return [b"<?xml version='1.0'?><Error><Code>Whatever</Code><Message>no</Message></Error>"]
        return server.denied(environ, start_response) if is_part(2)(environ) else None

    said = r"^cannot write s3://bucket/half-denied/large\.bin: access denied"
    with server.failing(deny), pytest.raises(InputError, match=said):
        Remote.parse("s3://bucket/half-denied/large.bin").put(large)
