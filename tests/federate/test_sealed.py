"""Sealed parcels: opened by their reader alone, and refused when any word that they are bound to is another."""

import dataclasses
import json

import pytest

from artifacts.errors import InputError
from artifacts.identity import keys
from artifacts.identity.roster import public_half, read_roster, signing_key, write_identity, write_roster
from stages.federate import sealed
from stages.federate.messages import Letter, letter_bytes, read_letter, read_reply, reply_bytes
from stages.federate.parcels import Parcel, ParcelError, Reply, Task
from stages.federate.sealed import Address, address_of, check_address, padded_size, seal, unseal

NAMES = ("server", "a", "hospital-with-a-long-name")
HEAD = len(b"fedsynth.sealed/1\n")
MESSAGE = b"what is said" * 1000
OTHER = {
    "federation": "another", "terms": "f" * 64, "round": 3, "exchange": 8, "sender": "a",
    "recipient": "hospital-with-a-long-name", "answers": "e" * 64,
}  # fmt: skip


@pytest.fixture(scope="module")
def held():
    return {name: keys.simulated(1, name) for name in NAMES}


@pytest.fixture(scope="module")
def roster(held, tmp_path_factory):
    folder = tmp_path_factory.mktemp("roster")
    for name in NAMES:
        write_identity(folder / f"{name}.json", name, held[name], force=False)
    write_roster(folder / "roster.json", [folder / f"{name}.json" for name in NAMES], "ours", force=False)
    return read_roster(folder / "roster.json")


@pytest.fixture(scope="module")
def address():
    return Address("ours", "0" * 64, 2, 7, "server", "a")


@pytest.fixture(scope="module")
def parcel(held, roster, address):
    return seal(MESSAGE, address, size=2**14, key=held["server"], roster=roster)


def signed_again(data, key):
    """With a signature of this key in the place of the one that it has."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from stages.federate.sealed import _statement

    text = data[:-64]
    return text + Ed25519PrivateKey.from_private_bytes(signing_key(key, "parcels")).sign(_statement(text))


def with_word(data, name, value):
    """The parcel whose address says something else."""
    said = json.loads(data[HEAD : HEAD + 1024])
    assert said[name] != value
    line = json.dumps(said | {name: value}, sort_keys=True, separators=(",", ":")).encode().ljust(1023) + b"\n"
    return data[:HEAD] + line + data[HEAD + 1024 :]


def test_its_reader_opens_it(parcel, held, roster, address):
    assert address_of(parcel) == address
    assert unseal(parcel, key=held["a"], roster=roster) == MESSAGE
    assert MESSAGE[:12] not in parcel


@pytest.mark.parametrize("length", [0, 1, 2**20 - 8, 2**20 - 7, 2**20 + 1, 2**21 - 8, 3_000_001])
def test_every_length(length, held, roster, address):
    message = bytes(range(256)) * (length // 256 + 1)
    data = seal(message[:length], address, size=padded_size(length), key=held["server"], roster=roster)
    assert unseal(data, key=held["a"], roster=roster) == message[:length]


def test_nobody_else_opens_it(parcel, held, roster):
    for name in ("server", "hospital-with-a-long-name"):
        with pytest.raises(ParcelError, match="cannot be opened with the key of 'a'"):
            unseal(parcel, key=held[name], roster=roster)


def test_sizes_tell_nothing(held, roster, address):
    """Neither of the message nor of the names. 1024 and 18 bytes before, 16 and 64 after, by the layout."""
    other = dataclasses.replace(address, recipient="hospital-with-a-long-name", exchange=700, answers="d" * 64)
    sizes = {
        len(seal(text, to, size=8192, key=held["server"], roster=roster))
        for text in (b"", b"x" * 8000)
        for to in (address, other)
    }
    assert sizes == {18 + 1024 + 8192 + 16 + 64}


def test_the_same_message_twice_is_two_parcels(parcel, held, roster, address):
    assert seal(MESSAGE, address, size=2**14, key=held["server"], roster=roster) != parcel


@pytest.mark.parametrize("name", OTHER)
def test_a_word_of_its_address_changed(name, parcel, held, roster, address):
    """By a carrier: the signature does not fit. By a participant who signs anew: it cannot be opened."""
    changed = with_word(parcel, name, OTHER[name])
    with pytest.raises(ParcelError, match="not signed by"):
        unseal(changed, key=held["a"], roster=roster)
    signer = "a" if name == "sender" else "server"
    with pytest.raises(ParcelError, match="cannot be opened"):
        unseal(signed_again(changed, held[signer]), key=held["a"], roster=roster)
    assert address_of(changed) == dataclasses.replace(address, **{name: OTHER[name]})


SENTENCES = {
    "federation": "of another federation, 'another'", "terms": "other terms, ffffffffffff",
    "round": "exchange 7, round 3; waited for is exchange 7, round 2", "exchange": "not of this exchange",
    "sender": "from 'a'; one from 'server'", "recipient": "addressed to 'hospital-with-a-long-name', not to 'a'",
    "answers": "answers another parcel",
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_a_parcel_from_elsewhere_is_refused_in_a_sentence(name, address):
    with pytest.raises(ParcelError, match=SENTENCES[name]):
        check_address(dataclasses.replace(address, **{name: OTHER[name]}), address)
    check_address(address, address)


def test_a_late_one_is_called_late(address):
    with pytest.raises(ParcelError, match="late or replayed: of exchange 6, round 2; waited for is exchange 7"):
        check_address(dataclasses.replace(address, exchange=6), address)


def test_a_reply_in_the_name_of_another(held, roster, address):
    """Written by one client with its own key, as from another: the roster knows the difference."""
    back = dataclasses.replace(address, sender="a", recipient="server", answers="c" * 64)
    forged = seal(MESSAGE, back, size=2**14, key=held["hospital-with-a-long-name"], roster=roster)
    with pytest.raises(ParcelError, match="not signed by 'a'"):
        unseal(forged, key=held["server"], roster=roster)


def test_any_byte_changed_or_missing(parcel, held, roster):
    for place in (0, HEAD, HEAD + 900, HEAD + 1024, len(parcel) // 2, len(parcel) - 65, len(parcel) - 1):
        spoilt = bytearray(parcel)
        spoilt[place] ^= 1
        with pytest.raises(ParcelError):
            unseal(bytes(spoilt), key=held["a"], roster=roster)
    for end in (0, HEAD, HEAD + 1024, 2000, len(parcel) - 1):
        with pytest.raises(ParcelError):
            unseal(parcel[:end], key=held["a"], roster=roster)
    with pytest.raises(ParcelError):
        unseal(parcel + b"\0", key=held["a"], roster=roster)


def test_cut_between_chunks_and_signed_anew(held, roster, address):
    """By the sender's own key, which would be a defect of ours: what is cut does not pass for whole."""
    data = seal(bytes(2**21 - 8), address, size=2**21, key=held["server"], roster=roster)
    cut = data[: HEAD + 1024 + 2**20 + 16] + data[-64:]
    with pytest.raises(ParcelError, match="cannot be opened"):
        unseal(signed_again(cut, held["server"]), key=held["a"], roster=roster)


