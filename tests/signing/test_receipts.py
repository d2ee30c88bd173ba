"""Receipts: what they prove of a ledger, and what they do not let pass (privacy contract, rules 4 and 25)."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from artifacts.digests import ZEROS, canonical_json, sha256_hex
from artifacts.errors import InputError, VerificationError
from artifacts.formats import envelope_file
from artifacts.identity.roster import read_roster
from artifacts.ledgers import egress
from artifacts.ledgers.receipts import NO_RECEIPTS, anchor, read_receipts
from artifacts.places import Place
from stages.receipt import ask, give, keep


@pytest.fixture
def receipted(federation):
    """Both clients asked in round 1, the server gave, both kept."""
    heads = [federation.ask(name) for name in ("a", "b")]
    give(heads, federation.receipts(), roster=federation.roster)
    for name in ("a", "b"):
        kept = federation.place(name) / "private/receipt-0001.intoto.jsonl"
        keep(federation.receipts(), kept, roster=federation.roster)
    return federation


def anchored(federation, name="a", given=()):
    return anchor(Place(federation.place(name)), read_roster(federation.roster), read_receipts(given))


def rewrite(path, change):
    """A ledger rewritten from the start: its chain is right, its content another."""
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    change(entries)
    previous, lines = ZEROS, []
    for number, entry in enumerate(entries, start=1):
        line = canonical_json(entry | {"seq": number, "previous": previous})
        previous = sha256_hex(line.encode())
        lines.append(line + "\n")
    path.write_text("".join(lines))
    egress.read(path)  # the chain alone is good


def test_a_receipt_anchors_what_stands_before_it(receipted):
    found = anchored(receipted)
    assert (found.state, found.seq, found.entries, found.open) == ("anchored", 2, 3, 0)  # message, envelope | head
    receipted.begin(receipted.root / "public/model-0001.safetensors", round=1)
    receipted.send("a", round=2, model=receipted.root / "public/model-0001.safetensors")
    found = anchored(receipted)
    assert (found.state, found.seq, found.open) == ("anchored", 2, 1) and "1 after it not yet" in found.text
    give([receipted.ask("a", 2)], receipted.receipts(2), roster=receipted.roster)
    found = anchored(receipted, given=[receipted.receipts(), receipted.receipts(2)])
    assert (found.state, found.seq, found.open) == ("anchored", 4, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda entries: entries[0].update(sha256="0" * 64),
        lambda entries: entries.pop(0),
        lambda entries: entries.insert(0, dict(entries[0])),
        lambda entries: entries.__setitem__(slice(0, 2), entries[1::-1]),
    ],
)
def test_a_rewritten_ledger_is_found(receipted, change):
    rewrite(receipted.place("a") / "egress.jsonl", change)
    found = anchored(receipted)
    assert found.state == "mismatch" and "rewritten" in found.text
    assert anchored(receipted, "b").state == "anchored"


def test_a_ledger_cut_at_its_end_is_found(receipted):
    rewrite(receipted.place("a") / "egress.jsonl", lambda entries: entries.__delitem__(slice(1, None)))
    found = anchored(receipted)
    assert found.state == "mismatch" and "cut off" in found.text


def test_who_throws_its_receipts_away_is_found_by_the_servers(receipted):
    rewrite(receipted.place("a") / "egress.jsonl", lambda entries: entries.pop(0))
    (receipted.place("a") / "private/receipt-0001.intoto.jsonl").unlink()
    assert anchored(receipted).state == "unanchored"
    assert anchored(receipted, given=[receipted.receipts()]).state == "mismatch"


def test_without_receipts_roster_or_client_nothing_is_proved(receipted):
    place = Place(receipted.place("a"))
    assert anchor(place, None).state == "unanchored"
    assert anchored(receipted, "server").state == "unanchored"
    (receipted.place("a") / "private/receipt-0001.intoto.jsonl").unlink()
    assert anchor(place, read_roster(receipted.roster), NO_RECEIPTS).state == "unanchored"
    kept = receipted.place("b") / "private/receipt-0001.intoto.jsonl"
    found = anchored(receipted, given=[kept])  # only b's line is there
    assert found.state == "unanchored" and "no receipt is for 'a'" in found.text


def test_forged_and_foreign_receipts_are_found(receipted, empty):
    kept = receipted.place("a") / "private/receipt-0001.intoto.jsonl"
    line, tree = envelope_file.read(kept).envelopes
    head = receipted.head("a")
    shutil.copy(head, kept)  # the head that nobody countersigned
    assert "a receipt is needed" in anchored(receipted).text
    stranger = empty("stranger")
    stranger.found(stranger.roster)
    from artifacts.identity import keys, roster

    secret = roster.signing_key(keys.read(stranger.key("server")), "envelopes")
    (asked,) = envelope_file.read(head).envelopes
    kept.write_bytes(asked.signed(secret).line() + tree.line())  # countersigned by another server
    found = anchored(receipted)
    assert found.state == "mismatch" and "not signed by it and the server" in found.text
    kept.write_bytes(line.line() + tree.line())
    found = anchor(Place(receipted.place("a")), read_roster(stranger.roster))
    assert found.state == "mismatch" and "federation" in found.text


def test_the_server_countersigns_only_what_its_clients_signed(federation, empty):
    for name in ("a", "b"):
        federation.ask(name)
    out = federation.receipts()
    with pytest.raises(InputError, match="another head of client 'a'"):
        give([federation.head("a")] * 2, out, roster=federation.roster)
    federation.ask("b", 2)
    with pytest.raises(InputError, match="is of round 2"):
        give([federation.head("a"), federation.head("b", 2)], out, roster=federation.roster)
    with pytest.raises(InputError, match="but a head is needed"):
        give([federation.envelope("a")], out, roster=federation.roster)
    stranger = empty("stranger")
    stranger.found(stranger.roster, federation=read_roster(federation.roster).federation)
    stranger.begin(stranger.model)
    stranger.send("a")
    stranger.ask("a")
    with pytest.raises(VerificationError, match="not signed by the key of client 'a'"):
        give([stranger.head("a")], out, roster=federation.roster)
    assert not out.exists()


def test_keeping_checks_the_receipt_and_the_ledger(federation):
    out = federation.place("b") / "private/receipt-0001.intoto.jsonl"
    give([federation.ask("a")], federation.receipts(), roster=federation.roster)
    with pytest.raises(InputError, match="no receipt for client 'b'"):
        keep(federation.receipts(), out, roster=federation.roster)
    rewrite(federation.place("a") / "egress.jsonl", lambda entries: entries.pop(0))
    with pytest.raises(VerificationError, match="rewritten"):
        keep(federation.receipts(), federation.place("a") / "private/receipt.intoto.jsonl", roster=federation.roster)


def test_asking_again_after_a_kill_gives_the_same_bytes(federation):
    before = federation.ask("a").read_bytes()
    federation.head("a").unlink()  # the entry was made, the file was not
    assert federation.ask("a").read_bytes() == before
    assert len(egress.read(federation.place("a") / "egress.jsonl").entries) == 3


def test_nothing_of_the_ledger_but_its_head_leaves(federation):
    text = federation.ask("a").read_text()
    book = egress.read(federation.place("a") / "egress.jsonl")
    (asked,) = envelope_file.read(federation.head("a")).envelopes
    assert asked.statement["predicate"].keys() == {"federation", "client", "round", "seq", "simulation", "spend"}
    assert asked.statement["subject"][0]["digest"]["sha256"] == book.entries[-1].previous
    assert book.entries[0].sha256 not in text and federation.message("a").name not in text


def test_an_empty_ledger_has_nothing_to_be_receipted(empty):
    federation = empty("new")
    federation.found(federation.roster)
    with pytest.raises(InputError, match="nothing has left"):
        ask(federation.head("a"), roster=federation.roster, round=1)


def test_no_receipts_where_clients_are_sampled_in_secret(federation):
    """The server's model claims amplification by sampling: whoever took part must not be seen."""
    from artifacts.metadata import Metadata
    from artifacts.publish import publish
    from stages.privacy.events import PrivacyEvent

    event = PrivacyEvent.planned(
        unit="client", sampling_rate=0.1, noise_multiplier=1.0, clip_norm=1.0, steps=1, trust="server"
    )
    about = Metadata(kind="model", stage="aggregate", custody="downlink", privacy=(event.to_json(),), versions={})
    publish(federation.place("server") / "outbox/model-0001.safetensors", [b"x"], about, force=False)
    with pytest.raises(InputError, match="secret sampling"):
        give([federation.ask("a")], federation.receipts(), roster=federation.roster)


