"""«Could not» is never «failed»: a read-only disk, a full one, files that may not be read, a kill."""

import os
import shutil
import signal
import stat
import tempfile
from pathlib import Path

import pytest

from artifacts.errors import InputError, VerificationError
from artifacts.identity import keys
from stages.audit import replay
from stages.audit.obstacles import is_gone, obstacle

NOBODY = 65534
MESSAGE = "clients/00/outbox/message-0001.safetensors"


@pytest.fixture
def given_away(finished_run):
    """A run of another user's: to root, rights mean nothing."""
    if os.geteuid():
        pytest.skip("only root can give files away")
    with tempfile.TemporaryDirectory() as folder:  # others may not enter pytest's own
        run = Path(shutil.copytree(finished_run, Path(folder) / "run"))
        for path in (run.parent, *run.parent.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        yield run


def as_nobody(command_line, *arguments):
    def call():
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        return command_line(*arguments)

    return call


def test_evidence_on_a_read_only_disk_is_audited_and_replayed(run_copy, mounts, in_child, command_line, forge):
    before = forge.snapshot(run_copy)

    def attempt():
        mounts.read_only(run_copy)
        return command_line("audit", run_copy), command_line("audit", run_copy, "--replay")

    assert [code for code, _ in in_child(attempt)] == [0, 0]
    assert forge.snapshot(run_copy) == before


@pytest.mark.parametrize("size", ["4k", "16k"])
def test_a_replay_without_room_accuses_nobody(run_copy, tmp_path, mounts, in_child, command_line, monkeypatch, size):
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))

    def attempt():
        mounts.small_disk(cache, size)
        return command_line("audit", run_copy, "--replay")

    code, err = in_child(attempt)
    assert code == 6 and "INCOMPLETE" in err and "could not be checked; nothing that was looked at is wrong" in err
    assert in_child(command_line, "audit", run_copy, "--replay")[0] == 0


@pytest.mark.parametrize(
    "name",
    [MESSAGE, "clients/00/private/update-0001.safetensors", "clients/00/private/client.key", "clients/00/egress.jsonl",
     "clients/00/private/spend.jsonl", "public/model-0000.safetensors", "server/private/model-0001.lineage.json",
     "clients/00/outbox", "clients/00/private", "public"],
)  # fmt: skip
def test_what_may_not_be_read_is_unknown_and_the_rest_is_audited(given_away, in_child, command_line, forge, name):
    audit = as_nobody(command_line, "audit", given_away)
    assert in_child(audit) == (0, "")
    (given_away / name).chmod(0)
    code, err = in_child(audit)
    assert code == 6 and "could not be checked" in err, err
    # What is wrong elsewhere is found all the same, and counts for more.
    wrong = given_away / "clients/01/outbox/message-0001.safetensors"
    data = wrong.read_bytes()
    wrong.write_bytes(forge.flip(data, len(data) - 1, 0))
    code, err = in_child(audit)
    assert code == 5 and err.startswith("fedsynth: FAIL: 1 failure"), err


def test_a_replay_that_is_killed_leaves_no_key_behind(run_copy, tmp_path, in_child, command_line, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    private = run_copy / "clients/00/private"
    before = {path.name for path in private.iterdir()}
    child = os.fork()
    if not child:
        replay.recipe_for = lambda recipe: os.kill(os.getpid(), signal.SIGKILL)
        command_line("audit", run_copy, "--replay")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    (left,) = (tmp_path / "cache/fedsynth").iterdir()
    assert stat.S_IMODE(left.stat().st_mode) == 0o700
    secret = keys.read(private / "client.key").secret
    files = [path for path in left.rglob("*") if path.is_file() and not path.is_symlink()]
    assert files and all(secret not in path.read_bytes() for path in files)
    assert {path.name for path in private.iterdir()} == before
    assert in_child(command_line, "audit", run_copy, "--replay")[0] == 0
    assert list((tmp_path / "cache/fedsynth").iterdir()) == [], "the next replay clears up"


def test_what_counts_as_an_obstacle():
    def caused(cause):
        error = InputError("cannot read it")
        error.__cause__ = cause
        return error

    assert obstacle(caused(OSError(5, "Input/output error"))) == "Input/output error"
    assert obstacle(MemoryError()) == obstacle(caused(MemoryError())) == "memory was short"
    assert is_gone(caused(FileNotFoundError(2, "No such file or directory")))
    for found in (VerificationError("the chain is broken"), ValueError("x"), OSError("a corrupt page"), TypeError("x")):
        assert obstacle(found) is None
    assert obstacle(caused(IsADirectoryError(21, "Is a directory"))) is None
