"""The commands of `federate`: help that teaches and imports nothing; terms without Flower; fingerprints of keys."""

import subprocess
import sys

import pytest

from stages.federate.submit import fingerprint

COMMANDS = ("app", "superlink", "register", "run", "supernode", "simulate", "join", "step", "status", "units")
HEAVY = ("flwr", "ray", "grpc", "httpx", "torch", "opacus", "diffusers", "pyarrow", "cryptography")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_with_an_example(fedsynth, command):
    code, out, _ = fedsynth("federate", command, "--help")
    assert code == 0
    assert f"Example: fedsynth federate {command} " in out
    assert "--json" in out
    assert "--quiet" in out


def imported_after(lines):
    script = (
        f"from fedsynth_cli.app import run\nfor line in {lines!r}: assert run(line) == 0\n"
        f"import sys\nprint('IMPORTED', *[name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.rsplit("IMPORTED", 1)[1].split())


def test_help_imports_nothing_heavy():
    assert imported_after([["federate", command, "--help"] for command in COMMANDS]) == set()


def test_terms_are_written_without_flower_and_torch(tmp_path):
    line = ["federate", "app", "fedavg", "--clients", "2", "-o", str(tmp_path / "app"), "--quiet"]
    assert imported_after([line]) & {"flwr", "ray", "torch"} == set()


def test_the_fingerprint_is_that_of_ssh_keygen(tmp_path):
    """A key, and what OpenSSH's ssh-keygen -l printed of it."""
    key = (
        "ecdsa-sha2-nistp384 "
        "AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBCuUVAG+bU9TbSej80odG5y16CGJHqg2m7QRGzbNgyx7feIruNJQbMST5ycx"
        "oIyEIJcqo9H+KdI/w7lvYswyNixVlSEPwuXorE1tiwZbb0iE4mB4GB2hV1AYCrYgXy9E4w== a\n"
    )
    (tmp_path / "a.pub").write_text(key)
    assert fingerprint(tmp_path / "a.pub") == "SHA256:9sRFG55lXOfHuaixO0lTkW+8BW0L82uVDzQ480Xg2/g"


@pytest.mark.parametrize("content", ["nonsense", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8V"])
def test_what_is_no_public_key_for_flower(fedsynth, tmp_path, content):
    (tmp_path / "key.pub").write_text(content)
    link = ["--superlink", "127.0.0.1:1", "--root-certificates", tmp_path / "ca.pem"]
    code, _, err = fedsynth("federate", "register", tmp_path / "key.pub", "--name", "a", *link)
    assert code == 3
    assert "no public elliptic-curve key" in err
