"""Whatever ends a shuffle, its temporary files go: at once if it can, else with the next run."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from artifacts.errors import InputError
from artifacts.ledgers import egress
from artifacts.writing.scratch import scratch
from stages.shuffle import shuffle

KILLED = """
import os, signal, sys
from pathlib import Path
import stages.shuffle as module

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def report(done, total, text):
    if text.startswith(sys.argv[1]):
        kill()

if sys.argv[1] == "publish":
    real, module.publish_staged = module.publish_staged, lambda *a, **k: (real(*a, **k), kill())
module.shuffle([Path(p) for p in sys.argv[3:]], Path(sys.argv[2]), parts=3, seed=0, report=report)
"""


def leftovers(federation):
    return [path.name for path in federation.private.glob(".*")] if federation.private.exists() else []


def kill_at(federation, moment):
    line = [sys.executable, "-c", KILLED, moment, str(federation.outbox), *map(str, federation.sent)]
    assert subprocess.run(line).returncode == -signal.SIGKILL


@pytest.mark.parametrize("moment", ["mixing", "wrote synthetic-01", "publish"])
def test_what_a_killed_shuffle_left_is_swept_and_the_next_gives_the_same_bytes(
    federation, new_federation, forge, moment
):
    federation.send_all(30, 40, 50)
    kill_at(federation, moment)
    assert len(leftovers(federation)) == 1 + (moment == "publish"), "a folder, and a lock that nobody holds"
    assert len(federation.parts()) == (moment == "publish"), "nothing is published before all parts are written"
    shuffle(federation.sent, federation.outbox, parts=3, seed=0, force=moment == "publish")
    assert leftovers(federation) == []
    whole = new_federation().send_all(30, 40, 50)
    shuffle(whole.sent, whole.outbox, parts=3, seed=0)
    assert forge.snapshot(federation.outbox) == forge.snapshot(whole.outbox)
    assert len(egress.read(federation.private / "egress.jsonl").entries) == 3


def test_a_next_run_that_is_refused_sweeps_too(federation):
    federation.send_all(30, 40)
    kill_at(federation, "mixing")
    federation.sent[0].write_bytes(b"damaged")
    with pytest.raises(InputError):
        shuffle(federation.sent, federation.outbox, parts=3, seed=0)
    assert leftovers(federation) == []


def test_the_folder_of_a_shuffle_at_work_is_not_swept(federation):
    federation.send_all(30, 40)
    with scratch(federation.private, "shuffle") as folder:
        shuffle(federation.sent, federation.outbox, parts=2, seed=0)
        assert folder.is_dir() and folder.stat().st_mode & 0o077 == 0
    assert leftovers(federation) == []


def test_a_folder_swept_before_its_lock_is_made_again(tmp_path, monkeypatch):
    real, swept = os.open, []

    def slow(path, *arguments, **options):
        descriptor = real(path, *arguments, **options)
        if not swept:
            swept.append(path)
            path.rmdir()
        return descriptor

    monkeypatch.setattr("artifacts.writing.scratch.os.open", slow)
    with scratch(tmp_path, "work") as folder:
        assert swept and folder != swept[0] and folder.is_dir()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("moment", ["mixing", "wrote synthetic-01"])
def test_ctrl_c_leaves_nothing(federation, forge, moment):
    federation.send_all(30, 40)
    before = forge.snapshot(federation.root)

    def report(_done, _total, text):
        if text.startswith(moment):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shuffle(federation.sent, federation.outbox, parts=3, seed=0, report=report)
    assert forge.snapshot(federation.root) == before and leftovers(federation) == []


@pytest.mark.parametrize("call", ["os.pwrite", "artifacts.formats.dataset_writing.dataset_rows.write_rows"])
def test_a_full_disk_is_reported_and_leaves_nothing(federation, forge, monkeypatch, call):
    federation.send_all(30, 40)
    before = forge.snapshot(federation.root)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(call, full)
    with pytest.raises(InputError, match=r"cannot write .*: No space left on device"):
        shuffle(federation.sent, federation.outbox, parts=3, seed=0)
    assert forge.snapshot(federation.root) == before and leftovers(federation) == []


def test_an_input_that_changes_while_it_is_read_is_refused(federation, forge):
    federation.send_all(30, 40)
    before = forge.snapshot(federation.root / "server")
    data = federation.sent[1].read_bytes()

    def report(_done, _total, text):
        if text.startswith("mixing"):
            federation.sent[1].write_bytes(data)

    with pytest.raises(InputError, match=r"01/outbox/synthetic\.parquet changed while it was read"):
        shuffle(federation.sent, federation.outbox, parts=3, seed=0, report=report)
    assert forge.snapshot(federation.root / "server") == before
