"""The last head of a spend ledger is remembered outside the client's folder: one that was put back is refused."""

import json
import shutil
import stat

import pytest

from artifacts.digests import sha256_hex
from artifacts.errors import InputError, VerificationError
from artifacts.identity import keys
from artifacts.identity.keys import Key
from artifacts.ledgers import remembered, spend

KEY, OTHER = Key(bytes(range(32))), Key(bytes(range(1, 33)))


def reserve(path, name, key=KEY):
    with spend.locked(path, key) as book:
        book.reserve(stage="train-client", context=sha256_hex(name.encode()), data=["d" * 64], events=[])


def spent(folder, names="ab", key=KEY):
    """A ledger with a reservation for each letter."""
    path = folder / "spend.jsonl"
    spend.open_for(path, key)
    for name in names:
        reserve(path, name, key)
    return path


@pytest.fixture
def book(tmp_path):
    return spent(tmp_path)


def test_what_is_remembered_and_for_whom(book):
    (one,) = remembered.known(KEY)
    lines = book.read_text().splitlines()
    assert (one.ledger, one.entries) == (str(book), 3)
    assert one.second == json.loads(lines[2])["previous"] != one.head
    assert stat.S_IMODE(one.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(one.path.parent.stat().st_mode) == 0o700
    text = f"{one.path} {one.path.read_text()}"
    assert KEY.secret.hex() not in text and KEY.derive("spend ledger").hex() not in text
    assert remembered.known(OTHER) == []


@pytest.mark.parametrize("kept", [1, 2])
def test_a_ledger_from_a_backup_is_refused(book, kept):
    lines = book.read_bytes().splitlines(keepends=True)
    book.write_bytes(b"".join(lines[:kept]))
    with pytest.raises(VerificationError, match=rf"it had 3 entries, as .*json says, and has {kept} now"):
        reserve(book, "c")
    assert book.read_bytes() == b"".join(lines[:kept])
    book.write_bytes(b"".join(lines))
    reserve(book, "c")


def test_a_ledger_that_went_another_way_is_refused(book, tmp_path):
    backup = tmp_path / "backup"
    lines = book.read_bytes().splitlines(keepends=True)
    backup.write_bytes(b"".join(lines[:2]))
    (one,) = remembered.known(KEY)
    text = one.path.read_text()
    one.path.unlink()
    book.write_bytes(backup.read_bytes())
    reserve(book, "x")
    one.path.write_text(text)
    with pytest.raises(VerificationError, match="has others now"):
        reserve(book, "y")


def test_a_copy_of_the_folder_cannot_be_spent_from_a_second_time(book, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(book, copy)
    reserve(book, "c")
    with pytest.raises(VerificationError, match="had 4 entries"):
        reserve(copy / book.name, "d")


def test_a_folder_may_be_moved_and_a_key_may_have_two_ledgers(book, tmp_path):
    (tmp_path / "new").mkdir()
    moved = book.rename(tmp_path / "new/spend.jsonl")
    reserve(moved, "c")
    (tmp_path / "second").mkdir()
    second = spent(tmp_path / "second", "e")
    for path in (moved, second, moved):
        reserve(path, f"{len(path.read_bytes()) % 10}")
    assert [one.ledger for one in remembered.known(KEY)].count(str(second)) == 1


def test_the_ways_out(book, tmp_path, monkeypatch):
    """The file removed, by who answers for the data; or nothing remembered from the start."""
    lines = book.read_bytes().splitlines(keepends=True)
    book.write_bytes(lines[0])
    monkeypatch.setenv(remembered.SWITCH, "off")
    reserve(book, "z")
    monkeypatch.delenv(remembered.SWITCH)
    with pytest.raises(VerificationError):
        reserve(book, "y")
    (one,) = remembered.known(KEY)
    one.path.unlink()
    reserve(book, "y")
    monkeypatch.setenv(remembered.SWITCH, "perhaps")
    with pytest.raises(InputError, match="«off»"):
        reserve(book, "x")


def test_a_state_folder_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(InputError, match="XDG_STATE_HOME"):
        spent(tmp_path, "a")


def test_a_simulation_is_not_remembered(tmp_path):
    simulated = keys.simulated(0, "00")
    spent(tmp_path, key=simulated)
    assert remembered.known(simulated) == []


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema":"fedsynth.head/1"}'])
def test_a_damaged_one_is_named(book, text):
    (one,) = remembered.known(KEY)
    one.path.write_text(text)
    with pytest.raises(InputError, match=one.path.name):
        reserve(book, "c")
