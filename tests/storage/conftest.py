"""A real S3 server on loopback, which remembers what it was asked and can be told to fail."""

import logging
import threading
from contextlib import contextmanager

import boto3
import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

SECRET = "not-to-be-shown-anywhere"
DENIED = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>no</Message></Error>"


class Server:
    """moto, behind a door that counts requests; a fault is asked first, and may answer instead."""

    def __init__(self):
        self._moto, self._faults, self.asked = DomainDispatcherApplication(create_backend_app), [], []
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _answer(self, environ, start_response):
        self.asked.append((environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"]))
        for fault in self._faults:
            answer = fault(environ, start_response)
            if answer is not None:
                return answer
        return self._moto(environ, start_response)

    @contextmanager
    def failing(self, fault):
        self._faults.append(fault)
        try:
            yield
        finally:
            self._faults.remove(fault)

    @staticmethod
    def denied(environ, start_response):
        """An answer that the client does not try to get again."""
        chunked = environ.get("HTTP_TRANSFER_ENCODING") == "chunked"
        environ["wsgi.input"].read(-1 if chunked else int(environ.get("CONTENT_LENGTH") or 0))
        start_response("403 Forbidden", [("Content-Type", "application/xml")])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else DENIED]

    def puts(self, under):
        """The names of the objects that were made below a place, in order."""
        return [path.removeprefix(under) for method, path, query in self.asked
                if method == "PUT" and path.startswith(under) and "partNumber" not in query]  # fmt: skip

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="session")
def server():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = Server()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def store(server):
    """A client that shares no code with ours."""
    client = boto3.client(
        "s3", endpoint_url=server.url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key=SECRET
    )
    client.create_bucket(Bucket="bucket")
    return client


@pytest.fixture(autouse=True)
def environment(server, store, monkeypatch, tmp_path):
    """What a user's environment says; and the cache is the test's own."""
    for name, value in {
        "AWS_ENDPOINT_URL": server.url, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true", "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache" / "fedsynth"


@pytest.fixture
def objects(store):
    """The objects below a place, with their bytes."""

    def read(prefix):
        pages = store.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix=prefix)
        names = [found["Key"] for page in pages for found in page.get("Contents", [])]
        return {name.removeprefix(prefix): store.get_object(Bucket="bucket", Key=name)["Body"].read() for name in names}

    return read


@pytest.fixture
def upload(store):
    """Put a file, or a folder with all that is in it but the keys, under a name."""

    def put(path, name):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix != ".key":
                key = f"{name}/{file.relative_to(path)}" if path.is_dir() else name
                store.put_object(Bucket="bucket", Key=key, Body=file.read_bytes())
        return f"s3://bucket/{name}"

    return put
