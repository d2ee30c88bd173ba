"""A deleted or edited ledger line, a file that no line records: `audit` says so and ends with exit code 5."""

import json

import pytest

from artifacts.digests import canonical_json, sha256_hex


@pytest.fixture
def book(run_copy):
    return run_copy / "clients/00/egress.jsonl"


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


def edit(line, **changes):
    return canonical_json(json.loads(line) | changes).encode() + b"\n"


def audited(fedsynth, folder):
    """The audit of a run that must fail: what it printed."""
    code, out, err = fedsynth("audit", folder)
    assert code == 5 and "FAIL" in err and len(err.strip().splitlines()) == 1 and "Traceback" not in err
    code, as_json, _ = fedsynth("audit", folder, "--json")
    assert code == 5 and json.loads(as_json)["passed"] is False
    return out


def test_a_finished_run_passes(run_copy, fedsynth):
    code, out, _ = fedsynth("audit", run_copy)
    assert code == 0 and "PASS" in out


CHANGES = {
    "first deleted": (lambda lines: lines[1:], "line 1"),
    "last deleted": (lambda lines: lines[:1], "message-0002.safetensors: in the outbox, but not in the ledger"),
    "all deleted": (lambda lines: [], "in the outbox, but not in the ledger"),
    "swapped": (lambda lines: lines[::-1], "line 1"),
    "duplicated": (lambda lines: [lines[0], *lines], "line 2"),
    "first edited": (lambda lines: [edit(lines[0], bytes=1), lines[1]], "line 2"),
    "last edited": (lambda lines: [lines[0], edit(lines[1], sha256="0" * 64)], "not the bytes that the ledger records"),
    "last renamed": (lambda lines: [lines[0], edit(lines[1], file="other")], "not in the ledger"),
    "disclosure hidden": (lambda lines: [lines[0], edit(lines[1], disclosures=[])], "describes it otherwise"),
    "round changed": (lambda lines: [lines[0], edit(lines[1], round=7)], "describes it otherwise"),
    "reformatted": (lambda lines: [lines[0].replace(b":", b": "), lines[1]], "line 1"),
    "not JSON": (lambda lines: [b"nothing\n", lines[1]], "line 1"),
    "nested without end": (lambda lines: [b"[" * 10**5 + b"\n", lines[1]], "line 1"),
    "a number that is none": (lambda lines: [lines[0].replace(b'"seq":1', b'"seq":NaN'), lines[1]], "line 1"),
    "a name that is a list": (lambda lines: [edit(lines[0], file=["a"]), lines[1]], "line 1"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_line_is_found(run_copy, book, fedsynth, name):
    change, words = CHANGES[name]
    book.write_bytes(b"".join(change(lines_of(book))))
    assert words in audited(fedsynth, run_copy)
    assert words in audited(fedsynth, run_copy / "clients/00")


@pytest.mark.parametrize("name", [name for name, (_, words) in CHANGES.items() if words.startswith("line")])
def test_nothing_more_is_sent_under_a_broken_ledger(run_copy, book, refused, commands, name):
    book.write_bytes(b"".join(CHANGES[name][0](lines_of(book))))
    arguments, _ = commands(run_copy)["encode-update"]
    refused(run_copy, *arguments, code=5, said=[book, CHANGES[name][1]])


def test_a_ledger_that_is_gone_is_found(run_copy, book, fedsynth):
    book.unlink()
    assert "not in the ledger" in audited(fedsynth, run_copy)


def test_the_server_s_ledger_is_audited_too(run_copy, fedsynth):
    book = run_copy / "server/private/egress.jsonl"
    book.write_bytes(b"".join(lines_of(book)[1:]))
    assert "line 1" in audited(fedsynth, run_copy)


def test_a_file_slipped_into_the_outbox_is_found(run_copy, fedsynth):
    (run_copy / "clients/00/outbox/notes.txt").write_text("patient 17 was not at home")
    assert "notes.txt" in audited(fedsynth, run_copy)


def test_a_folder_or_a_link_in_the_outbox_is_found(run_copy, fedsynth):
    outbox = run_copy / "clients/00/outbox"
    (outbox / "folder").mkdir()
    (outbox / "link").symlink_to(outbox.parent / "private/client.key")
    out = audited(fedsynth, run_copy)
    assert out.count("not a regular file") == 2


@pytest.mark.parametrize("position", [3, 200, -10])
def test_a_flipped_bit_in_a_sent_file_is_found(run_copy, fedsynth, forge, position):
    path = run_copy / "clients/00/outbox/message-0001.safetensors"
    data = path.read_bytes()
    path.write_bytes(forge.flip(data, position % len(data), 0))
    assert str(path) in audited(fedsynth, run_copy)


def test_a_whole_file_that_was_replaced_behind_the_ledger_s_back_is_found(run_copy, fedsynth, forge):
    path = run_copy / "clients/00/outbox/message-0001.safetensors"
    data = path.read_bytes()
    path.write_bytes(forge.forge_tensors(data, payload=bytes(len(forge.take_apart(data)[2]))))
    assert "not the bytes that the ledger records" in audited(fedsynth, run_copy)


def test_a_forger_who_writes_the_line_anew_is_found_by_the_next_line(run_copy, book, fedsynth, forge):
    """The digest of the new file is entered in its old line: the chain breaks behind it."""
    path = run_copy / "clients/00/outbox/message-0001.safetensors"
    data = path.read_bytes()
    forged = forge.forge_tensors(data, payload=bytes(len(forge.take_apart(data)[2])))
    path.write_bytes(forged)
    lines = lines_of(book)
    book.write_bytes(edit(lines[0], sha256=sha256_hex(forged)) + lines[1])
    assert "line 2" in audited(fedsynth, run_copy)


def test_a_torn_last_line_is_a_note_and_the_next_message_goes_on(run_copy, book, fedsynth, commands):
    book.write_bytes(book.read_bytes() + b'{"bytes":36')
    code, out, _ = fedsynth("audit", run_copy)
    assert code == 0 and "its last line was never finished" in out
    arguments, _ = commands(run_copy)["encode-update"]
    assert fedsynth(*arguments)[0] == 0
    assert len(lines_of(book)) == 3 and fedsynth("audit", run_copy)[0] == 0


def test_a_sent_file_that_was_carried_off_is_a_note(run_copy, fedsynth):
    (run_copy / "clients/00/outbox/message-0002.safetensors").unlink()
    code, out, _ = fedsynth("audit", run_copy)
    assert code == 0 and "sent or unfinished" in out


def test_repeating_a_stage_adds_nothing_and_other_bytes_add_a_line(run_copy, book, fedsynth, commands):
    arguments, _ = commands(run_copy)["encode-update"]
    same = [*arguments[:-1], run_copy / "clients/00/outbox/message-0001.safetensors", "--force"]
    before = book.read_bytes()
    assert fedsynth(*same, "--tell-examples")[0] == 0
    assert book.read_bytes() == before
    assert fedsynth(*same, "--no-tell-examples")[0] == 0
    assert book.read_bytes().startswith(before) and len(lines_of(book)) == 3


def test_what_is_no_run_folder_is_an_input_error(tmp_path, refused):
    refused(tmp_path, "audit", tmp_path, said=[tmp_path])
    refused(tmp_path, "audit", tmp_path / "none", said=[tmp_path / "none"])
