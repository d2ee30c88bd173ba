"""A SuperLink that is not there, not the right one, or none at all; keys that do not fit. No process is started."""

import contextlib
import socket
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest

from artifacts.errors import InputError, VerificationError
from stages.federate.flower import environment
from stages.federate.link import Link, check_server


class NotASuperLink(BaseHTTPRequestHandler):
    """Answers, but knows nothing of /health."""

    def do_GET(self):
        self.send_error(404)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(pair=None):
    """A server on loopback, with TLS if there is a certificate; its address."""
    with HTTPServer(("127.0.0.1", 0), NotASuperLink) as server:
        server.handle_error = lambda *_: None  # a handshake that the other side ends
        if pair is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*pair)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="session")
def home(make_network, small_terms):
    """Homes, keys and terms, and no SuperLink."""
    with make_network() as network:
        network.app = network.agree(small_terms)
        yield network


def commands(network):
    """The three that need a SuperLink."""
    return [
        network.supernode_words("a", "--patience", "0"),
        ["register", network.keys["a"].with_name("a.pub"), "--name", "a", *network.link_options],
        ["run", network.app, "--home", network.server_home, *network.link_options],
    ]


@pytest.mark.parametrize("which", range(3))
def test_no_superlink_there(fedsynth, home, which):
    code, out, err = fedsynth("federate", *commands(home)[which])
    assert (code, out) == (3, "")
    assert f"no SuperLink at {home.address}: Connection refused" in err


def test_a_superlink_that_comes_late_is_waited_for(home):
    link = Link(home.address, home.authority.certificate)
    began = time.monotonic()
    with pytest.raises(InputError, match="no SuperLink"):
        link.check(patience=0.5)
    assert time.monotonic() - began >= 0.5


def test_certificates_that_nobody_should_believe(certificates, home, tmp_path):
    ours, others = home.authority, certificates.Authority(tmp_path, "others")
    cases = {
        "expired": ours.issue("old", age=40, valid=-10),
        "IP address mismatch": ours.issue("elsewhere", ["link.example.org"]),
        "unable to get local issuer": others.issue("stranger"),
    }
    for said, pair in cases.items():
        with serving(pair) as address, pytest.raises(VerificationError, match=said):
            Link(address, ours.certificate).check()
        with pytest.raises(VerificationError, match=said):
            check_server(*pair, ours.certificate, "127.0.0.1")
    check_server(*ours.issue("good"), ours.certificate, "127.0.0.1")


def test_what_answers_is_no_superlink(home):
    with serving() as address, pytest.raises(InputError, match="does not speak TLS"):
        Link(address, home.authority.certificate).check()
    with serving(home.authority.issue("other")) as address, pytest.raises(InputError, match="/health says 404"):
        Link(address, home.authority.certificate).check()


def test_a_proxy_is_for_other_machines(home, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    with serving(home.authority.issue("near")) as address, pytest.raises(InputError, match="/health says 404"):
        Link(address, home.authority.certificate).check()
    monkeypatch.setenv("NO_PROXY", "intranet")
    assert environment(home.folder)["NO_PROXY"] == "intranet,127.0.0.1,localhost,::1"
    monkeypatch.setenv("NO_PROXY", environment(home.folder)["NO_PROXY"])
    httpx.Client().close()  # Flower's own way to the network; it reads the list too, and is easily upset


@pytest.mark.parametrize(
    ("option", "content", "said"),
    [
        ("--root-certificates", None, "no certificate at"),
        ("--root-certificates", "nonsense", "holds no certificate"),
        ("--key", None, "no node key at"),
        ("--key", "nonsense", "no elliptic-curve key"),
    ],
)
def test_files_that_are_missing_or_no_keys(fedsynth, home, tmp_path, option, content, said):
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content)
        path.chmod(0o600)
    code, _, err = fedsynth("federate", *home.supernode_words("a", option, path))
    assert code == 3
    assert said in err


def test_a_node_key_that_others_can_read_is_refused(fedsynth, home, certificates, tmp_path):
    key, _ = certificates.node_key(tmp_path, "node")
    key.chmod(0o644)
    code, _, err = fedsynth("federate", *home.supernode_words("a", "--key", key))
    assert code == 3
    assert "chmod 600" in err


def test_a_client_that_is_not_in_the_terms(fedsynth, home, tmp_path):
    code, _, err = fedsynth("federate", *home.supernode_words("a", "--client", "c"))
    assert code == 2
    assert "whose clients are a, b" in err
    private = home.homes["a"] / "clients/a/private"
    private.mkdir(parents=True, exist_ok=True)
    (private / "client.key").touch(mode=0o600)
    code, _, err = fedsynth("federate", *home.supernode_words("a", "--client", "b"))
    assert code == 2
    assert "is the home of a; it has no key of 'b'" in err
    code, _, err = fedsynth("federate", *home.supernode_words("a", "--home", tmp_path))
    assert code == 3
    assert "no terms at" in err


@pytest.mark.parametrize("address", ["localhost", "x/y:1", "x:port", ":9092", "x:70000"])
def test_addresses_that_are_none(fedsynth, home, address):
    code, _, err = fedsynth("federate", *home.supernode_words("a", "--superlink", address))
    assert code == 2
    assert "HOST:PORT" in err


def test_a_superlink_that_cannot_start(fedsynth, home, certificates, tmp_path):
    words = ["federate", *home.superlink_words()]
    _, key = home.authority.issue("second")
    code, _, err = fedsynth(*words, "--key", key)
    assert (code, "no certificate with its key" in err) == (3, True)
    code, _, err = fedsynth(*words, "--ca", certificates.Authority(tmp_path, "others").certificate)
    assert (code, "clients would refuse" in err) == (5, True)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        code, _, err = fedsynth(*words, "--port", holder.getsockname()[1])
    assert (code, "cannot listen at 127.0.0.1" in err) == (3, True)


def test_without_flower(fedsynth, home, monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr", None)  # as if it were not installed
    for words in (home.superlink_words(), *commands(home)):
        code, _, err = fedsynth("federate", *words)
        assert code == 3
        assert "pip install 'fedsynth[flower]'" in err