def test_the_audit_checks_who_signed(receipted, empty, fedsynth, fedsynth_json):
    """Forged heads and receipts that are properly entered in their ledgers: only the signature is wrong."""
    from artifacts.identity import keys, roster

    assert "PASS, anchored" in fedsynth_json("audit", receipted.root)["verdict"]
    stranger = empty("stranger")
    stranger.found(stranger.roster)
    secrets = {
        name: roster.signing_key(keys.read(stranger.key(name)), "envelopes") for name in ("a", "server")
    }  # fmt: skip
    (asked,) = envelope_file.read(receipted.head("a")).envelopes
    envelope_file.write(receipted.head("a", 2), (replace(asked, signatures={}).signed(secrets["a"]),), force=False)
    tree = envelope_file.read(receipted.receipts()).envelopes[-1]
    envelope_file.write(receipted.receipts(2), (asked.signed(secrets["server"]), tree), force=False)
    code, out, _ = fedsynth("audit", receipted.root, "--json")
    found = {(Path(f["where"]).name, f["check"]) for f in json.loads(out)["findings"] if f["level"] == "failure"}
    assert code == 5
    assert {("head-0002.intoto.jsonl", "envelopes"), ("receipts-0002.intoto.jsonl", "envelopes")} <= found
    assert ("egress.jsonl", "anchor") in found


def test_the_commands(federation, fedsynth_json):
    roster = ("--roster", federation.roster)
    fedsynth_json("receipt", "ask", "--round", 1, *roster, "-o", federation.head("a"))
    fedsynth_json("receipt", "give", federation.head("a"), *roster, "-o", federation.receipts())
    kept = federation.place("a") / "private/receipt-0001.intoto.jsonl"
    assert fedsynth_json("receipt", "keep", federation.receipts(), *roster, "-o", kept)["seq"] == 2
    found = fedsynth_json("verify", federation.head("a"), federation.receipts(), kept, *roster)
    assert [row["signed_by"] for row in found["files"]] == ["a", "a, server", "a, server"]


@pytest.mark.parametrize("change", ["shorter", "forked"])
def test_the_server_does_not_countersign_a_ledger_that_was_cut_or_rewritten(receipted, change):
    """The first head of a stays in the server's outbox: a ledger only grows."""
    book = receipted.place("a") / "egress.jsonl"
    if change == "shorter":
        rewrite(book, lambda entries: entries.__delitem__(slice(1, None)))
    else:  # as many entries as were countersigned, of which one is another
        rewrite(book, lambda entries: (entries.pop(), entries[0].update(bytes=1)))
    again = receipted.ask("a", 2)
    with pytest.raises(VerificationError, match="it was cut or rewritten"):
        give([again], receipted.receipts(2), roster=receipted.roster)
    assert not receipted.receipts(2).exists()
    give([receipted.head("b")], receipted.receipts(3), roster=receipted.roster)  # the same head again is no harm
