"""The spend ledger: what was charged stays charged, one computation has one output, and every change shows."""

import json
import os
import stat
import subprocess
import sys

import pytest

from artifacts.digests import ZEROS, canonical_json, sha256_hex
from artifacts.errors import InputError, VerificationError
from artifacts.identity import keys
from artifacts.identity.keys import Key
from artifacts.ledgers import remembered, spend
from stages.keygen import keygen, settle

FIRST, SECOND = Key(bytes(range(32))), Key(bytes(range(1, 33)))
EVENT = {"unit": "record", "noise_multiplier": 1.5, "steps": 10}


def digest(name):
    return sha256_hex(str(name).encode())


def reserve(path, name, key=FIRST):
    with spend.locked(path, key) as book:
        book.reserve(stage="train-generator", context=digest(name), data=[digest("data")], events=[EVENT])


def release(path, name, output, key=FIRST, part="step 10"):
    with spend.locked(path, key) as book:
        book.release(context=digest(name), part=part, output=digest(output), event=digest(output))


def forget(key=FIRST):
    """What is remembered of the ledger outside its folder."""
    for one in remembered.known(key):
        one.path.unlink()


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


@pytest.fixture
def book(tmp_path):
    """A key, a computation that ended, and one that did not."""
    path = tmp_path / "spend.jsonl"
    spend.open_for(path, FIRST)
    reserve(path, "a")
    release(path, "a", "weights")
    reserve(path, "b")
    return path


def test_the_entries_and_their_chain(book):
    previous = ZEROS
    for number, line in enumerate(lines_of(book), start=1):
        fields = json.loads(line)
        assert canonical_json(fields).encode() + b"\n" == line
        assert (fields["seq"], fields["previous"]) == (number, previous)
        previous = sha256_hex(line.rstrip(b"\n"))
    opened, reserved, released, _ = (json.loads(line) for line in lines_of(book))
    assert opened.keys() == {"seq", "previous", "entry", "key"}
    assert {n: reserved[n] for n in ("entry", "stage", "context", "data", "events", "key")} == {
        "entry": "reserved", "stage": "train-generator", "context": digest("a"), "data": [digest("data")],
        "events": [EVENT], "key": opened["key"],
    }  # fmt: skip
    assert (released["entry"], released["part"], released["output"]) == ("released", "step 10", digest("weights"))


def test_the_ledger_is_for_its_owner_alone_and_does_not_hold_the_key(book):
    assert stat.S_IMODE(book.stat().st_mode) == 0o600
    assert FIRST.secret.hex() not in book.read_text()
    assert json.loads(lines_of(book)[0])["key"] == FIRST.derive("spend ledger").hex()


def test_what_is_charged_and_what_is_free(book):
    with spend.locked(book, FIRST) as found:
        assert found.charged() == [[EVENT], [EVENT]]
        assert found.has(digest("a"))
        assert found.has(digest("b"))
        assert not found.has(digest("c"))
        found.reserve(stage="s", context=digest("c"), data=[], events=[EVENT, EVENT])
        assert found.has(digest("c")), "what was just entered counts at once"
        assert found.charged()[-1] == [EVENT, EVENT]


def test_an_identical_output_adds_nothing_and_another_is_refused(book):
    before = book.read_bytes()
    release(book, "a", "weights")
    assert book.read_bytes() == before
    with pytest.raises(VerificationError, match="the same noise") as raised:
        release(book, "a", "other weights")
    assert raised.value.exit_code == 5
    assert book.read_bytes() == before
    # Another part of the same computation, and another computation, have outputs of their own.
    release(book, "a", "earlier weights", part="step 5")
    release(book, "b", "other weights")
    with pytest.raises(VerificationError, match="the same noise"):
        release(book, "a", "weights", part="step 5")


def test_a_missing_ledger_is_refused_and_not_made(tmp_path):
    path = tmp_path / "spend.jsonl"
    with pytest.raises(InputError, match="what was spent before cannot be known"):
        reserve(path, "a")
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b'{"entry":"opened"'])
def test_a_ledger_that_was_emptied_is_refused(book, content):
    book.write_bytes(content)
    with pytest.raises(VerificationError, match="it had 4 entries"):
        reserve(book, "a")
    forget()
    with pytest.raises(InputError, match="another key"):
        reserve(book, "a")


def test_the_ledger_of_another_key_is_refused(book):
    before = book.read_bytes()
    with pytest.raises(InputError, match="another key"):
        reserve(book, "a", key=SECOND)
    assert book.read_bytes() == before


def test_a_rotated_key_goes_on_with_what_was_spent(tmp_path):
    key = tmp_path / "client.key"
    settle(key, FIRST, force=False)
    book = spend.beside(key)
    reserve(book, "a")
    release(book, "a", "weights")
    assert keygen(key, force=True)["spend_ledger"] == str(book)
    rotated = keys.read(key)
    with spend.locked(book, rotated) as found:
        assert found.charged() == [[EVENT]]
        assert not found.has(digest("a")), "another key, other noise: another computation"
    reserve(book, "a", key=rotated)
    release(book, "a", "other weights", key=rotated)
    with spend.locked(book, rotated) as found:
        assert found.charged() == [[EVENT], [EVENT]]


