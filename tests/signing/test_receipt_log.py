"""The server's log of receipts: signed tree heads, proofs, and a server that shows two histories."""

import json
import shutil

import pytest

from artifacts.errors import IncompleteError, InputError, VerificationError
from artifacts.formats import envelope_file
from artifacts.identity import keys
from artifacts.identity.roster import read_roster, signing_key
from artifacts.ledgers import egress, merkle, receipt_log, spend
from artifacts.ledgers.receipts import check_one_history
from artifacts.ledgers.tree_heads import grown, tree_of
from artifacts.places import Place
from stages.audit import audit
from stages.receipt import compare, give, keep


@pytest.fixture
def rounds(federation):
    """Two clients, three rounds of receipts, each kept by both."""
    before = federation.model
    for round in (1, 2, 3):
        if round > 1:
            before = federation.begin(federation.root / f"public/model-{round - 1:04}.safetensors", round=round - 1)
            for name in federation.names:
                federation.send(name, round=round, model=before)
        give(
            [federation.ask(name, round) for name in federation.names],
            federation.receipts(round), roster=federation.roster,
        )  # fmt: skip
        for name in federation.names:
            keep(federation.receipts(round), kept(federation, name, round), roster=federation.roster)
    return federation


def kept(federation, name, round):
    return federation.place(name) / f"private/receipt-{round:04}.intoto.jsonl"


def tree(path):
    return tree_of(envelope_file.read(path).envelopes[-1])


def failures(report):
    return {(f.check, f.what) for f in report.findings if f.level == "failure"}


def test_the_log_grows_by_the_heads_of_each_round(rounds):
    leaves = receipt_log.read_leaves(receipt_log.log_of(Place(rounds.place("server"))))
    heads = [line for round in (1, 2, 3) for line in envelope_file.read(rounds.receipts(round)).heads]
    assert leaves == [merkle.leaf_hash(line.payload) for line in heads]
    trees = [tree(rounds.receipts(round)) for round in (1, 2, 3)]
    assert [(one.previous_size, one.size) for one in trees] == [(0, 2), (2, 4), (4, 6)]
    assert [one.previous_root for one in trees[1:]] == [one.root for one in trees[:-1]]
    assert trees[-1].root == merkle.root(leaves).hex()
    assert tree(kept(rounds, "b", 3)) == trees[-1]


def test_given_again_after_a_kill_it_is_the_same(rounds):
    before, path = rounds.receipts(3).read_bytes(), rounds.receipts(3)
    path.unlink()  # the log has the heads, the file is not there
    give([rounds.head(name, 3) for name in rounds.names], path, roster=rounds.roster)
    assert path.read_bytes() == before


def test_a_server_that_lost_its_log_signs_no_second_one(rounds):
    log = receipt_log.log_of(Place(rounds.place("server")))
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:3]))
    with pytest.raises(VerificationError, match="Put it back"):
        give([rounds.head("a", 3)], rounds.receipts(4), roster=rounds.roster)
    assert ("anchor", f"its tree head is not that of {log.name}, the server's log") in failures(audit(rounds.root))


def test_two_clients_of_an_honest_server_agree(rounds, fedsynth_json):
    folders = [rounds.place(name) / "private" for name in rounds.names]
    found = fedsynth_json("receipt", "compare", *folders, "--roster", rounds.roster)
    assert (found["agree"], found["size"], found["files"]) == (True, 6, 6)
    assert found["root"] == tree(rounds.receipts(3)).root
    # Neighbouring rounds are joined by the later one's proof; those farther apart by nothing.
    compare([kept(rounds, "a", 1), kept(rounds, "b", 2)], roster=rounds.roster)
    with pytest.raises(IncompleteError, match="no proof joins"):
        compare([kept(rounds, "a", 1), kept(rounds, "b", 3)], roster=rounds.roster)


def second_history(rounds, round, name="b"):
    """What a server with another log would have shown this client: properly signed, proofs and all."""
    secret = signing_key(keys.read(rounds.key("server")), "envelopes")
    log = receipt_log.read_leaves(receipt_log.log_of(Place(rounds.place("server"))))
    (line,) = envelope_file.read(kept(rounds, name, round)).heads
    size = 2 * round - 1
    other = [*(bytes([9]) * 32 for _ in range(size - 1)), merkle.leaf_hash(line.payload), *log[size:]]
    made = grown(other, {name: size - 1}, federation=read_roster(rounds.roster).federation, round=round)
    kept(rounds, name, round).write_bytes(line.line() + made.signed(secret).line())


@pytest.mark.parametrize("round", [1, 2, 3])
def test_a_server_that_shows_two_histories_is_caught_by_two_clients(rounds, round, fedsynth):
    """Each of the two looks good by itself."""
    second_history(rounds, round)
    mine, theirs = kept(rounds, "a", round), kept(rounds, "b", round)
    for one in (mine, theirs):
        compare([one], roster=rounds.roster)
    code, _, err = fedsynth("receipt", "compare", mine, theirs, "--roster", rounds.roster)
    assert code == 5 and "it shows two histories" in err


