"""No file appears in an outbox without its entry: the entry comes first, the file second."""

import numpy as np
import pytest

from artifacts import publish
from artifacts.digests import sha256_file
from artifacts.errors import InputError, UsageError, VerificationError
from artifacts.formats import tensors_file
from artifacts.identity import keys
from artifacts.ledgers import egress, lineage
from artifacts.metadata import InputRef
from artifacts.places import Place
from artifacts.writing import atomic


@pytest.fixture
def message(tmp_path):
    return tmp_path / "00" / "outbox" / "message.safetensors"


def send(path, forge, value=1.0, force=False):
    return tensors_file.write(path, {"w": np.full(3, value, "f4")}, forge.metadata("message"), force=force)


def entries(path):
    return egress.read(Place.of(path).ledger).entries


def test_a_sent_file_is_recorded_with_its_digest_and_size(message, forge):
    digest = send(message, forge)
    (entry,) = entries(message)
    assert entry.file == message.name and entry.sha256 == digest == sha256_file(message)
    assert entry.bytes == message.stat().st_size and entry.disclosures == ["update"]
    assert sorted(p.name for p in message.parent.parent.iterdir()) == ["egress.jsonl", "outbox"]
    assert [p.name for p in message.parent.iterdir()] == [message.name]


@pytest.mark.parametrize("kind", ["message", "model"])
def test_the_digest_of_a_large_file_is_that_of_its_bytes(message, tmp_path, forge, kind):
    path = message if kind == "message" else tmp_path / "model.safetensors"
    rows = np.arange(1 << 20, dtype="f4")
    assert tensors_file.write(path, {"w": rows}, forge.metadata(kind)) == sha256_file(path)
    assert path.stat().st_size > publish._LARGE
    assert np.array_equal(tensors_file.read(path).tensors["w"], rows)


@pytest.mark.parametrize("force", [False, True])
def test_the_entry_is_there_before_the_file(message, forge, monkeypatch, force):
    seen, real = [], atomic.place

    def place(temporary, path, *, force):
        seen.append((len(entries(path)), path.exists()))
        real(temporary, path, force=force)

    monkeypatch.setattr(publish.atomic, "place", place)
    send(message, forge, force=force)
    assert seen == [(1, False)]


def test_nothing_unrecorded_stands_in_the_outbox_even_for_a_moment(message, forge, monkeypatch):
    real = egress.LockedLedger.enter

    def enter(self, **fields):
        assert list(message.parent.iterdir()) == []
        real(self, **fields)

    monkeypatch.setattr(egress.LockedLedger, "enter", enter)
    send(message, forge)
    assert message.exists()


def test_a_file_that_could_not_be_placed_leaves_an_entry_and_nothing_else(message, forge, monkeypatch):
    def refuse(*_, **__):
        raise InputError("no")

    with monkeypatch.context() as patch:
        patch.setattr(publish.atomic, "place", refuse)
        with pytest.raises(InputError):
            send(message, forge)
    assert len(entries(message)) == 1 and list(message.parent.iterdir()) == []
    send(message, forge)
    assert len(entries(message)) == 1 and message.exists(), "the next run completes, under the same entry"


def test_a_file_that_could_not_be_entered_does_not_appear(message, forge, monkeypatch):
    def refuse(*_, **__):
        raise InputError("the ledger cannot be written")

    monkeypatch.setattr(egress.LockedLedger, "enter", refuse)
    with pytest.raises(InputError, match="the ledger cannot be written"):
        send(message, forge)
    assert list(message.parent.iterdir()) == []


def test_a_broken_ledger_stops_the_file(message, forge):
    send(message, forge)
    before = message.read_bytes()
    book = Place.of(message).ledger
    book.write_bytes(book.read_bytes().replace(b'"seq":1', b'"seq":7'))
    with pytest.raises(VerificationError, match="line 1"):
        send(message, forge, 2.0, force=True)
    with pytest.raises(VerificationError, match="line 1"):
        send(message.with_name("other.safetensors"), forge)
    assert message.read_bytes() == before and [p.name for p in message.parent.iterdir()] == [message.name]