@pytest.mark.parametrize("length", [100, 2**20 + 100], ids=["one chunk", "two chunks"])
def test_something_behind_its_message(length, held, roster, address, monkeypatch):
    """By a sender of its own making: its reader would unpack the message and never see the rest."""
    padded = sealed._padded

    def filled(message, start, end):
        piece = padded(message, start, end)
        return piece[:-7] + b"mueller" if end == 2**21 else piece

    monkeypatch.setattr(sealed, "_padded", filled)
    data = seal(b"m" * length, address, size=2**21, key=held["server"], roster=roster)
    with pytest.raises(ParcelError, match="something behind its message"):
        unseal(data, key=held["a"], roster=roster)


def test_an_old_roster_counts_still_and_names_what_it_lacks(roster, held, address, tmp_path):
    """Rosters of earlier versions have no keys for parcels."""
    fields = json.loads(roster.path.read_text())
    for known in (*fields["clients"].values(), fields["server"]):
        del known["parcels"], known["sealing"]
    old = tmp_path / "roster.json"
    old.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")
    found = read_roster(old)
    assert found.of("a", "envelopes") == public_half(held["a"], "envelopes")
    with pytest.raises(InputError, match=r"has no sealing key of 'a'. Write its identity"):
        seal(MESSAGE, address, size=2**14, key=held["server"], roster=found)


def test_the_sealing_key_is_the_public_half_of_the_key_for_it(roster, held):
    """By the library itself, from HKDF's output."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    secret = held["a"].derive("sealing identity")
    assert roster.of("a", "sealing") == X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    assert len({bytes(key) for key in roster.clients["a"].values()}) == 4


FILE = Parcel("public/model-0000.safetensors", "model", 0, 3, "9" * 64, b"\n{}")


def test_messages_read_as_they_were_written():
    task = Task("0" * 64, {"torch": "2"}, "a", 4, ("x", "y"), (2, None), (1, 3), (FILE, FILE))
    assert read_letter(letter_bytes(Letter(task, 4096, last=True))) == Letter(task, 4096, last=True)
    reply = Reply("done", "a", 4, ("n",), (FILE,))
    assert read_reply(reply_bytes(reply)) == reply


@pytest.mark.parametrize(
    "data", [b"", b"{}\n", b"[]\n", b"no\n", b'{"protocol":1,"files":[["a","b",0,9,"c"]]}\n123', b'{"protocol":99}\n']
)
def test_other_messages_are_refused(data):
    for read in (read_letter, read_reply):
        with pytest.raises(ParcelError):
            read(data)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b'{"client"', b'{ "client"', 1),
        lambda data: data.replace(b'"round":4', b'"round":4.0', 1),
        lambda data: data.replace(b'"protocol"', b'"note":"mueller","protocol"', 1),
        lambda data: data + b"mueller",
    ],
    ids=["a space", "a point", "a field", "behind its files"],
)
def test_a_message_has_one_spelling(change):
    task = Task("0" * 64, {"torch": "2"}, "a", 4, ("x",), (2, None), (1,), (FILE,))
    for read, data in (
        (read_letter, letter_bytes(Letter(task, 4096))), (read_reply, reply_bytes(Reply("done", "a", 4, (), (FILE,))))
    ):  # fmt: skip
        assert change(data) != data
        with pytest.raises(ParcelError, match="not laid out as agreed"):
            read(change(data))