def test_two_histories_of_the_same_size(rounds):
    secret = signing_key(keys.read(rounds.key("server")), "envelopes")
    found = envelope_file.read(kept(rounds, "b", 1))
    leaves = [bytes(32), merkle.leaf_hash(found.heads[0].payload)]
    made = grown(leaves, {"b": 1}, federation=read_roster(rounds.roster).federation, round=1)
    kept(rounds, "b", 1).write_bytes(found.heads[0].line() + made.signed(secret).line())
    with pytest.raises(VerificationError, match="contradict each other about a log of"):
        compare([kept(rounds, "a", 1), kept(rounds, "b", 1)], roster=rounds.roster)
    # The audit that sees both says so, and so does `verify`.
    assert any("it shows two histories" in what for check, what in failures(audit(rounds.root)) if check == "anchor")


def test_verify_checks_proofs_and_histories(rounds, fedsynth):
    paths = [rounds.receipts(1), kept(rounds, "b", 2)]
    code, out, _ = fedsynth("verify", *paths, "--roster", rounds.roster, "--json")
    assert code == 0 and [row["log"]["size"] for row in json.loads(out)["files"]] == [2, 4]
    second_history(rounds, 2)
    code, out, _ = fedsynth("verify", *paths, "--roster", rounds.roster, "--json")
    assert code == 5 and "two histories" in json.loads(out.splitlines()[0])["files"][0]["reason"]


@pytest.mark.parametrize("where", ["inclusion", "consistency", "previous", "size", "root"])
def test_a_proof_that_does_not_hold_is_not_read(rounds, where):
    """The server signs it all the same."""
    secret = signing_key(keys.read(rounds.key("server")), "envelopes")
    path = rounds.receipts(2)
    found = envelope_file.read(path)
    statement = found.envelopes[-1].statement
    said = statement["predicate"]
    match where:
        case "inclusion":
            said["inclusion"]["a"]["index"] = 0
        case "consistency":
            said["consistency"][0] = "0" * 64
        case "previous":
            said["previous"]["root"] = "0" * 64
        case "size":
            said["size"] = 5
        case "root":
            statement["subject"][0]["digest"]["sha256"] = "0" * 64
    from artifacts.digests import canonical_json
    from artifacts.identity.dsse import Envelope

    forged = Envelope(canonical_json(statement).encode(), {}).signed(secret)
    path.write_bytes(envelope_file.content((*found.heads, forged)))
    with pytest.raises(InputError, match="its tree head does not"):
        envelope_file.read(path, kind="receipt")


def test_a_tree_head_of_somebody_else(rounds):
    secret = signing_key(keys.read(rounds.key("a")), "envelopes")
    found = envelope_file.read(kept(rounds, "a", 1))
    unsigned = type(found.envelopes[-1])(found.envelopes[-1].payload, {})
    kept(rounds, "a", 1).write_bytes(found.heads[0].line() + unsigned.signed(secret).line())
    with pytest.raises(VerificationError, match="not signed by the server"):
        check_one_history([envelope_file.read(kept(rounds, "a", 1))], read_roster(rounds.roster))
    assert "anchor" in {check for check, _ in failures(audit(rounds.root))}


# The spend ledger, to which heads commit


def test_heads_commit_to_the_spend_ledger_and_tell_nothing_of_it(rounds):
    heads = [envelope_file.head_of(envelope_file.read(rounds.head("a", round)).heads[0]) for round in (1, 2, 3)]
    book, secret = spend.beside(rounds.key("a")), keys.read(rounds.key("a"))
    assert len({head.spend for head in heads}) == 3, "though nothing was spent in between"
    assert [spend.committed_entries(book, secret, head.occasion, head.spend) for head in heads] == [1, 1, 1]
    other = keys.read(rounds.key("b"))
    assert spend.committed_entries(book, other, heads[0].occasion, heads[0].spend) is None


def test_a_spend_ledger_that_was_put_back_is_found_by_the_receipts(rounds):
    book, secret = spend.beside(rounds.key("a")), keys.read(rounds.key("a"))
    first = book.read_bytes()
    with spend.locked(book, secret) as ledger:
        ledger.reserve(stage="train-client", context="c" * 64, data=["d" * 64], events=[])
    model = rounds.begin(rounds.root / "public/model-0003.safetensors", round=3)
    rounds.send("a", round=4, model=model)
    give([rounds.ask("a", 4)], rounds.receipts(4), roster=rounds.roster)
    assert audit(rounds.root).passed, audit(rounds.root).findings
    shutil.copy(book, rounds.root / "copy")
    book.write_bytes(first)
    said = [what for check, what in failures(audit(rounds.root)) if check == "anchor"]
    assert any("it was put back, cut or made anew" in what for what in said)
    assert egress.read(rounds.place("a") / "egress.jsonl").entries, "the egress ledger is as it was"