def test_the_same_bytes_again_change_nothing(message, forge):
    send(message, forge)
    book, status = Place.of(message).ledger.read_bytes(), message.stat()
    send(message, forge, force=True)
    assert Place.of(message).ledger.read_bytes() == book
    assert (message.stat().st_ino, message.stat().st_mtime_ns) == (status.st_ino, status.st_mtime_ns)


def test_a_carried_off_file_made_again_adds_no_entry(message, forge):
    send(message, forge)
    message.unlink()
    send(message, forge)
    assert len(entries(message)) == 1 and message.exists()


def test_other_bytes_are_refused_without_force_and_recorded_with_it(message, forge):
    first = send(message, forge, 1.0)
    with pytest.raises(InputError, match="already exists"):
        send(message, forge, 2.0)
    assert [e.sha256 for e in entries(message)] == [first]
    second = send(message, forge, 2.0, force=True)
    assert [e.sha256 for e in entries(message)] == [first, second] and sha256_file(message) == second
    third = send(message, forge, 1.0, force=True)
    assert third == first and [e.sha256 for e in entries(message)] == [first, second, first]


def test_a_file_without_an_entry_is_entered_when_it_is_made_again(message, forge):
    send(message, forge)
    Place.of(message).ledger.unlink()
    send(message, forge, force=True)
    assert len(entries(message)) == 1


def test_what_leaves_goes_into_an_outbox_and_what_stays_never_does(tmp_path, forge):
    with pytest.raises(UsageError, match="would leave unrecorded"):
        send(tmp_path / "00" / "message.safetensors", forge)
    for kind in ("model", "update"):
        with pytest.raises(UsageError, match="may not be in an outbox"):
            forge.write_tensors(tmp_path / "00" / "outbox" / "f.safetensors", kind=kind)
    assert forge.snapshot(tmp_path) == {}


def test_the_server_s_ledger_stands_among_its_private_files(tmp_path, forge):
    path = tmp_path / "server" / "outbox" / "model.safetensors"
    forge.write_tensors(path, custody="downlink")
    assert (tmp_path / "server" / "private" / "egress.jsonl").exists()
    assert [e.kind for e in entries(path)] == ["model"]


def test_a_private_input_of_an_outbound_file_is_named_by_commitment_only(tmp_path, forge):
    private = tensors_file.read(forge.write_tensors(tmp_path / "u.safetensors", kind="update"))
    public = tensors_file.read(forge.write_tensors(tmp_path / "m.safetensors"))
    key = keys.generate()
    hidden = lineage.for_outbound(private, "update", key=key, context={})
    assert hidden.sha256 is None and private.sha256 not in str(hidden)
    assert lineage.for_outbound(public, "model", key=key, context={}).sha256 == public.sha256


def test_a_lineage_record_is_read_back_and_a_damaged_one_refused(tmp_path):
    path = tmp_path / "m.lineage.json"
    inputs = [InputRef(role="message", kind="message", sha256="a" * 64)]
    lineage.write_record(path, tmp_path / "m", inputs, force=False)
    assert lineage.read_record(path) == inputs
    for damage in (b"", b"{}", b"[1]", b'{"inputs":[{"role":1}]}', path.read_bytes()[:-9], b"\xff", b"[" * 10**5):
        path.write_bytes(damage)
        with pytest.raises(InputError, match="is not a lineage record"):
            lineage.read_record(path)
    with pytest.raises(InputError, match="is not a lineage record"):
        lineage.read_record(tmp_path / "none.json")


@pytest.mark.parametrize("way", ["folder", "link"])
def test_nothing_gets_below_an_outbox_by_a_side_door(message, forge, tmp_path, way):
    send(message, forge)
    path = message.parent / "sub" / "update.safetensors"
    if way == "link":
        (tmp_path / "elsewhere").symlink_to(message.parent)
        path = tmp_path / "elsewhere" / "update.safetensors"
    with pytest.raises(UsageError, match="inside an outbox"):
        tensors_file.write(path, {"w": np.ones(3, "f4")}, forge.metadata("update"))
    assert [p.name for p in message.parent.iterdir()] == [message.name]


def test_a_folder_of_work_may_be_called_outbox(tmp_path, forge):
    path = tmp_path / "outbox" / "project" / "update.safetensors"
    tensors_file.write(path, {"w": np.ones(3, "f4")}, forge.metadata("update"))
    assert path.exists()
