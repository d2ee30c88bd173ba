"""The egress ledger: each entry is chained to the one before, and every change of the past shows."""

import json
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.digests import ZEROS, canonical_json, sha256_hex
from artifacts.errors import InputError, VerificationError
from artifacts.ledgers import chain, egress


def digest(number):
    return sha256_hex(str(number).encode())


def enter(path, forge, file, number, **changes):
    with egress.locked(path) as book:
        book.enter(file=file, sha256=digest(number), size=number, metadata=forge.metadata("message", **changes))


@pytest.fixture
def book(tmp_path, forge):
    """Four entries."""
    path = tmp_path / "egress.jsonl"
    for number in range(4):
        enter(path, forge, f"message-{number}", number, round=number)
    return path


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


def test_each_entry_carries_the_digest_of_the_one_before(book):
    lines = [line.rstrip(b"\n") for line in lines_of(book)]
    previous = ZEROS
    for number, line in enumerate(lines, start=1):
        entry = json.loads(line)
        assert entry["previous"] == previous and entry["seq"] == number
        previous = sha256_hex(line)
    chain = egress.read(book)
    assert chain.head == previous and len(chain.entries) == 4 and not chain.unfinished_tail


def test_an_entry_says_file_digest_size_kind_round_events_and_disclosures(book):
    entry = json.loads(lines_of(book)[2])
    assert {name: entry[name] for name in entry if name not in ("previous", "seq")} == {
        "file": "message-2", "sha256": digest(2), "bytes": 2, "kind": "message", "round": 2, "picked": False,
        "privacy": [], "disclosures": ["update"],
    }  # fmt: skip


def test_the_ledger_is_for_its_owner_alone(book):
    assert stat.S_IMODE(book.stat().st_mode) == 0o600


def test_the_same_bytes_add_nothing_and_other_bytes_add_an_entry(book, forge):
    before = book.read_bytes()
    enter(book, forge, "message-3", 3, round=3)
    assert book.read_bytes() == before
    enter(book, forge, "message-3", 99, round=3)
    enter(book, forge, "message-3", 3, round=3)
    chain = egress.read(book)
    assert [e.sha256 for e in chain.entries[3:]] == [digest(3), digest(99), digest(3)]
    assert chain.latest("message-3").seq == 6 and chain.latest("none") is None


def test_an_entry_is_only_ever_appended(tmp_path, forge):
    path, before = tmp_path / "egress.jsonl", b""
    for number in range(5):
        enter(path, forge, "m", number)
        after = path.read_bytes()
        assert after.startswith(before) and after.count(b"\n") == number + 1
        before = after


