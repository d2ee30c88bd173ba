"""One process at a time in a folder: the second is refused or waits, and a lock ends with its process."""

import os
import signal
import time

import pytest

from artifacts.errors import InputError
from artifacts.writing import locks


def holding(folder, **options):
    """A child that holds the folder until it is killed; returns its process when it does."""
    ready, tell = os.pipe()
    child = os.fork()
    if not child:
        with locks.held(folder, "somebody", **options):
            os.write(tell, b".")
            time.sleep(60)
        os._exit(0)
    os.close(tell)
    os.read(ready, 1)
    os.close(ready)
    return child


def kill(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_the_second_is_reported_who_holds_it_and_what_to_do(tmp_path):
    child = holding(tmp_path)
    try:
        expected = rf"{tmp_path} is in use: somebody \(process {child} on .*\) is at work there\. Wait for its end, or"
        with pytest.raises(InputError, match=expected) as refused, locks.held(tmp_path, "me"):
            pass
        assert refused.value.exit_code == 3
    finally:
        kill(child)


def test_a_killed_process_holds_nothing_and_the_next_clears_up(tmp_path):
    kill(holding(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [".lock.part"]
    with locks.held(tmp_path, "me"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_made_for_it_goes_if_nothing_was_written(tmp_path):
    with pytest.raises(ZeroDivisionError), locks.held(tmp_path / "a/run", "me"):
        _ = 1 / 0
    assert not (tmp_path / "a/run").exists()
    with locks.held(tmp_path / "a/run", "me"):
        (tmp_path / "a/run/file").touch()
    assert [path.name for path in (tmp_path / "a/run").iterdir()] == ["file"]


def test_an_error_in_the_block_lets_go(tmp_path):
    with pytest.raises(ZeroDivisionError), locks.held(tmp_path, "me"):
        _ = 1 / 0
    with locks.held(tmp_path, "me"):
        pass


def test_those_who_wait_never_meet(tmp_path):
    """Four processes count together, while the file of the lock comes and goes: that must let nobody slip in."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    children = []
    for _ in range(4):
        child = os.fork()
        if not child:
            for _ in range(50):
                with locks.held(tmp_path, "one of four", wait=True):
                    counter.write_text(str(int(counter.read_text()) + 1))
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert counter.read_text() == "200"


def test_a_lock_of_somebody_else_under_the_same_name_is_not_removed(tmp_path):
    """Someone deleted the folder and began again in it while the first still ran."""
    with locks.held(tmp_path, "me"):
        (tmp_path / ".lock.part").unlink()
        child = holding(tmp_path)
    try:
        with pytest.raises(InputError, match="is in use"), locks.held(tmp_path, "me"):
            pass
    finally:
        kill(child)
