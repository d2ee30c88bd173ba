"""A file is whole or absent; what a killed writer left is swept, what another is writing is not."""

import errno
import fcntl
import os
import stat

import pytest

from artifacts.errors import InputError
from artifacts.writing import atomic


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_whole_and_alone(tmp_path):
    path = tmp_path / "new" / "folder" / "f.bin"
    atomic.write(path, [b"one ", b"two"], force=False)
    assert path.read_bytes() == b"one two" and names(path.parent) == ["f.bin"]
    assert path.stat().st_nlink == 1


def test_an_existing_file_is_kept_without_force_and_replaced_with_it(tmp_path):
    path = tmp_path / "f.bin"
    atomic.write(path, [b"old"], force=False)
    with pytest.raises(InputError, match=r"f\.bin already exists\. Add --force"):
        atomic.write(path, [b"new"], force=False)
    assert path.read_bytes() == b"old"
    atomic.write(path, [b"new"], force=True)
    assert path.read_bytes() == b"new" and names(tmp_path) == ["f.bin"]


def test_whoever_is_second_to_a_free_name_is_refused_and_loses_nothing(tmp_path):
    """Both saw that the name was free; the link, not the look, decides."""
    path = tmp_path / "f.bin"
    with atomic.staged(path, [b"mine"]) as temporary:
        path.write_bytes(b"theirs")
        with pytest.raises(InputError, match="already exists"):
            atomic.place(temporary, path, force=False)
    assert path.read_bytes() == b"theirs" and names(tmp_path) == ["f.bin"]


def test_nothing_is_seen_under_the_name_while_it_is_written(tmp_path):
    path = tmp_path / "f.bin"

    def chunks():
        yield b"half"
        assert not path.exists()
        yield b"whole"

    atomic.write(path, chunks(), force=False)
    assert path.read_bytes() == b"halfwhole"


def test_a_writer_that_fails_halfway_leaves_nothing(tmp_path):
    path = tmp_path / "f.bin"
    path.write_bytes(b"old")

    def chunks():
        yield b"half"
        raise RuntimeError("the power went")

    with pytest.raises(RuntimeError):
        atomic.write(path, chunks(), force=True)
    assert path.read_bytes() == b"old" and names(tmp_path) == ["f.bin"]


@pytest.mark.parametrize("call", ["fsync", "link", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_refusal_of_the_system_is_reported_and_leaves_nothing(tmp_path, monkeypatch, call, number):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    path = tmp_path / "f.bin"
    monkeypatch.setattr(atomic.os, call, refuse)
    with pytest.raises(InputError, match=rf"cannot write .*f\.bin: {os.strerror(number)}"):
        atomic.write(path, [b"x"], force=call == "replace")
    monkeypatch.undo()
    assert names(tmp_path) == []


def test_data_and_name_are_on_the_disk_before_it_returns(tmp_path, monkeypatch):
    """The file is synced before it gets its name, the folder after."""
    calls, path = [], tmp_path / "f.bin"
    real_fsync, real_link = os.fsync, os.link

    def fsync(descriptor):
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        real_fsync(descriptor)

    def link(*arguments):
        calls.append("link")
        real_link(*arguments)

    monkeypatch.setattr(atomic.os, "fsync", fsync)
    monkeypatch.setattr(atomic.os, "link", link)
    atomic.write(path, [b"x"], force=False)
    assert calls == ["file", "link", "folder"]


def test_the_leftover_of_a_killed_writer_is_swept_by_the_next(tmp_path):
    for number in range(3):
        (tmp_path / f".f.bin.{number}.part").write_bytes(b"half")
    (tmp_path / ".g.bin.0.part").write_bytes(b"another file's")
    atomic.write(tmp_path / "f.bin", [b"x"], force=False)
    assert names(tmp_path) == [".g.bin.0.part", "f.bin"]


def test_names_with_wildcards_sweep_only_their_own(tmp_path):
    (tmp_path / ".ab.0.part").write_bytes(b"another's")
    for name in ("a*", "a?", "[a]b"):
        atomic.write(tmp_path / name, [b"x"], force=False)
    assert (tmp_path / ".ab.0.part").exists()


def test_the_temporary_file_of_a_writer_at_work_is_not_swept(tmp_path):
    path = tmp_path / "f.bin"
    with atomic.staged(path, [b"first"]) as temporary:
        atomic.write(path, [b"second"], force=True)
        assert temporary.exists()
        atomic.place(temporary, path, force=True)
    assert path.read_bytes() == b"first" and names(tmp_path) == ["f.bin"]


def test_a_temporary_file_swept_before_its_lock_is_made_again(tmp_path, monkeypatch):
    """Between creating the file and locking it another writer may take it for a leftover."""
    path, swept = tmp_path / "f.bin", []
    real = fcntl.flock

    def flock(descriptor, operation):
        if not swept and operation == fcntl.LOCK_EX:
            swept.extend(tmp_path.glob(".f.bin.*.part"))
            swept[0].unlink()
        return real(descriptor, operation)

    monkeypatch.setattr(atomic.fcntl, "flock", flock)
    atomic.write(path, [b"x"], force=False)
    assert swept and path.read_bytes() == b"x" and names(tmp_path) == ["f.bin"]


@pytest.mark.parametrize("name", ["x" * 300, "x" * 250])
def test_a_name_that_the_system_does_not_take_is_an_input_error(tmp_path, name):
    with pytest.raises(InputError, match="File name too long"):
        atomic.write(tmp_path / name, [b"x"], force=False)
    assert names(tmp_path) == []


def test_a_folder_in_the_file_s_place_is_kept(tmp_path):
    (tmp_path / "f.bin").mkdir()
    for force in (False, True):
        with pytest.raises(InputError):
            atomic.write(tmp_path / "f.bin", [b"x"], force=force)
    assert (tmp_path / "f.bin").is_dir() and names(tmp_path) == ["f.bin"]