CHANGES = {
    "deleted first": (lambda lines: lines[1:], 1),
    "deleted in the middle": (lambda lines: lines[:1] + lines[2:], 2),
    "swapped": (lambda lines: [lines[1], lines[0], *lines[2:]], 1),
    "duplicated": (lambda lines: [*lines[:2], lines[1], *lines[2:]], 3),
    "edited": (lambda lines: [lines[0], lines[1].replace(b'"bytes":1', b'"bytes":9'), *lines[2:]], 3),
    "spaces added": (lambda lines: [lines[0].replace(b",", b", "), *lines[1:]], 1),
    "a field added": (lambda lines: [lines[0].replace(b"{", b'{"a":1,'), *lines[1:]], 1),
    "a field removed": (lambda lines: [lines[0].replace(b'"bytes":0,', b""), *lines[1:]], 1),
    "an empty line": (lambda lines: [lines[0], b"\n", *lines[1:]], 2),
    "not JSON": (lambda lines: [*lines[:3], b"deleted\n"], 4),
    "not UTF-8": (lambda lines: [*lines[:3], b"\xff\xfe\n"], 4),
    "a number that is none": (lambda lines: [*lines[:3], lines[3].replace(b'"bytes":3', b'"bytes":NaN')], 4),
    "nested without end": (lambda lines: [*lines[:3], b"[" * 100_000 + b"\n"], 4),
    "a file that is a list": (lambda lines: [*lines[:3], lines[3].replace(b'"message-3"', b"[]")], 4),
    "a sequence number that is true": (lambda lines: [lines[0].replace(b'"seq":1', b'"seq":true')], 1),
    "a line torn in the middle": (lambda lines: [lines[0][:40] + b"\n", *lines[1:]], 1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_past_is_found_by_line(book, forge, name):
    change, line = CHANGES[name]
    changed = b"".join(change(lines_of(book)))
    book.write_bytes(changed)
    with pytest.raises(VerificationError, match=f"egress.jsonl, line {line}:"):
        egress.read(book)
    with pytest.raises(VerificationError, match=f"line {line}:"):
        enter(book, forge, "message-9", 9)
    assert book.read_bytes() == changed, "a broken ledger is evidence: nothing may be added to it"


@given(data=st.data())
@settings(max_examples=100)
def test_any_edit_before_the_last_line_is_found(tmp_path_factory, forge, data):
    path = tmp_path_factory.mktemp("ledger") / "egress.jsonl"
    for number in range(3):
        enter(path, forge, f"m{number}", number)
    whole = path.read_bytes()
    last = whole[:-1].rfind(b"\n")
    at = data.draw(st.integers(0, last - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != whole[at]))
    path.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
    with pytest.raises(VerificationError):
        egress.read(path)


def test_every_killed_append_is_forgotten_and_the_next_entry_goes_on(book, forge):
    whole = book.read_bytes()
    start = whole[:-1].rfind(b"\n") + 1
    for length in range(start, len(whole)):
        book.write_bytes(whole[:length])
        chain = egress.read(book)
        assert len(chain.entries) == 3 and chain.unfinished_tail == (length > start)
        enter(book, forge, "message-3", 3, round=3)
        assert book.read_bytes() == whole


def test_a_ledger_that_is_not_there_is_empty(tmp_path):
    chain = egress.read(tmp_path / "none.jsonl")
    assert chain.entries == [] and chain.head == ZEROS


def test_a_folder_in_the_ledger_s_place_is_an_input_error(tmp_path, forge):
    (tmp_path / "egress.jsonl").mkdir()
    with pytest.raises(InputError, match="Is a directory"):
        egress.read(tmp_path / "egress.jsonl")
    with pytest.raises(InputError, match="Is a directory"):
        enter(tmp_path / "egress.jsonl", forge, "m", 1)


def test_the_events_of_a_file_stand_in_its_entry(tmp_path, forge):
    event = {"unit": "record", "mechanism": "gaussian", "noise_multiplier": 1.5}
    enter(tmp_path / "egress.jsonl", forge, "m", 1, privacy=(event,))
    line = lines_of(tmp_path / "egress.jsonl")[0].rstrip(b"\n")
    assert json.loads(line)["privacy"] == [event] and canonical_json(json.loads(line)).encode() == line


def test_each_line_is_parsed_once_by_a_process_that_appends_many(tmp_path):
    """The test of a line is asked once for each line, so that a run of n entries parses n lines and not n²/2."""
    path, asked = tmp_path / "log.jsonl", []

    def is_entry(fields):
        asked.append(fields["seq"])
        return True

    for number in range(20):
        with chain.locked(path, is_entry) as log:
            assert len(log.read().entries) == number
            log.append({"number": number})
    with chain.locked(path, is_entry) as log:
        assert [fields["number"] for fields in log.read().entries] == list(range(20))
    assert asked == list(range(1, 21))


def test_what_was_checked_under_one_kind_of_log_is_checked_again_under_another(book):
    with chain.locked(book, lambda fields: True) as log:
        log.read()
    with (
        pytest.raises(VerificationError, match="line 1: not a ledger entry"),
        chain.locked(book, lambda _: False) as log,
    ):
        log.read()


@pytest.mark.parametrize("other", [False, True], ids=["by the process that wrote the rest", "by another process"])
def test_an_append_parses_at_most_one_line_of_a_long_ledger(tmp_path, forge, monkeypatch, other):
    path, parsed, real = tmp_path / "egress.jsonl", [], chain.parse_json
    for number in range(50):
        enter(path, forge, f"message-{number}", number)
    if other:
        monkeypatch.setattr(chain, "_known", chain._Known())
    monkeypatch.setattr(chain, "parse_json", lambda line, **how: parsed.append(line) or real(line, **how))
    enter(path, forge, "message-50", 50)
    assert len(parsed) == (1 if other else 0), "the last line is checked, digests vouch for those before it"
    assert len(egress.read(path).entries) == 51


def test_an_append_by_the_same_process_does_not_read_the_ledger_again(book, forge, monkeypatch):
    monkeypatch.setattr(chain, "_contents", None)  # would fail
    enter(book, forge, "message-4", 4)
    monkeypatch.undo()
    assert [entry.file for entry in egress.read(book).entries] == [f"message-{number}" for number in range(5)]


def test_what_another_process_added_is_found(book, forge, monkeypatch):
    mine, others = chain._known, chain._Known()
    monkeypatch.setattr(chain, "_known", others)
    enter(book, forge, "theirs", 9)
    monkeypatch.setattr(chain, "_known", mine)
    enter(book, forge, "theirs", 9)
    enter(book, forge, "mine", 10)
    assert [entry.file for entry in egress.read(book).entries[4:]] == ["theirs", "mine"]


def test_the_last_entry_on_a_file_is_found_whatever_its_name(tmp_path):
    path, names = tmp_path / "log.jsonl", ["a", 'a"', "\\", "ä", "a,b", '","file":"a']
    with chain.locked(path, lambda _: True) as log:
        for name in [*names, *names]:
            log.append({"file": name})
        for number, name in enumerate(names, start=len(names) + 1):
            assert log.latest(name)["seq"] == number
        assert log.latest("none") is None


def test_a_name_inside_an_event_is_not_taken_for_a_file(tmp_path):
    path = tmp_path / "log.jsonl"
    with chain.locked(path, lambda _: True) as log:
        log.append({"file": "a", "inner": {"file": "b"}})
        assert log.latest("b") is None and log.latest("a")["seq"] == 1
