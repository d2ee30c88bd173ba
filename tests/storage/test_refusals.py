"""What a store, or a URL, can have wrong: said in a line, without a credential, and nothing is left."""

import typing

import pytest

from artifacts.errors import InputError
from artifacts.storage import remote
from artifacts.storage.remote import Remote
from fedsynth_cli.command_list import COMMANDS
from fedsynth_cli.commands import load
from fedsynth_cli.urls import is_path, use_of


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("s3://bucket/none.safetensors", 3, "s3://bucket/none.safetensors: no such object"),
        ("s3://nobucket/none.safetensors", 3, "no such bucket"),
        ("s3://bucket/denied/x.safetensors", 3, "access denied"),
        ("s3://me:password@bucket/x.safetensors", 2, "no credentials in a URL"),
        ("s3://bucket/x?password=1", 2, "an option that is not known"),
        ("s3:///x", 2, "write s3://BUCKET/NAME"),
        ("s3://bucket", 2, "write s3://BUCKET/NAME"),
        ("s3://bucket/a/../b", 2, "without empty parts"),
        ("https://bucket/x?password=1", 2, "Fetch the file"),
        ("file://host/x?password=1", 2, "three slashes"),
    ],
)
def test_bad_urls(fedsynth, server, url, code, said, cache):
    def deny(environ, start_response):
        return server.denied(environ, start_response) if "denied" in environ["PATH_INFO"] else None

    with server.failing(deny):
        found, out, err = fedsynth("inspect", url)
    assert (found, said in err) == (code, True), err
    assert err.count("\n") <= 2
    for secret in ("password", "not-to-be-shown", "?", "Request ID"):
        assert secret not in out + err
    assert not cache.exists() or list(cache.iterdir()) == []


def test_a_store_that_is_not_there(fedsynth, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    code, _, err = fedsynth("inspect", "s3://bucket/x")
    assert code == 3
    assert "the store cannot be reached" in err


def test_half_a_file_is_refused(server, store, tmp_path):
    store.put_object(Bucket="bucket", Key="cut", Body=b"0123456789")

    def cut(environ, start_response):
        if environ["REQUEST_METHOD"] != "GET":
            return None
        start_response("206 Partial Content", [("Content-Length", "10")])
        return [b"0123"]

    with server.failing(cut), pytest.raises(InputError, match="the connection broke"):
        Remote.parse("s3://bucket/cut").fetch(tmp_path / "cut")
    assert list(tmp_path.iterdir()) == []


def test_an_object_that_is_replaced_meanwhile_is_refused(server, store, tmp_path):
    store.put_object(Bucket="bucket", Key="replaced", Body=b"0123456789")

    def replace(environ, start_response):
        if environ["REQUEST_METHOD"] == "GET":
            store.put_object(Bucket="bucket", Key="replaced", Body=b"another one, longer")

    with server.failing(replace), pytest.raises(InputError, match="replaced meanwhile"):
        Remote.parse("s3://bucket/replaced").fetch(tmp_path / "replaced")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["hostile/../../../evil", "hostile//evil", "hostile/./evil"])
def test_names_that_lead_out_of_the_folder_are_refused(fedsynth, store, key, cache):
    store.put_object(Bucket="bucket", Key=key, Body=b"x")
    code, _, err = fedsynth("audit", "s3://bucket/hostile")
    store.delete_object(Bucket="bucket", Key=key)
    assert code == 3
    assert "no name of a file" in err
    assert list(cache.iterdir()) == []


def test_what_the_disk_has_no_room_for_is_not_fetched(store, server, tmp_path, monkeypatch):
    store.put_object(Bucket="bucket", Key="room/x", Body=b"0123456789")
    monkeypatch.setattr(remote.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 9}))
    before = len(server.asked)
    for fetch in (Remote.parse("s3://bucket/room/x").fetch, Remote.parse("s3://bucket/room").fetch_folder):
        with pytest.raises(InputError, match=r"has 10 bytes, and the disk of .* has room for 9"):
            fetch(tmp_path / "x")
    assert not [path for method, path, _ in server.asked[before:] if method == "GET" and path.endswith("room/x")]


def test_the_help_says_where_a_url_may_stand(fedsynth):
    lines = fedsynth("train-client", "--help")[1].splitlines()
    assert "PATH|URL" in next(line for line in lines if "--out" in line)
    assert "PATH|URL" not in next(line for line in lines if "--key" in line)
    assert "s3://BUCKET/NAME" in fedsynth("--help")[1]


def test_every_path_of_every_command_is_known_to_be_read_or_written():
    """A new option must say which: what is written must not be fetched, nor the other way round."""
    read = {
        "model", "data", "messages", "message", "source", "state", "server_state", "before", "require_signed", "target",
        "received", "previous", "subject", "held_out", "matching", "against", "like", "file", "other", "run", "params",
        "identities", "datasets", "generator", "reviewed", "files", "roster", "envelope", "schema", "weights",
        "headers", "labels", "proof", "head", "remembered", "features",
    }  # fmt: skip
    written = {
        "out", "state_out", "metrics", "picture", "confusion", "csv", "surface", "sheet", "pairs", "images",
            "error_out",
    }  # fmt: skip
    local, found = {"key", "curve", "root", "sacro"}, {}
    for name, command in COMMANDS.items():
        if not (command.at_home or command.subcommands):
            module = __import__(f"fedsynth_cli.commands.{name.replace('-', '_')}", fromlist=["x"])
            function = getattr(module, name.replace("-", "_"))
            hints = typing.get_type_hints(function, include_extras=True)
            found |= {parameter: use_of(hint) for parameter, hint in hints.items() if is_path(hint)}
            assert load(name).__doc__ == function.__doc__
    assert {name for name, use in found.items() if use.written} == written
    assert {name for name, use in found.items() if use.why_local} == local
    assert found.keys() - written - local == read