def test_a_key_is_entered_once(tmp_path):
    key = tmp_path / "client.key"
    settle(key, FIRST, force=False)
    before = spend.beside(key).read_bytes()
    settle(key, FIRST, force=True)
    assert spend.beside(key).read_bytes() == before


def test_a_damaged_ledger_keeps_the_old_key(tmp_path):
    key = tmp_path / "client.key"
    settle(key, FIRST, force=False)
    spend.beside(key).write_bytes(b"gone\n")
    with pytest.raises(VerificationError):
        keygen(key, force=True)
    assert keys.read(key) == FIRST


def test_a_key_that_stands_there_is_not_entered_anew(tmp_path):
    key = tmp_path / "client.key"
    settle(key, FIRST, force=False)
    before = spend.beside(key).read_bytes()
    keygen(key)
    with pytest.raises(InputError, match="already holds a key"):
        settle(key, keys.generate(), force=False)
    assert (keys.read(key), spend.beside(key).read_bytes()) == (FIRST, before)


def changed(line, **fields):
    return canonical_json(json.loads(line) | fields).encode() + b"\n"


CHANGES = {
    "the key taken out": (lambda lines: lines[1:], 1),
    "a charge taken out": (lambda lines: [lines[0], *lines[2:]], 2),
    "a charge made less": (lambda lines: [lines[0], changed(lines[1], events=[]), *lines[2:]], 3),
    "swapped": (lambda lines: [lines[0], lines[2], lines[1], lines[3]], 2),
    "repeated": (lambda lines: [*lines, lines[3]], 5),
    "a new kind of entry": (lambda lines: [*lines[:3], changed(lines[3], entry="refunded")], 4),
    "a field too many": (lambda lines: [*lines[:3], changed(lines[3], note="")], 4),
    "an event that is none": (lambda lines: [*lines[:3], changed(lines[3], events=["none"])], 4),
    "data that is no digest": (lambda lines: [*lines[:3], changed(lines[3], data=[None])], 4),
    "no list of events": (lambda lines: [*lines[:3], changed(lines[3], events={})], 4),
    "a context that is none": (lambda lines: [*lines[:3], changed(lines[3], context="a")], 4),
    "an entry that is a list": (lambda lines: [*lines[:3], b"[]\n"], 4),
    "spaces": (lambda lines: [*lines[:3], lines[3].replace(b",", b", ")], 4),
    "no text": (lambda lines: [*lines[:3], b"\xff\n"], 4),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_past_is_found_and_nothing_is_added(book, name):
    change, line = CHANGES[name]
    content = b"".join(change(lines_of(book)))
    book.write_bytes(content)
    for use in (lambda: reserve(book, "c"), lambda: release(book, "b", "x"), lambda: spend.open_for(book, SECOND)):
        with pytest.raises(VerificationError, match=f"spend.jsonl, line {line}:") as raised:
            use()
        assert raised.value.exit_code == 5
    assert book.read_bytes() == content


def test_a_reservation_that_was_killed_while_it_was_written_never_happened(book):
    whole = book.read_bytes()
    start = whole[:-1].rfind(b"\n") + 1
    for length in range(start, len(whole), 7):
        book.write_bytes(whole[:length])
        forget()  # it is remembered after it was written
        with spend.locked(book, FIRST) as found:
            assert len(found.charged()) == 1
            assert not found.has(digest("b"))
        reserve(book, "b")
        assert book.read_bytes() == whole


def test_a_folder_in_the_ledgers_place(tmp_path):
    (tmp_path / "spend.jsonl").mkdir()
    with pytest.raises(InputError, match="Is a directory"):
        reserve(tmp_path / "spend.jsonl", "a")


ONE_MORE = """
import sys, time
from pathlib import Path
from artifacts.ledgers import remembered, spend
from artifacts.identity.keys import Key
me, path = sys.argv[1], Path(sys.argv[2])
print("ready", flush=True)
sys.stdin.read()
for number in range(20):
    with spend.locked(path, Key(bytes(range(32)))) as book:
        spent = len(book.charged())
        time.sleep(0.001)  # long enough to be overtaken, were the ledger not held
        if spent < 25:
            book.reserve(stage="s", context=f"{number:02x}{int(me):062x}", data=[], events=[{}])
"""


def test_two_processes_never_spend_the_same_remainder(tmp_path):
    """Forty wishes, a budget of twenty-five: each looks and reserves under one lock."""
    path = tmp_path / "spend.jsonl"
    spend.open_for(path, FIRST)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ONE_MORE, str(number), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=environment,
        )
        for number in range(2)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout.readline() == b"ready\n"
    for process in processes:
        process.stdin.close()
    for process in processes:
        assert process.wait() == 0
        process.stdout.close()
    entries = [json.loads(line) for line in lines_of(path)][1:]
    assert len(entries) == 25
    assert {int(entry["context"][2:], 16) for entry in entries} == {0, 1}, "both had their turn"
    with spend.locked(path, FIRST) as found:
        assert len(found.charged()) == 25
